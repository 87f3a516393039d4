"""Stack for the users of the outbox: managed policies, and the names of what they use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import CfnOutput
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm
from fairbox.model.deployment import parameter_of

from fairbox_cdk.components import roles
from fairbox_cdk.components.nag import acknowledge
from fairbox_cdk.components.stack import DeploymentStack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from constructs import Construct

    from fairbox_cdk.components.permissions import Permission
    from fairbox_cdk.components.roles import Resources

_POLICIES: Final[dict[str, tuple[Callable[[Resources], list[Permission]], str]]] = {
    "Producer": (roles.producer, "Publishes messages; reads no bodies."),
    "Consumer": (roles.consumer, "Receives from pulled topics, and settles."),
    "Operator": (roles.operator, "Everything that the library does; doctor needs Reader too."),
    "TokenIssuer": (roles.token_issuer, "Makes tokens for clients of feeds."),
    "Reader": (roles.reader, "Reads everything; changes nothing."),
}


class AccessStack(DeploymentStack):
    """Policies to attach to the roles of Fairbox's users, and the variables of their programs.

    Attributes:
        policies: by name: `Producer`, `Consumer`, `Operator`, `TokenIssuer` (where there are
            feeds), `Reader`.
    """

    def __init__(
        self,
        scope: Construct,
        part: str,
        *,
        resources: Resources,
        variables: Mapping[str, str],
    ) -> None:
        super().__init__(scope, part, description="Fairbox: policies for those who use it.")
        self._resources = resources
        self.policies: dict[str, iam.ManagedPolicy] = {}
        for name, (statements, description) in _POLICIES.items():
            if name == "TokenIssuer" and resources.feeds is None:
                continue
            self.policies[name] = self._policy(name, description, statements(resources))
            CfnOutput(self, f"{name}PolicyArn", value=self.policies[name].managed_policy_arn)
        ssm.StringParameter(
            self,
            "Variables",
            parameter_name=parameter_of(resources.name),
            string_value=self.to_json_string(dict(variables)),
            description="Fairbox: the variables of its clients.",
        )

    def consumer_of(self, topic: str) -> iam.ManagedPolicy:
        """Return the policy of the consumers of one topic, made when it is first asked for."""
        name = f"Consumer-{topic}"
        if name not in self.policies:
            permissions = roles.consumer(self._resources, topic)
            description = f"Receives from {topic}, and settles."
            self.policies[name] = self._policy(name, description, permissions)
        return self.policies[name]

    def _policy(
        self, name: str, description: str, permissions: Sequence[Permission]
    ) -> iam.ManagedPolicy:
        policy = iam.ManagedPolicy(
            self,
            name,
            description=f"Fairbox {name}: {description}",
            statements=[permission.statement for permission in permissions],
        )
        for permission in permissions:
            for rule, reason in permission.accepted:
                acknowledge(policy, rule, reason)
        return policy
