"""Stacks of a synthesised application: read from a cloud assembly, stored as one JSON file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parent.parent.parent
STORED: Final = ROOT / "tests/fixtures/templates"
"""The templates of released versions, as `VERSION.json`."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One stack of an application.

    Attributes:
        needs: names of the stacks that are deployed before it.
        sizes: bytes of each asset's files, unzipped, by object key; empty if stored.
    """

    name: str
    template: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def resources(self) -> Mapping[str, Mapping[str, Any]]:
        """The resources by logical id."""
        found: Mapping[str, Mapping[str, Any]] = self.template.get("Resources", {})
        return found


Application = tuple[Stack, ...]
"""Stacks in the order in which `cdk deploy --all` deploys them."""


def in_order(stacks: Iterable[Stack]) -> Application:
    """Return the stacks with each after all that it needs.

    Raises:
        ValueError: stacks need each other.
    """
    waiting = {stack.name: stack for stack in stacks}
    ordered: list[Stack] = []
    while waiting:
        ready = [s for s in waiting.values() if not set(s.needs) & waiting.keys()]
        if not ready:
            raise ValueError(f"stacks need each other: {', '.join(waiting)}")
        ordered += [waiting.pop(stack.name) for stack in ready]
    return tuple(ordered)


def read_assembly(folder: Path) -> Application:
    """Read the stacks of a cloud assembly."""
    artifacts = json.loads((folder / "manifest.json").read_text("utf-8"))["artifacts"]
    names = {
        id_: artifact["properties"].get("stackName", id_)
        for id_, artifact in artifacts.items()
        if artifact["type"] == "aws:cloudformation:stack"
    }
    return in_order(
        Stack(
            name=name,
            template=json.loads(
                (folder / artifacts[id_]["properties"]["templateFile"]).read_text("utf-8")
            ),
            needs=tuple(names[one] for one in artifacts[id_]["dependencies"] if one in names),
            sizes=dict(_sizes(folder, folder / f"{id_}.assets.json")),
        )
        for id_, name in names.items()
    )


def _sizes(folder: Path, manifest: Path) -> Iterator[tuple[str, int]]:
    if not manifest.is_file():
        return
    for file in json.loads(manifest.read_text("utf-8")).get("files", {}).values():
        if file["source"].get("packaging") != "zip":
            continue
        source = folder / file["source"]["path"]
        size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
        for destination in file["destinations"].values():
            yield destination["objectKey"], size


def read_stored(path: Path) -> Application:
    """Read the stacks of a file of `STORED`."""
    return in_order(
        Stack(name=one["name"], template=one["template"], needs=tuple(one["needs"]))
        for one in json.loads(path.read_text("utf-8"))
    )


def previous_release(version: str) -> Path:
    """Return the file of the newest release before a version.

    Raises:
        FileNotFoundError: there is none.
    """
    older = [path for path in STORED.glob("*.json") if _number(path.stem) < _number(version)]
    if not older:
        raise FileNotFoundError(f"{STORED} has no release before {version}")
    return max(older, key=lambda path: _number(path.stem))


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def store(application: Application, path: Path) -> None:
    """Write the stacks into one file, a line for each."""
    lines = [
        json.dumps(
            {"name": stack.name, "needs": stack.needs, "template": stack.template},
            separators=(",", ":"),
        )
        for stack in application
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
