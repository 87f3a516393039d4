"""Document paths: resolved, checked against each other, and kept by projection expressions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from .grammar import ExpressionError, Parser, Path, tokens_of
from .values import Item, Value, copy_value

Names = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Projection:
    """The paths that a projection keeps."""

    paths: tuple[Path, ...]
    names: frozenset[str]

    def keep(self, item: Item) -> Item:
        """A copy of the attributes that the paths name; absent ones are left out."""
        kept: Item = {}
        for path in self.paths:
            first = path.parts[0]
            if len(path.parts) == 1:
                if first in item:
                    kept[str(first)] = copy_value(item[str(first)])
            else:
                found = resolve(item, path)
                if found is not None:
                    _graft(kept, path.parts, copy_value(found))
        return kept


@lru_cache(maxsize=4096)
def compile_projection(text: str, names: Names) -> Projection:
    """Compile a projection expression; ExpressionError where it is refused."""
    parser = Parser(tokens_of(text), dict(names))
    paths = [parser.path()]
    while parser.accept(","):
        paths.append(parser.path())
    parser.end()
    refuse_overlaps(paths)
    return Projection(tuple(paths), frozenset(parser.used_names))


def refuse_overlaps(paths: list[Path]) -> None:
    """Refuse two paths of which one contains the other."""
    # different roots: the usual case, and no two can overlap
    if len(paths) == len({path.parts[0] for path in paths}):
        return
    for index, one in enumerate(paths):
        for other in paths[index + 1 :]:
            shorter = min(len(one.parts), len(other.parts))
            if one.parts[:shorter] == other.parts[:shorter]:
                raise ExpressionError(
                    "Two document paths overlap with each other; must remove or rewrite one of "
                    f"these paths; path one: {one}, path two: {other}"
                )


def resolve(item: Item, path: Path) -> Value | None:
    """The value at a path, or None."""
    parts = path.parts
    value = item.get(parts[0])  # type: ignore[arg-type]  # the first part is a name
    for part in parts[1:]:
        if value is None:
            return None
        # a path that does not fit the document leads nowhere, which is no error in a condition
        if part.__class__ is int:
            elements = value.get("L")
            value = elements[part] if elements is not None and part < len(elements) else None
        else:
            value = value.get("M", {}).get(part)
    return value


def _graft(kept: Item, parts: tuple[str | int, ...], value: Value) -> None:
    """Put `value` under `parts`; list elements keep their order, not their index."""
    place: Any = kept
    for part, following in pairwise(parts):
        empty: Value = {"L": []} if isinstance(following, int) else {"M": {}}
        if isinstance(part, int):
            place.append(empty)
            holder = empty
        else:
            holder = place.setdefault(part, empty)
        place = next(iter(holder.values()))

    if isinstance(parts[-1], int):
        place.append(value)
    else:
        place[parts[-1]] = value
