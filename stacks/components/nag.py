"""Acknowledges one finding of the AwsSolutions rules on one construct, with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Acknowledgment, Validations

if TYPE_CHECKING:
    from constructs import IConstruct


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept `rule` (`AwsSolutions-S1`, or `AwsSolutions-IAM5[Resource::*]`) on `construct`."""
    Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))
