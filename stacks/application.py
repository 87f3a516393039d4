"""The application: the stacks, wired together."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from aws_cdk import Annotations, App, Aspects, CfnOutput, Tags
from fairbox import settings
from fairbox.model.item_versions import VERSION_OUTPUT

from stacks.access import AccessStack
from stacks.api import ApiStack
from stacks.assets import build_layers, library_version
from stacks.batches import BatchesStack
from stacks.components.deployment import name_deployment
from stacks.components.encryption import CREATE, UseKey
from stacks.components.function import Platform
from stacks.components.roles import Resources
from stacks.config import DEFAULT_PROFILE, PROFILE, PROFILE_OUTPUT, config_from_context
from stacks.delivery import DeliveryStack
from stacks.feeds import FeedsStack
from stacks.key import KeyStack
from stacks.monitoring import MonitoringStack
from stacks.packages import build_package
from stacks.pipeline import PipelineStack
from stacks.storage import StorageStack

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from aws_cdk import Stack

    from stacks.config import Config
    from stacks.packages import PipelinePackage

UNSIGNED: Final = "webhooks are sent without a signature: set webhook_secrets"
SILENT: Final = "nobody is told of alarms: set alarm_email or alarm_topic_arn"


def build_application(
    root: Path,
    *,
    context: Mapping[str, Any],
    outdir: Path | None = None,
    package: PipelinePackage | None = None,
) -> App:
    """The application of the project in folder `root`, ready to be synthesised.

    Args:
        root: the folder of `functions/`, `layers/` and `build/`.
        context: feature flags and settings; values of the CDK command line take precedence.
        outdir: folder of the cloud assembly; None: that of the CDK command line.
        package: the package of the pipeline's jobs; None: it is built if needed.

    Raises:
        ConfigError: a setting is invalid.
        AssetError: a layer cannot be built.
    """
    app = App(
        context=dict(context),
        outdir=str(outdir) if outdir else None,
        analytics_reporting=False,
        tree_metadata=False,
    )
    in_force = _in_force(app, context)
    config = config_from_context(in_force)
    # where the CDK's own command line deploys to
    config.check_target(*map(os.environ.get, ("CDK_DEFAULT_ACCOUNT", "CDK_DEFAULT_REGION")))
    name_deployment(app, config)
    dependencies, library = build_layers(root, root / "build" / "layers")
    creates = config.encryption_key == CREATE
    created = KeyStack(app, f"{config.name}Key", config=config).key if creates else None
    storage = StorageStack(app, f"{config.name}Storage", config=config, created_key=created)
    platform = Platform(
        config=config,
        functions=root / "functions",
        dependencies_layer=dependencies,
        fairbox_layer=library,
        outbox=storage.outbox,
        deliveries=storage.deliveries,
        alarm_topic=storage.alarm_topic,
    )
    feeds = (
        FeedsStack(app, f"{config.name}Feeds", platform=platform, key=storage.key)
        if config.feeds
        else None
    )
    batches = BatchesStack(app, f"{config.name}Batches", platform=platform, storage=storage)
    delivery = DeliveryStack(
        app,
        f"{config.name}Delivery",
        platform=platform,
        storage=storage,
        ack_queue=batches.acks.queue,
        feeds=feeds,
    )
    # what `fairbox doctor` compares the caller's library with
    CfnOutput(delivery, VERSION_OUTPUT, value=library_version(root))
    CfnOutput(delivery, PROFILE_OUTPUT, value=str(in_force.get(PROFILE, DEFAULT_PROFILE)))
    api = ApiStack(
        app,
        f"{config.name}Api",
        platform=platform,
        storage=storage,
        doorbells=delivery.doorbells,
        feeds=feeds,
    )
    MonitoringStack(
        app,
        f"{config.name}Monitoring",
        platform=platform,
        storage=storage,
        batches=batches,
        delivery=delivery,
        api=api,
    )
    if config.pipeline:
        PipelineStack(
            app,
            f"{config.name}Pipeline",
            config=config,
            storage=storage,
            warehouse=storage.warehouse,
            batches=storage.batches,
            alarm_topic=storage.alarm_topic,
            package=package or build_package(root, root / "build" / "pipeline"),
        )
    AccessStack(
        app,
        f"{config.name}Access",
        resources=Resources(
            name=config.name,
            outbox=storage.outbox,
            deliveries=storage.deliveries,
            batches=storage.batches,
            bodies=storage.bodies,
            archive=storage.archive.bucket,
            doorbells=(delivery.doorbells.now, delivery.doorbells.later),
            acks=batches.acks.queue,
            http_api=api.http_api,
            feeds=feeds,
        ),
        variables=_variables(
            config, storage=storage, batches=batches, delivery=delivery, api=api, feeds=feeds
        ),
    )
    if config.silent:
        Annotations.of(storage).add_warning_v2("fairbox:silent", SILENT)
    if not config.webhook_secrets:
        Annotations.of(delivery).add_info(UNSIGNED)
    keys = [*([storage.key.key_arn] if storage.key else []), *config.other_keys]
    if keys:
        Aspects.of(app).add(UseKey(keys))
    Tags.of(app).add("application", "fairbox")
    return app


def _variables(
    config: Config,
    *,
    storage: StorageStack,
    batches: BatchesStack,
    delivery: DeliveryStack,
    api: ApiStack,
    feeds: FeedsStack | None,
) -> dict[str, str]:
    """Return the variables of `fairbox.settings.DEPLOYED`, each also an output of its stack."""
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
        batches: {settings.ACK_QUEUE_URL: batches.acks.queue.queue_url},
        delivery: {
            settings.DOORBELL_QUEUE_URL: delivery.doorbells.now.queue_url,
            settings.LATER_QUEUE_URL: delivery.doorbells.later.queue_url,
            settings.SWEEP_FUNCTION_ARN: delivery.sweep.function.function_arn,
            settings.SMOKE_PREFIX: config.smoke_prefix,
        },
        api: {settings.API_URL: api.http_api.api_endpoint},
    }
    if feeds is not None:
        by_stack[feeds] = {
            settings.FEEDS_TABLE: feeds.table.table_name,
            settings.FEEDS_SECRET: feeds.tokens.secret_arn,
            settings.FEEDS_URL: feeds.url,
        }
    variables: dict[str, str] = {}
    for stack, own in by_stack.items():
        variables |= own
        for variable, value in own.items():
            output = "".join(map(str.title, variable.split("_")))
            CfnOutput(stack, output, value=value, description=variable)
    return variables


def _in_force(app: App, context: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the context with the values of the CDK command line."""
    everything = app.node.get_all_context()
    return {**context, **everything} if isinstance(everything, dict) else context
