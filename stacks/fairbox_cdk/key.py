"""Stack of the key: made by `encryption_key: create`, and kept when the setting changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import CfnOutput

from fairbox_cdk.components.encryption import created_key
from fairbox_cdk.components.stack import DeploymentStack

if TYPE_CHECKING:
    from constructs import Construct

    from fairbox_cdk.config import Config


class KeyStack(DeploymentStack):
    """The key of tables, buckets, queues and archive.

    It is a stack of its own, so that it stays deployed when the setting no longer asks for it:
    other stacks import the key until their own update, and older data still need it.

    Attributes:
        key: the key.
    """

    def __init__(self, scope: Construct, part: str, *, config: Config) -> None:
        super().__init__(
            scope,
            part,
            description="Fairbox: the key of the data.",
            termination_protection=config.keeps_data,
        )
        self.key = created_key(self, config)
        CfnOutput(self, "KeyArn", value=self.key.key_arn)
