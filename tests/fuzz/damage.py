"""Items and texts as strangers might write them: valid ones with parts changed, cut or swapped."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
E = TypeVar("E", bound=Exception)
Item = dict[str, Any]
_NUMBERS: Final = (
    "-1",
    "0",
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "1.5",
    "",
    "x",
    "9" * 38,
    "9" * 5000,
    "-" + "9" * 30,
    "٣",
    "\ud800",
)
_TEXTS: Final = (
    "",
    "#",
    "ready#orders#0#0",
    "later#orders#0#0",
    "dead#a#b#c",
    "!",
    "\ud800",
    "\x00",
    "../..",
    "9999",
    "é" * 2000,
    "[" * 3000,
    "[" * 20000,
    "{}",
    "null",
)


_DEEPEST: Final = 7


def deep(levels: int) -> Item:
    """Return an attribute nested so deeply."""
    value: Item = {"S": "x"}
    for _ in range(levels):
        value = {"M": {"m": value}}
    return value


attributes: SearchStrategy[Any] = st.one_of(
    st.sampled_from(_NUMBERS).map(lambda n: {"N": n}),
    st.integers().map(lambda n: {"N": str(n)}),
    st.sampled_from(_TEXTS).map(lambda t: {"S": t}),
    st.text(max_size=40).map(lambda t: {"S": t}),
    st.binary(max_size=80).map(lambda b: {"B": b}),
    st.just({"B": "not bytes"}),
    st.just({"NULL": True}),
    st.just({"BOOL": True}),
    st.just({"L": []}),
    st.just({"M": {}}),
    st.just({"SS": ["a"]}),
    st.just({"L": [{"N": "1"}, {"S": "x"}]}),
    st.just({}),
    st.builds(deep, st.sampled_from([1, 31])),  # DynamoDB nests to 32 levels
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if len(path) > _DEEPEST:
        return found
    if isinstance(value, dict):
        for name in value:
            found += _places(value[name], (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            found += _places(inner, (*path, number))
    return found


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


@st.composite
def damaged(draw: st.DrawFn, valid: SearchStrategy[Item]) -> Item:
    """Return a valid item with one to three places changed: gone, of another type, cut, grown."""
    item = copy.deepcopy(draw(valid))
    for _ in range(draw(st.integers(1, 3))):
        places = _places(item)
        if not places:
            break
        path = draw(st.sampled_from(places))
        parent = _at(item, path[:-1])
        _change(draw, parent, path[-1])
    return item


def _change(draw: st.DrawFn, parent: Any, name: Any) -> None:
    old = parent[name]
    match draw(st.sampled_from(["gone", "other", "cut", "grown", "null"])):
        case "gone":
            del parent[name]
        case "cut" if isinstance(old, bytes | str):
            parent[name] = old[: draw(st.integers(0, max(0, len(old) - 1)))]
        case "grown" if isinstance(old, bytes):
            parent[name] = old + draw(st.binary(min_size=1, max_size=40))
        case "grown" if isinstance(old, str):
            parent[name] = old + draw(st.sampled_from(_TEXTS))
        case "null":
            parent[name] = None
        case _ if isinstance(old, str):
            parent[name] = draw(st.sampled_from(_NUMBERS + _TEXTS))
        case _ if isinstance(old, bytes):
            parent[name] = draw(st.binary(max_size=len(old) + 8))
        case _:
            parent[name] = copy.deepcopy(draw(attributes))  # it may be changed in its turn


@st.composite
def damaged_text(draw: st.DrawFn, valid: SearchStrategy[str]) -> str:
    """Return a valid text with a piece cut out, put in, doubled or replaced, or any text."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.text(max_size=200) | st.sampled_from(_TEXTS + _NUMBERS))
    text = draw(valid)
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 8)))
    middle = draw(
        st.text(max_size=4)
        | st.sampled_from(_TEXTS + _NUMBERS)
        | st.just(text[start:end] * 2)
        | st.just("")
    )
    return text[:start] + middle + text[end:]


json_values: SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(_NUMBERS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@st.composite
def damaged_json(draw: st.DrawFn, valid: SearchStrategy[Item]) -> str:
    """Return the JSON of an object with members changed, or with its text damaged."""
    value = copy.deepcopy(draw(valid))
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from([*value, "more"]))
        if draw(st.booleans()) and name in value:
            del value[name]
        else:
            value[name] = draw(json_values)
    text = json.dumps(value)
    return draw(damaged_text(st.just(text))) if draw(st.booleans()) else text


def outcome(read: Callable[[], T], *expected: type[E]) -> T | E:
    """Return what reading gave, or the error that it may raise; all else goes on up."""
    try:
        return read()
    except expected as error:
        return error
