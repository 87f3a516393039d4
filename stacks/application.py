"""The application: the stacks, wired together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_cdk import App, Aspects, CfnOutput, Tags
from fairbox.model.item_versions import VERSION_OUTPUT

from stacks.access import AccessStack
from stacks.api import ApiStack
from stacks.assets import build_layers, library_version
from stacks.batches import BatchesStack
from stacks.components.encryption import CREATE, UseKey
from stacks.components.function import Platform
from stacks.components.roles import Resources
from stacks.config import config_from_context
from stacks.delivery import DeliveryStack
from stacks.key import KeyStack
from stacks.monitoring import MonitoringStack
from stacks.packages import build_package
from stacks.pipeline import PipelineStack
from stacks.storage import StorageStack

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stacks.packages import PipelinePackage


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
    config = config_from_context(_in_force(app, context))
    dependencies, library = build_layers(root, root / "build" / "layers")
    creates = config.encryption_key == CREATE
    created = KeyStack(app, "FairboxKey", config=config).key if creates else None
    storage = StorageStack(app, "FairboxStorage", config=config, created_key=created)
    platform = Platform(
        config=config,
        functions=root / "functions",
        dependencies_layer=dependencies,
        fairbox_layer=library,
        outbox=storage.outbox,
        deliveries=storage.deliveries,
        alarm_topic=storage.alarm_topic,
    )
    batches = BatchesStack(app, "FairboxBatches", platform=platform, storage=storage)
    delivery = DeliveryStack(
        app,
        "FairboxDelivery",
        platform=platform,
        storage=storage,
        ack_queue=batches.acks.queue,
    )
    # what `fairbox doctor` compares the caller's library with
    CfnOutput(delivery, VERSION_OUTPUT, value=library_version(root))
    api = ApiStack(
        app,
        "FairboxApi",
        platform=platform,
        storage=storage,
        doorbells=delivery.doorbells,
    )
    MonitoringStack(
        app,
        "FairboxMonitoring",
        platform=platform,
        storage=storage,
        batches=batches,
        delivery=delivery,
        api=api,
    )
    if config.pipeline:
        PipelineStack(
            app,
            "FairboxPipeline",
            config=config,
            storage=storage,
            warehouse=storage.warehouse,
            batches=storage.batches,
            alarm_topic=storage.alarm_topic,
            package=package or build_package(root, root / "build" / "pipeline"),
        )
    AccessStack(
        app,
        "FairboxAccess",
        resources=Resources(
            outbox=storage.outbox,
            deliveries=storage.deliveries,
            batches=storage.batches,
            bodies=storage.bodies,
            archive=storage.archive.bucket,
            doorbells=(delivery.doorbells.now, delivery.doorbells.later),
            acks=batches.acks.queue,
            http_api=api.http_api,
        ),
    )
    keys = [*([storage.key.key_arn] if storage.key else []), *config.other_keys]
    if keys:
        Aspects.of(app).add(UseKey(keys))
    Tags.of(app).add("application", "fairbox")
    return app


def _in_force(app: App, context: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the context with the values of the CDK command line."""
    everything = app.node.get_all_context()
    return {**context, **everything} if isinstance(everything, dict) else context
