"""Changes of a deployment: the resources that templates add, change, replace or remove."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KINDS: Final = ("added", "changed", "replaced", "removed")
_REGION: Final = "us-east-1"


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The changes of one stack.

    Attributes:
        stack: its name.
        resources: (type, logical id) by kind of change.
        outputs: whether outputs change.
    """

    stack: str
    resources: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    outputs: bool = False

    def lines(self) -> Iterator[str]:
        """Yield a line for the stack, and one for each resource that is replaced or removed."""
        counts = [f"{len(self.resources[k])} {k}" for k in KINDS if self.resources.get(k)]
        if not counts:
            counts = ["outputs changed" if self.outputs else "no change"]
        yield f"{self.stack}: {', '.join(counts)}"
        for kind in ("replaced", "removed"):
            for type_, id_ in self.resources.get(kind, ()):
                yield f"  {kind}: {type_} {id_}"


def changes_of(
    stack: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Changes:
    """Compare two templates of a stack; None: it does not exist."""
    old, new = ((template or {}).get("Resources", {}) for template in (before, after))
    found: dict[str, list[tuple[str, str]]] = {kind: [] for kind in KINDS}
    for id_ in sorted({*old, *new}):
        kind = _kind(old.get(id_), new.get(id_))
        if kind is not None:
            found[kind].append((new.get(id_, old.get(id_))["Type"], id_))
    outputs = _outputs(before) != _outputs(after)
    resources = {kind: tuple(ones) for kind, ones in found.items()}
    return Changes(stack=stack, resources=resources, outputs=outputs)


def _outputs(template: Mapping[str, Any] | None) -> Any:
    return (template or {}).get("Outputs", {})


def _kind(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str | None:
    if old is None or new is None:
        return "added" if old is None else "removed"
    if old["Type"] != new["Type"]:
        return "replaced"
    before, after = old.get("Properties", {}), new.get("Properties", {})
    if _same(before, after):
        return None if _same(old, new) else "changed"
    paths = create_only(new["Type"])
    replaced = any(not _same(_at(before, path), _at(after, path)) for path in paths)
    return "replaced" if replaced else "changed"


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _at(properties: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        properties = properties.get(name) if isinstance(properties, dict) else None
    return properties


@cache
def create_only(type_: str) -> tuple[tuple[str, ...], ...]:
    """Return the paths of the properties whose change replaces a resource of a type."""
    # imported where it is used: its schemas take two seconds to load
    from cfnlint.schema.manager import (  # noqa: PLC0415
        PROVIDER_SCHEMA_MANAGER,
        ResourceNotFoundError,
    )

    try:
        schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema(_REGION, type_).schema
    except ResourceNotFoundError:
        return ()
    paths = schema.get("createOnlyProperties", ())
    return tuple(tuple(path.removeprefix("/properties/").split("/")) for path in paths)
