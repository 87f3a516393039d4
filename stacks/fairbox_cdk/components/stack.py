"""A stack of a deployment: named after it, wherever its construct stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Stack

from fairbox_cdk.components.deployment import deployment_name, environment

if TYPE_CHECKING:
    from constructs import Construct


class DeploymentStack(Stack):
    """A part of a deployment, whose stack is called by the deployment's name and its own.

    Names of resources begin with the stack's name: so a deployment that moves to another place of
    an application stays the same.
    """

    def __init__(
        self,
        scope: Construct,
        part: str,
        *,
        description: str,
        termination_protection: bool | None = None,
    ) -> None:
        super().__init__(
            scope,
            part,
            stack_name=f"{deployment_name(scope)}{part}",
            env=environment(scope),
            description=description,
            termination_protection=termination_protection,
        )
