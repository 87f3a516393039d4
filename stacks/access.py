"""Stack for the users of the outbox: managed policies, and the names of what they use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm
from fairbox.model.deployment import parameter_of

from stacks.components import roles
from stacks.components.nag import acknowledge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from constructs import Construct

    from stacks.components.permissions import Permission
    from stacks.components.roles import Resources

_POLICIES: Final[dict[str, tuple[Callable[[Resources], list[Permission]], str]]] = {
    "Producer": (roles.producer, "Publishes messages; reads no bodies."),
    "Consumer": (roles.consumer, "Receives from pulled topics, and settles."),
    "Operator": (roles.operator, "Everything that the library does; doctor needs Reader too."),
    "TokenIssuer": (roles.token_issuer, "Makes tokens for clients of feeds."),
    "Reader": (roles.reader, "Reads everything; changes nothing."),
}


class AccessStack(Stack):
    """Policies to attach to the roles of Fairbox's users, and the variables of their programs.

    Attributes:
        policies: by name: `Producer`, `Consumer`, `Operator`, `TokenIssuer` (where there are
            feeds), `Reader`.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        resources: Resources,
        variables: Mapping[str, str],
    ) -> None:
        super().__init__(scope, id_, description="Fairbox: policies for those who use it.")
        self.policies: dict[str, iam.ManagedPolicy] = {}
        for name, (statements, description) in _POLICIES.items():
            if name == "TokenIssuer" and resources.feeds is None:
                continue
            permissions = statements(resources)
            policy = iam.ManagedPolicy(
                self,
                name,
                description=f"Fairbox {name}: {description}",
                statements=[permission.statement for permission in permissions],
            )
            self.policies[name] = policy
            for permission in permissions:
                for rule, reason in permission.accepted:
                    acknowledge(policy, rule, reason)
            CfnOutput(self, f"{name}PolicyArn", value=policy.managed_policy_arn)
        ssm.StringParameter(
            self,
            "Variables",
            parameter_name=parameter_of(resources.name),
            string_value=self.to_json_string(dict(variables)),
            description="Fairbox: the variables of its clients.",
        )
