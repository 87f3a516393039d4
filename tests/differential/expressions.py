"""Expressions at random: conditions, updates, projections and key conditions, with placeholders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.differential.values import ANY, TEXTS, mostly, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ATTRIBUTES = {
    "n": "N", "s": "S", "b": "B", "m": "M", "l": "L", "ss": "SS", "ns": "NS", "bs": "BS",
    "t": "BOOL", "z": "NULL", "q": "S", "k": "N", "gone": "S", "status": "S", "a-b": "N",
}  # fmt: skip
"""Attributes of items, with the kind that they usually have. `status` is a reserved word."""
PATHS = ("m.a", "m.b", "m.status", "l[0]", "l[1]", "l[9]", "m.l[0]", "n.a", "m.a.b", "l[0].a")
COMPARATORS = ("=", "<>", "<", "<=", ">", ">=")
TYPE_NAMES = ("S", "N", "B", "SS", "NS", "BS", "M", "L", "BOOL", "NULL", "X", "")
_WORD = {"status": False, "a-b": False}  # names that need a placeholder


@dataclass
class Draft:
    """A request's placeholders while its expressions are drawn."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    names: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def one(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def chance(self, of: int) -> bool:
        """Return True once of `of`; False is the simpler."""
        return bool(self.draw(st.integers(1, of)) == of)

    def value(self, strategy: st.SearchStrategy[Any]) -> str:
        ref = f":v{len(self.values)}"
        self.values[ref] = self.draw(strategy)
        return ref

    def word(self, name: str) -> str:
        """Return a name as it stands, or behind a placeholder."""
        plain = _WORD.get(name, True)
        if self.chance(4) if plain else not self.chance(12):
            ref = f"#n{len(self.names)}"
            self.names[ref] = name
            return ref
        return name

    def path(self) -> str:
        """Return a document path; nested once of four."""
        if self.chance(4):
            text: str = self.one(PATHS)
            head, dot, tail = text.partition(".")
            return f"{head}{dot}{self.word(tail)}" if tail.isalpha() else text
        return self.word(self.one(sorted(ATTRIBUTES)))

    def operand(self, kind: str = "") -> str:
        if self.chance(6):
            return self.one(["size({})", "{}"]).format(self.path())  # type: ignore[no-any-return]
        return self.value(mostly(value_of(*([kind] if kind else [])), ANY))

    def arguments(self) -> dict[str, Any]:
        """Return the parameters of the placeholders; now and then one too many or too few."""
        names, values = dict(self.names), dict(self.values)
        if self.chance(40):
            self.one([names, values])[self.one(["#more", ":more"])] = self.one(["x", {"S": "x"}])
            names = {k: v for k, v in names.items() if isinstance(v, str)}
            values = {k: v for k, v in values.items() if isinstance(v, dict)}
        if values and self.chance(40):
            del values[self.one(sorted(values))]
        given = {"ExpressionAttributeNames": names, "ExpressionAttributeValues": values}
        return {key: value for key, value in given.items() if value}


def condition(draft: Draft, depth: int = 2) -> str:
    """Return a condition or filter expression."""
    if depth and draft.chance(3):
        left, right = condition(draft, depth - 1), condition(draft, depth - 1)
        form = draft.one(["{} AND {}", "{} OR {}", "({} OR {})", "NOT {} AND {}", "NOT ({} OR {})"])
        return str(form.format(left, right))
    return str(draft.one([_comparison, _function, _function, _range])(draft))


def _comparison(draft: Draft) -> str:
    name = draft.one(sorted(ATTRIBUTES))
    kind = ATTRIBUTES[name]
    left = draft.path() if draft.chance(4) else draft.word(name)
    return f"{left} {draft.one(COMPARATORS)} {draft.operand(kind)}"


def _range(draft: Draft) -> str:
    kind = draft.one(["N", "S", "B"])
    if draft.chance(2):
        options = ", ".join(draft.operand() for _ in range(draft.draw(st.integers(1, 3))))
        return f"{draft.path()} IN ({options})"
    return f"{draft.path()} BETWEEN {draft.operand(kind)} AND {draft.operand(kind)}"


def _function(draft: Draft) -> str:
    name = draft.one(
        ["attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains"]
    )
    if draft.chance(40):
        name = draft.one(["exists", "Contains", "size"])
    if name in ("attribute_exists", "attribute_not_exists"):
        return f"{name}({draft.path()})"
    if name == "attribute_type":
        kinds = st.sampled_from(TYPE_NAMES).map(lambda kind: {"S": kind})
        return f"{name}({draft.path()}, {draft.value(mostly(kinds, ANY))})"
    return f"{name}({draft.path()}, {draft.operand('S')})"


def update(draft: Draft) -> str:
    """Return an update expression of one to three clauses."""
    clauses = []
    for word in draft.draw(
        st.lists(st.sampled_from(["SET", "REMOVE", "ADD", "DELETE"]), min_size=1, max_size=3)
    ):
        count = draft.draw(st.integers(1, 3))
        clauses.append(f"{word} {', '.join(_action(draft, word) for _ in range(count))}")
    return " ".join(clauses)


def _action(draft: Draft, word: str) -> str:
    if word == "SET":
        path = draft.word(draft.one(["pk", "sk"])) if draft.chance(40) else draft.path()
        return f"{path} = {_set_value(draft)}"
    if word == "REMOVE":
        return draft.path()
    kind = draft.one(["N", "SS", "NS", "BS"] if word == "ADD" else ["SS", "NS", "BS"])
    names = [name for name, of in ATTRIBUTES.items() if of == kind]
    path = draft.path() if draft.chance(4) else draft.word(draft.one(names))
    return f"{path} {draft.value(mostly(value_of(kind), ANY))}"


def _set_value(draft: Draft) -> str:
    form = draft.one(
        ["value", "value", "value", "plus", "minus", "path", "if_not_exists", "list_append"]
    )
    if form == "value":
        return draft.value(ANY)
    if form == "path":
        return draft.path()
    if form == "if_not_exists":
        return f"if_not_exists({draft.path()}, {draft.value(ANY)})"
    if form == "list_append":
        one, other = draft.path(), draft.value(mostly(value_of("L"), ANY))
        return f"list_append({one}, {other})"
    number = draft.value(mostly(value_of("N"), ANY))
    default = draft.value(value_of("N"))
    left = draft.one([draft.word("n"), draft.path(), f"if_not_exists(n, {default})"])
    if default not in left:
        del draft.values[default]
    return f"{left} {'+' if form == 'plus' else '-'} {number}"


def projection(draft: Draft) -> str:
    """Return a projection expression."""
    return ", ".join(draft.path() for _ in range(draft.draw(st.integers(1, 3))))


def key_condition(draft: Draft, hash_name: str, range_name: str | None, keys: KeyValues) -> str:
    """Return a key condition on these attributes."""
    first = f"{draft.word(hash_name)} = {draft.value(keys.hash_values)}"
    if range_name is None or draft.chance(4):
        return first if not draft.chance(20) else f"{first} OR {first}"
    name = draft.word(range_name)
    form = draft.one(["compare", "compare", "between", "begins"])
    if form == "between":
        second = f"{name} BETWEEN {_key(draft, keys)} AND {_key(draft, keys)}"
    elif form == "begins":
        prefix = st.sampled_from(TEXTS).map(lambda text: {"S": text})
        second = f"begins_with({name}, {draft.value(mostly(prefix, keys.range_values))})"
    else:
        sign = draft.one(["=", "<", "<=", ">", ">=", "<>"])
        second = f"{name} {sign} {_key(draft, keys)}"
    return f"{second} AND {first}" if draft.chance(6) else f"{first} AND {second}"


def _key(draft: Draft, keys: KeyValues) -> str:
    return draft.value(keys.range_values)


@dataclass(frozen=True)
class KeyValues:
    """Values for the two keys of a table or index."""

    hash_values: st.SearchStrategy[Any]
    range_values: st.SearchStrategy[Any]
