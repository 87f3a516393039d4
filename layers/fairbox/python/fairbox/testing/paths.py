"""Document paths: resolved, checked against each other, and kept by projection expressions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from .grammar import ExpressionError, Parser, Path, tokens_of
from .values import Item, Value, copy_value

if TYPE_CHECKING:
    from collections.abc import Iterable

Names = tuple[tuple[str, str], ...]


Below = dict[str | int, "Below | None"]
"""The parts of a document that a projection keeps, by part of a path; None: the whole."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The paths that a projection keeps, as a tree, and the placeholders that it uses."""

    tree: Below
    names: frozenset[str]

    def keep(self, item: Item) -> Item:
        """A copy of the attributes that the paths name; absent ones are left out."""
        return {
            str(name): kept
            for name, below in self.tree.items()
            if name in item and (kept := _kept(item[str(name)], below))
        }


def _kept(value: Value, below: Below | None) -> Value | None:
    """A copy of what is kept of a value; None: nothing of it is there."""
    if below is None:
        return copy_value(value)

    # an element has one place however many paths lead into it, and elements keep their order
    indexes = sorted(part for part in below if isinstance(part, int))
    elements = value.get("L", ())
    found = [_kept(elements[n], below[n]) for n in indexes if n < len(elements)]
    if some := [one for one in found if one is not None]:
        return {"L": some}

    fields = value.get("M", {})
    kept = {
        part: one
        for part, rest in below.items()
        if isinstance(part, str) and part in fields and (one := _kept(fields[part], rest))
    }
    return {"M": kept} if kept else None


@lru_cache(maxsize=4096)
def compile_projection(text: str, names: Names) -> Projection:
    """Compile a projection expression; ExpressionError where it is refused."""
    parser = Parser(tokens_of(text), dict(names))
    paths = [parser.path()]
    while parser.accept(","):
        paths.append(parser.path())
    parser.end()
    refuse_overlaps(paths)
    return projection(paths, frozenset(parser.used_names))


def projection(paths: Iterable[Path], names: frozenset[str]) -> Projection:
    """Return what keeps these paths, none of which contains another."""
    tree: Below = {}
    for path in paths:
        place = tree
        for part in path.parts[:-1]:
            place = cast("Below", place.setdefault(part, {}))
        place[path.parts[-1]] = None
    return Projection(tree, names)


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
