"""Fairbox for applications of the AWS CDK: `Fairbox` is a deployment, `Config` its settings.

The CDK starts Node when it is imported, so names are imported when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairbox_cdk.assets import AssetError
    from fairbox_cdk.config import Config, ConfigError
    from fairbox_cdk.fairbox import Fairbox

__all__ = ["AssetError", "Config", "ConfigError", "Fairbox"]

_MODULES = {"AssetError": "assets", "Config": "config", "ConfigError": "config"}


def __getattr__(name: str) -> Any:
    """Return a public name from its module."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'fairbox')}"), name)
