"""The application of the clone: one deployment, with the settings of its CDK context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_cdk import App, CfnOutput

from fairbox_cdk.components.deployment import feature_flags
from fairbox_cdk.config import DEFAULT_PROFILE, PROFILE, PROFILE_OUTPUT, config_from_context
from fairbox_cdk.fairbox import Fairbox

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fairbox_cdk.packages import PipelinePackage


def build_application(
    *,
    context: Mapping[str, Any],
    outdir: Path | None = None,
    package: PipelinePackage | None = None,
) -> App:
    """The application, ready to be synthesised.

    Args:
        context: profiles and settings; values of the CDK command line take precedence.
        outdir: folder of the cloud assembly; None: that of the CDK command line.
        package: the package of the pipeline's jobs; None: it is built if needed.

    Raises:
        ConfigError: a setting is invalid.
        AssetError: a layer cannot be built.
    """
    app = App(
        context=feature_flags() | dict(context),
        outdir=str(outdir) if outdir else None,
        analytics_reporting=False,
        tree_metadata=False,
    )
    in_force = _in_force(app, context)
    deployment = Fairbox(app, "Fairbox", settings=config_from_context(in_force), package=package)
    profile = str(in_force.get(PROFILE, DEFAULT_PROFILE))
    CfnOutput(deployment.delivery, PROFILE_OUTPUT, value=profile)
    return app


def _in_force(app: App, context: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the context with the values of the CDK command line."""
    everything = app.node.get_all_context()
    return {**context, **everything} if isinstance(everything, dict) else context
