"""One component for every function: runtime, layers, role, logs, tracing and alarms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from aws_cdk import Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from constructs import Construct

from fairbox_cdk.components import permissions as may
from fairbox_cdk.components.alarms import alarm_above
from fairbox_cdk.components.log_groups import log_group
from fairbox_cdk.components.nag import acknowledge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from fairbox_cdk.components.permissions import Permission
    from fairbox_cdk.config import Config

RUNTIME: Final = lambda_.Runtime.PYTHON_3_13
_NOT_SHIPPED: Final = ["*", "!handler.py"]
"""Of a function's folder: all but the file that is the same in every release."""
_ALARM_PERIOD: Final = Duration.minutes(5)


@dataclass(frozen=True, kw_only=True)
class Platform:
    """The parts that all functions share, in any stack.

    Attributes:
        functions: the folder of the functions' folders.
        dependencies_layer: the built folder of third-party packages.
        fairbox_layer: the built folder of the library.
    """

    config: Config
    functions: Path
    dependencies_layer: Path
    fairbox_layer: Path
    outbox: dynamodb.ITable
    deliveries: dynamodb.ITable
    alarm_topic: sns.ITopic


class FairboxFunction(Construct):
    """A Lambda function, whose handler is in the library's module `fairbox.functions.<name>`.

    Code and configuration of a function change in two calls, tens of seconds apart. The handler
    comes with the library in a layer, and the code is the same in every release: so a release is
    one call, with the versions of both layers and the environment.

    Attributes:
        function: the function itself.
        role: its own role; `allow` adds permissions.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        platform: Platform,
        name: str,
        description: str,
        memory_mb: int,
        timeout_seconds: int,
        environment: Mapping[str, str] | None = None,
        one_at_a_time: bool = False,
        may_ring_itself: bool = False,
    ) -> None:
        super().__init__(scope, id_)
        config = platform.config
        self.name = name
        group = log_group(self, "Logs", config=config)
        self.role = _role(self, group)
        reserve = one_at_a_time and config.reserve_concurrency
        self.function = lambda_.Function(
            self,
            "Function",
            code=lambda_.Code.from_asset(str(platform.functions / name), exclude=_NOT_SHIPPED),
            handler=f"fairbox.functions.{name}.handler",
            runtime=RUNTIME,
            architecture=lambda_.Architecture.ARM_64,
            description=description,
            memory_size=memory_mb,
            timeout=Duration.seconds(timeout_seconds),
            layers=_layers(Stack.of(self), platform),
            environment=_environment(platform, name) | dict(environment or {}),
            log_group=group,
            # plain text would drop the fields of a line, and end it where a value has a line feed;
            # its level stays INFO: at DEBUG the AWS SDK writes headers and bodies
            logging_format=lambda_.LoggingFormat.JSON,
            # Lambda's own lines: two or three of each invocation, which its metrics tell as well
            system_log_level_v2=lambda_.SystemLogLevel.WARN,
            role=self.role,
            tracing=lambda_.Tracing.ACTIVE if config.tracing else None,
            reserved_concurrent_executions=1 if reserve else None,
            # a visit at its time limit rings for the rest: after 16 such, Lambda would stop it
            recursive_loop=lambda_.RecursiveLoop.ALLOW if may_ring_itself else None,
        )
        if config.subnet_ids:
            _place(self.function, config)
            self.allow([may.attach_to_network()])
        _acknowledge_findings(self, config)
        self._alarm(platform.alarm_topic)

    def allow(self, permissions: Iterable[Permission]) -> None:
        """Grant `permissions` to the function."""
        for permission in permissions:
            self.role.add_to_principal_policy(permission.statement)
            for rule, reason in permission.accepted:
                acknowledge(self.role, rule, reason)

    def _alarm(self, topic: sns.ITopic) -> None:
        """Alarm on errors and throttles."""
        for what in ("Errors", "Throttles"):
            alarm_above(
                self,
                what,
                metric=self.function.metric(what, period=_ALARM_PERIOD, statistic="Sum"),
                threshold=0,
                description=f"Function {self.name}: {what.lower()} in the last 5 minutes.",
                section=f"Function {what.lower()}",
                topic=topic,
            )


def _environment(platform: Platform, name: str) -> dict[str, str]:
    """Return the variables of every function."""
    return {
        "FAIRBOX_OUTBOX_TABLE": platform.outbox.table_name,
        "FAIRBOX_DELIVERIES_TABLE": platform.deliveries.table_name,
        "POWERTOOLS_SERVICE_NAME": f"fairbox-{name}",
        "FAIRBOX_METRICS_NAMESPACE": platform.config.name,
        "POWERTOOLS_LOG_LEVEL": platform.config.log_level,
    }


def _place(function: lambda_.Function, config: Config) -> None:
    """Put a function into the settings' network."""
    resource = cast("lambda_.CfnFunction", function.node.default_child)
    resource.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
        subnet_ids=list(config.subnet_ids), security_group_ids=list(config.security_group_ids)
    )


def _role(scope: Construct, log_group: logs.LogGroup) -> iam.Role:
    """Return a role for the function's own logs; the managed policy would allow every group."""
    role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["logs:CreateLogStream", "logs:PutLogEvents"],
            resources=[log_group.log_group_arn],
        )
    )
    return role


def _layers(stack: Stack, platform: Platform) -> list[lambda_.ILayerVersion]:
    """Return the stack's own versions of the layers.

    A version's ARN changes with its content, and an imported value must not change: so stacks share
    the assets, not the versions.
    """
    wanted = {
        "FairboxLayer": (platform.fairbox_layer, "The library fairbox."),
        "DependenciesLayer": (platform.dependencies_layer, "Locked third-party packages."),
    }
    layers: list[lambda_.ILayerVersion] = []
    for id_, (folder, description) in wanted.items():
        found = stack.node.try_find_child(id_)
        layers.append(
            found
            if isinstance(found, lambda_.LayerVersion)
            else lambda_.LayerVersion(
                stack,
                id_,
                code=lambda_.Code.from_asset(str(folder)),
                compatible_runtimes=[RUNTIME],
                compatible_architectures=[lambda_.Architecture.ARM_64],
                description=description,
            )
        )
    return layers


def _acknowledge_findings(function: FairboxFunction, config: Config) -> None:
    if config.tracing:
        acknowledge(
            function.role,
            "AwsSolutions-IAM5[Resource::*]",
            "X-Ray's actions to put traces know no resource; nothing else is granted on *.",
        )
    acknowledge(
        function.function,
        "AwsSolutions-L1",
        "Python 3.13 is what the tests run and what the layers' bytecode is compiled for.",
    )
