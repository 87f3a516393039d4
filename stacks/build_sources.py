"""Puts the sources that a deployment consists of into the package, beside its code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = (
    "functions",
    "layers/dependencies/requirements.lock",
    "layers/fairbox/pyproject.toml",
    "layers/fairbox/python/fairbox",
    "pipeline/fairbox_pipeline",
    "pipeline/requirements.lock",
    "pipeline/submit.py",
)


class Sources(BuildHookInterface):  # type: ignore[misc] # hatchling is the builder's own
    """A source distribution holds them as the wheel does, so that a wheel can be made of it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add each one under its path in the clone."""
        root = Path(self.root)
        packed = root / "fairbox_cdk/sources"
        if version == "editable" or packed.is_dir():
            return
        for source in SOURCES:
            build_data["force_include"][str(root.parent / source)] = f"fairbox_cdk/sources/{source}"
