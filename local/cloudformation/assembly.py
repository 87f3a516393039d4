"""A cloud assembly: every stack's template and the folders of its assets."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from local.workspace import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

AWS_ONLY = "Pipeline"
"""End of the names of stacks that do not run here: the pipeline's jobs are commands."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One stack's template and the folders of its assets by object key."""

    name: str
    template: Mapping[str, Any]
    assets: Mapping[str, Path]


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource of a template, its properties not resolved."""

    stack: str
    logical_id: str
    type: str
    properties: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """The stacks of one cloud assembly, in the order of its manifest, without `AWS_ONLY`."""

    folder: Path
    stacks: tuple[Stack, ...]

    @classmethod
    def load(cls, folder: Path) -> Assembly:
        """Read `manifest.json`, nested assemblies included.

        Raises:
            LocalError: the folder holds no assembly.
        """
        manifest = folder / "manifest.json"
        if not manifest.is_file():
            raise LocalError(f"{folder} holds no synthesised application: make synth")
        return cls(folder=folder, stacks=tuple(_stacks(folder)))

    @property
    def assets(self) -> dict[str, Path]:
        """Folder or file of every asset, by object key."""
        return {key: path for stack in self.stacks for key, path in stack.assets.items()}


def _stacks(folder: Path) -> Iterator[Stack]:
    artifacts = json.loads((folder / "manifest.json").read_text("utf-8")).get("artifacts", {})
    for name, artifact in artifacts.items():
        properties = artifact.get("properties", {})
        if artifact["type"] == "cdk:cloud-assembly":
            yield from _stacks(folder / properties["directoryName"])
        elif artifact["type"] == "aws:cloudformation:stack":
            template = folder / properties["templateFile"]
            stack = properties.get("stackName", name)
            if stack.endswith(AWS_ONLY):
                continue
            yield Stack(
                name=stack,
                template=json.loads(template.read_text("utf-8")),
                assets=_assets(folder, template.name.removesuffix(".template.json")),
            )


def _assets(folder: Path, stack: str) -> dict[str, Path]:
    manifest = folder / f"{stack}.assets.json"
    if not manifest.is_file():
        return {}
    files = json.loads(manifest.read_text("utf-8")).get("files", {})
    return {
        destination["objectKey"]: folder / file["source"]["path"]
        for file in files.values()
        if "path" in file["source"]
        for destination in file["destinations"].values()
    }
