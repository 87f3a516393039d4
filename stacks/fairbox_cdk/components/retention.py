"""The end of what holds data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import RemovalPolicy

if TYPE_CHECKING:
    from fairbox_cdk.config import Config


def removal_policy(config: Config, *, protected: bool = False) -> RemovalPolicy:
    """Return the removal policy of what holds data.

    After a failed creation it goes, as it is empty, unless it is `protected`: from deletion by
    DynamoDB, or because it may not be empty.
    """
    if not config.keeps_data:
        return RemovalPolicy.DESTROY
    return RemovalPolicy.RETAIN if protected else RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
