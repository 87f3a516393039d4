"""A deployment of Fairbox as a construct, for an application of your own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from aws_cdk import Annotations, Aspects, CfnOutput, Stack, Stage, Tags
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct
from fairbox import Topic, settings
from fairbox.model.deployment import FEEDS_PART
from fairbox.model.versions import VERSION_OUTPUT

from fairbox_cdk.access import AccessStack
from fairbox_cdk.api import ApiStack
from fairbox_cdk.assets import build_folder, build_layers, library_version, source_root
from fairbox_cdk.batches import BatchesStack
from fairbox_cdk.components import permissions as may
from fairbox_cdk.components.deployment import found_place, name_deployment
from fairbox_cdk.components.encryption import CREATE, UseKey
from fairbox_cdk.components.function import Platform
from fairbox_cdk.components.roles import Resources
from fairbox_cdk.config import Config, ConfigError, read_settings
from fairbox_cdk.delivery import DeliveryStack
from fairbox_cdk.feeds import FeedsStack
from fairbox_cdk.key import KeyStack
from fairbox_cdk.monitoring import MonitoringStack
from fairbox_cdk.packages import build_package
from fairbox_cdk.pipeline import PipelineStack
from fairbox_cdk.storage import StorageStack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import Environment
    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_sns as sns

    from fairbox_cdk.components.function import FairboxFunction
    from fairbox_cdk.packages import PipelinePackage

UNSIGNED: Final = "webhooks are sent without a signature: set webhook_secrets"
SILENT: Final = "nobody is told of alarms: set alarm_email or alarm_topic_arn"
_RUNTIMES: Final = [
    lambda_.Runtime.PYTHON_3_11,
    lambda_.Runtime.PYTHON_3_12,
    lambda_.Runtime.PYTHON_3_13,
    lambda_.Runtime.PYTHON_3_14,
]
_DESTINATIONS: Final = {
    "queue_arn": ("sqs", "encryption_master_key"),
    "topic_arn": ("sns", "master_key"),
    "event_bus_arn": ("events", ""),
    "stream_arn": ("kinesis", "encryption_key"),
    "function_arn": ("lambda", ""),
}
"""By the attribute that tells what a destination is: its service, and the attribute of its key."""


class Fairbox(Construct):
    """A deployment: the stacks `NAMEStorage`, `NAMEDelivery` and so on, of setting `name`.

    Its stacks stand beside yours in one application, and `cdk deploy` deploys all of them. They
    never depend on a stack of yours, so you may grant, and add destinations, in any order.

    Attributes:
        config: the settings in force.
        outbox_table: the table of outstanding messages.
        api_url: the base address of the HTTP API.
        alarm_topic: the SNS topic that is told of alarms.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Config | Mapping[str, Any] | None = None,
        env: Environment | None = None,
        package: PipelinePackage | None = None,
    ) -> None:
        """Make the stacks.

        Args:
            scope: an application, a stage or a stack.
            id_: of the construct; names of resources come from setting `name` alone.
            settings: by name, such as `{"name": "Shop", "alarm_email": "on-call@example.com"}`;
                others have their defaults.
            env: account and region, by default those of the stack or stage around.
            package: the package of the pipeline's jobs; None: it is built if needed.

        Raises:
            ConfigError: a setting is invalid, or the application has a deployment of this name.
            AssetError: a layer cannot be built.
        """
        super().__init__(scope, id_)
        self.config = settings if isinstance(settings, Config) else read_settings(settings or {})
        place = found_place(scope, env)
        self._check_place(place)
        self._claim_name(place)
        name_deployment(self, self.config, place)

        self._make_stacks(package)

        self._warn()
        self._add_key()
        Tags.of(self).add("application", "fairbox")

    @property
    def outbox_table(self) -> dynamodb.ITable:
        """The table of outstanding messages."""
        return self.storage.outbox

    @property
    def api_url(self) -> str:
        """The base address of the HTTP API."""
        return str(self.api.http_api.api_endpoint)

    @property
    def alarm_topic(self) -> sns.ITopic:
        """The SNS topic that is told of alarms."""
        return self.storage.alarm_topic

    @property
    def alarms(self) -> list[cloudwatch.Alarm]:
        """All alarms of the deployment."""
        return [one for one in self.node.find_all() if isinstance(one, cloudwatch.Alarm)]

    def grant_publish(self, grantee: iam.IGrantable) -> None:
        """Allow to publish to every topic; a function gets `FAIRBOX_STACK` as well.

        Args:
            grantee: a function, or a role. Of two deployments, a function knows the later one:
                pass the names of the other's tables yourself.
        """
        self._grant(grantee, self.access.policies["Producer"])

    def grant_consume(self, grantee: iam.IGrantable, *, topic: str | None = None) -> None:
        """Allow to receive from pulled topics and to settle; a function gets `FAIRBOX_STACK`.

        Args:
            grantee: a function, or a role.
            topic: the only topic, one of a partitioned queue's, for users of the library; the
                routes of the HTTP API that settle know no topic. None: every topic, both ways.

        Raises:
            InvalidInput: the topic's name is malformed.
        """
        policy = self.access.consumer_of(Topic(topic).name) if topic else None
        self._grant(grantee, policy or self.access.policies["Consumer"])

    def add_library(self, function: lambda_.Function) -> None:
        """Add the layer of the library, without command line and test doubles, to a function.

        It is the version that is deployed; boto3 is that of Lambda's runtime.
        """
        stack = Stack.of(function)
        id_ = f"{self.config.name}-library"
        layer = stack.node.try_find_child(id_) or lambda_.LayerVersion(
            stack,
            id_,
            code=lambda_.Code.from_asset(str(self._library)),
            compatible_runtimes=_RUNTIMES,
            description=f"The library fairbox, {library_version(source_root())}.",
        )
        function.add_layers(layer)

    def add_destination(self, destination: Construct) -> None:
        """Allow deliveries to a queue, topic, event bus, stream or function of this application.

        The permission stands in the destination's stack, and includes the destination's key, if
        the CDK knows it. A key that is not of this account must allow it as well.

        Args:
            destination: as the CDK makes it, or imports it.

        Raises:
            TypeError: it is none of these.
            ValueError: its stack is of another account or region: setting `destinations` is for it.
        """
        arn = next((name for name in _DESTINATIONS if hasattr(destination, name)), None)
        if arn is None:
            kinds = "a queue, topic, event bus, stream or function"
            raise TypeError(f"destination is {type(destination).__name__}, expected {kinds}")
        stack = Stack.of(destination)
        home = (self.delivery.account, self.delivery.region)
        if (stack.account, stack.region) != home:
            where = f"{stack.stack_name} is of another account or region than {self.config.name}"
            raise ValueError(f"{where}: put the destination's ARN into setting destinations")

        service, key = _DESTINATIONS[arn]
        permissions = may.deliver_to_one(
            service, getattr(destination, arn), getattr(destination, key, None)
        )
        for function in self.delivery.senders_to(service):
            role = self._role_within(stack, function)
            for statement in permissions:
                role.add_to_principal_policy(statement)

    def _role_within(self, stack: Stack, function: FairboxFunction) -> iam.IRole:
        """Return a function's role as another stack knows it, which holds what is granted there."""
        id_ = f"{self.config.name}-{function.name}"
        found = stack.node.try_find_child(id_)
        return found or iam.Role.from_role_name(stack, id_, function.role.role_name)

    def _grant(self, grantee: iam.IGrantable, policy: iam.ManagedPolicy) -> None:
        principal: Any = getattr(grantee, "grant_principal", None)
        if not hasattr(principal, "add_managed_policy"):
            kind = type(grantee).__name__
            raise TypeError(f"grantee is {kind}, expected a function of yours or a role")
        principal.add_managed_policy(policy)
        if isinstance(grantee, lambda_.Function):
            grantee.add_environment(settings.STACK, self.config.name)

    def _check_place(self, place: Environment | None) -> None:
        """Refuse another account or region than that of the settings."""
        given = {key: getattr(place, key, None) for key in ("account", "region")}
        # where the CDK's own command line deploys to
        self.config.check_target(
            given["account"] or os.environ.get("CDK_DEFAULT_ACCOUNT"),
            given["region"] or os.environ.get("CDK_DEFAULT_REGION"),
        )

    def _claim_name(self, place: Environment | None) -> None:
        """Refuse a second deployment of one name and place: it would overwrite the first.

        Stages of an application are deployed each by itself, and may go to places of their own.
        """
        where = f"{getattr(place, 'account', None)}:{getattr(place, 'region', None)}"
        marker = f"fairbox:{self.config.name.lower()}:{where}"
        around = Stage.of(self) or self.node.root
        if around.node.try_find_child(marker):
            reason = f"is {self.config.name!r}, which another deployment of this application has"
            raise ConfigError("name", reason)
        Construct(around, marker)

    def _make_stacks(self, package: PipelinePackage | None) -> None:
        config = self.config
        root = source_root()
        output = build_folder(root)
        dependencies, self._library = build_layers(root, output / "layers")

        key = KeyStack(self, "Key", config=config).key if config.encryption_key == CREATE else None
        self.storage = StorageStack(self, "Storage", config=config, created_key=key)
        platform = Platform(
            config=config,
            functions=root / "functions",
            dependencies_layer=dependencies,
            fairbox_layer=self._library,
            outbox=self.storage.outbox,
            deliveries=self.storage.deliveries,
            alarm_topic=self.storage.alarm_topic,
        )

        self.feeds = (
            FeedsStack(self, FEEDS_PART, platform=platform, key=self.storage.key)
            if config.feeds
            else None
        )
        self.batches = BatchesStack(self, "Batches", platform=platform, storage=self.storage)
        self.delivery = DeliveryStack(
            self,
            "Delivery",
            platform=platform,
            storage=self.storage,
            ack_queue=self.batches.acks.queue,
            feeds=self.feeds,
        )
        # the caller's library is compared with it, by `fairbox doctor`
        CfnOutput(self.delivery, VERSION_OUTPUT, value=library_version(root))
        self.api = ApiStack(
            self,
            "Api",
            platform=platform,
            storage=self.storage,
            doorbells=self.delivery.doorbells,
            feeds=self.feeds,
        )
        self.monitoring = MonitoringStack(
            self,
            "Monitoring",
            platform=platform,
            storage=self.storage,
            batches=self.batches,
            delivery=self.delivery,
            api=self.api,
        )
        if config.pipeline:
            PipelineStack(
                self,
                "Pipeline",
                config=config,
                storage=self.storage,
                warehouse=self.storage.warehouse,
                batches=self.storage.batches,
                alarm_topic=self.storage.alarm_topic,
                package=package or build_package(root, output / "pipeline"),
            )
        self.access = AccessStack(
            self, "Access", resources=self._resources(), variables=self._variables()
        )

    def _resources(self) -> Resources:
        storage, doorbells = self.storage, self.delivery.doorbells
        return Resources(
            name=self.config.name,
            outbox=storage.outbox,
            deliveries=storage.deliveries,
            batches=storage.batches,
            bodies=storage.bodies,
            archive=storage.archive.bucket,
            doorbells=(doorbells.now, doorbells.later),
            acks=self.batches.acks.queue,
            http_api=self.api.http_api,
            feeds=self.feeds,
        )

    def _variables(self) -> dict[str, str]:
        """Return the variables of `fairbox.settings.DEPLOYED`, each also an output of its stack."""
        config, storage, delivery = self.config, self.storage, self.delivery
        by_stack: dict[Stack, dict[str, str]] = {
            storage: {
                settings.OUTBOX_TABLE: storage.outbox.table_name,
                settings.DELIVERIES_TABLE: storage.deliveries.table_name,
                settings.BATCHES_TABLE: storage.batches.table_name,
                settings.BODIES_BUCKET: storage.bodies.bucket_name,
                settings.ARCHIVE_BUCKET: storage.archive.bucket.bucket_name,
                settings.ARCHIVE_STREAM: storage.archive.stream_name,
                settings.FAILURES_BUCKET: storage.failures.bucket_name,
                settings.METRICS_NAMESPACE: config.name,
            },
            self.batches: {settings.ACK_QUEUE_URL: self.batches.acks.queue.queue_url},
            delivery: {
                settings.DOORBELL_QUEUE_URL: delivery.doorbells.now.queue_url,
                settings.LATER_QUEUE_URL: delivery.doorbells.later.queue_url,
                settings.SWEEP_FUNCTION_ARN: delivery.sweep.function.function_arn,
                settings.SMOKE_PREFIX: config.smoke_prefix,
            },
            self.api: {settings.API_URL: self.api_url},
        }
        if self.feeds is not None:
            by_stack[self.feeds] = {
                settings.FEEDS_TABLE: self.feeds.table.table_name,
                settings.FEEDS_SECRET: self.feeds.tokens.secret_arn,
                settings.FEEDS_URL: self.feeds.url,
            }

        variables: dict[str, str] = {}
        for stack, own in by_stack.items():
            variables |= own
            for variable, value in own.items():
                output = "".join(map(str.title, variable.split("_")))
                CfnOutput(stack, output, value=value, description=variable)
        return variables

    def _warn(self) -> None:
        if self.config.silent:
            Annotations.of(self.storage).add_warning_v2("fairbox:silent", SILENT)
        if not self.config.webhook_secrets:
            Annotations.of(self.delivery).add_info(UNSIGNED)

    def _add_key(self) -> None:
        """Let every policy of the deployment use the keys that its data lie under."""
        own = [self.storage.key.key_arn] if self.storage.key else []
        keys = [*own, *self.config.other_keys]
        if keys:
            Aspects.of(self).add(UseKey(keys))
