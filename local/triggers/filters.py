"""Event filters of an event source mapping: Lambda's filter rules over DynamoDB records.

Only the operators that the templates use are known: `prefix` and `exists`. Rules look at leaves
only, as Lambda's do: `exists` on an object that has children finds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from local.triggers.properties import Properties

_LEAF: Final = "a string, a number, true, false, null or an operator"
MAX_FILTERS: Final = 5
MAX_PATTERN: Final = 4096
RECORD_KEYS: Final = frozenset(
    {
        "awsRegion",
        "dynamodb",
        "eventID",
        "eventName",
        "eventSource",
        "eventSourceARN",
        "eventVersion",
        "userIdentity",
    }
)

Matcher = Callable[[Any], bool]
_ABSENT: Final = object()


def compile_criteria(criteria: Properties) -> Matcher | None:
    """Return one matcher for `FilterCriteria`, whose patterns are OR-ed; None if there are none.

    Raises `ValueError` for what a mapping would refuse, or what is not known here.
    """
    patterns: list[Matcher] = []
    filters = criteria.groups("Filters")
    if len(filters) > MAX_FILTERS:
        raise criteria.error("Filters", f"has {len(filters)} entries: at most {MAX_FILTERS}")
    for one in filters:
        try:
            patterns.append(compile_pattern(one.text("Pattern")))
        except ValueError as error:
            raise one.error("Pattern", f"is refused: {error}") from error
    if not patterns:
        return None
    if len(patterns) == 1:
        return patterns[0]
    return lambda event: any(pattern(event) for pattern in patterns)


def compile_pattern(text: str) -> Matcher:
    """Return a matcher of record events for one pattern.

    Raises `ValueError` naming the rule that is not known.
    """
    if len(text) > MAX_PATTERN:
        raise ValueError(f"the pattern has {len(text)} characters: at most {MAX_PATTERN}")
    try:
        pattern = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"the pattern is not JSON: {error}") from error
    if not isinstance(pattern, dict) or not pattern:
        raise ValueError("the pattern must be a JSON object that names a key")
    unknown = set(pattern) - RECORD_KEYS
    if unknown:
        raise ValueError(f"{min(unknown)!r} is no key of a DynamoDB record")
    return _object(pattern)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} stands twice in one object")
    return dict(pairs)


def _object(pattern: dict[str, Any]) -> Matcher:
    """All keys of a pattern must match."""
    parts: list[Matcher] = []
    for name, rule in pattern.items():
        if name.startswith("$"):
            raise ValueError(f"the operator {name!r} is not known")
        if isinstance(rule, dict):
            if not rule:
                raise ValueError(f"{name!r} holds an empty object")
            parts.append(_at(name, _object(rule)))
        elif isinstance(rule, list) and rule:
            parts.append(_at(name, _leaf(rule)))
        else:
            raise ValueError(f"{name!r} must hold an object or a list that is not empty")
    if len(parts) == 1:
        return parts[0]
    return lambda event: all(part(event) for part in parts)


def _at(name: str, inner: Matcher) -> Matcher:
    def match(event: Any) -> bool:
        return inner(event.get(name, _ABSENT) if isinstance(event, dict) else _ABSENT)

    return match


def _leaf(rules: list[Any]) -> Matcher:
    """One rule of a leaf must match one of the leaf's values (a list counts as its elements)."""
    tests = [_rule(rule) for rule in rules]

    def match(value: Any) -> bool:
        if isinstance(value, dict):
            value = _ABSENT
        if isinstance(value, list):
            return any(test(one) for test in tests for one in value or [_ABSENT])
        return any(test(value) for test in tests)

    return match


def _rule(rule: Any) -> Matcher:
    if isinstance(rule, dict):
        if len(rule) != 1:
            raise ValueError(f"an operator must stand alone: {sorted(rule)}")
        ((operator, operand),) = rule.items()
        if operator not in _OPERATORS:
            raise ValueError(f"the operator {operator!r} is not known")
        return _OPERATORS[operator](operand)
    return _equals(rule)


def _equals(wanted: Any) -> Matcher:
    if not isinstance(wanted, str | int | float | None):
        raise ValueError(f"{wanted!r} stands where {_LEAF} is expected")  # noqa: TRY004 - a refusal of input
    if wanted is None or isinstance(wanted, bool):
        return lambda value: value is wanted
    if isinstance(wanted, str):
        return lambda value: isinstance(value, str) and value == wanted
    return lambda value: _is_number(value) and value == wanted


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _prefix(operand: Any) -> Matcher:
    if not isinstance(operand, str):
        raise ValueError(f"'prefix' takes a string, not {operand!r}")  # noqa: TRY004 - a refusal of input
    return lambda value: isinstance(value, str) and value.startswith(operand)


def _exists(operand: Any) -> Matcher:
    if not isinstance(operand, bool):
        raise ValueError(f"'exists' takes true or false, not {operand!r}")  # noqa: TRY004 - a refusal of input
    return lambda value: (value is not _ABSENT) is operand


_OPERATORS: Final[dict[str, Callable[[Any], Matcher]]] = {
    "prefix": _prefix,
    "exists": _exists,
}
