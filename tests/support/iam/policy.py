"""The decision that IAM takes on a request, by the statements of one principal.

It knows what the templates use: `Allow` and `Deny`, actions and resources with `*` and `?`, and
the condition operators of `_OPERATORS` with `ForAllValues`, `ForAnyValue` and `IfExists`.
Everything else raises `NotUnderstood`, so that no statement is taken for what it is not:
`NotAction`, `NotResource`, `Principal`, policy variables, other operators.

Not decided here: policies of resources and of keys, permission boundaries, session policies and the
organisation's. All of them can only take rights away from a principal of the same account, except
for the policy of a key, which gives the account's principals what their own policies say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tests.support.iam.requests import Request

_KNOWN: Final = {"Sid", "Effect", "Action", "Resource", "Condition"}


class NotUnderstood(Exception):
    """A statement holds an element that this evaluator does not know; the message names it."""


@dataclass(frozen=True, order=True)
class Grant:
    """One action on one resource of an allowing statement, as written there; `sid` names it."""

    action: str
    resource: str
    sid: str = ""

    def __str__(self) -> str:
        return f"{self.action} on {self.resource}" + (f" ({self.sid})" if self.sid else "")


@dataclass(frozen=True)
class Decision:
    """Whether a request is allowed, and the grants that allow it; none where it is denied."""

    grants: frozenset[Grant]

    @property
    def allowed(self) -> bool:
        """Whether the request is allowed."""
        return bool(self.grants)


def decide(statements: Iterable[Mapping[str, Any]], request: Request) -> Decision:
    """Decide a request: a denial wins, and without an allowing statement it is denied.

    Raises:
        NotUnderstood: a statement holds an element that is not known here.
    """
    grants: set[Grant] = set()
    for statement in statements:
        found = set(_matching(statement, request))
        if found and statement["Effect"] == "Deny":
            return Decision(frozenset())
        grants |= found
    return Decision(frozenset(grants))


def grants_of(statements: Iterable[Mapping[str, Any]]) -> set[Grant]:
    """Return every action with every resource that the statements allow."""
    return {
        Grant(action, resource, statement.get("Sid", ""))
        for statement in statements
        if statement["Effect"] == "Allow"
        for action in listed(statement["Action"])
        for resource in listed(statement["Resource"])
    }


def listed(value: Any) -> list[Any]:
    """Return a list, where a policy may have one value in place of it."""
    return value if isinstance(value, list) else [value]


def _matching(statement: Mapping[str, Any], request: Request) -> Iterator[Grant]:
    unknown = set(statement) - _KNOWN
    if unknown or statement["Effect"] not in ("Allow", "Deny"):
        raise NotUnderstood(f"{sorted(unknown) or statement['Effect']} in {dict(statement)}")
    if not all(
        _holds(operator, key, listed(values), dict(request.context))
        for operator, keys in statement.get("Condition", {}).items()
        for key, values in keys.items()
    ):
        return
    for action in listed(statement["Action"]):
        for resource in listed(statement["Resource"]):
            if "${" in resource:
                raise NotUnderstood(f"a policy variable in {resource}")
            if _like(action.lower(), request.action.lower()) and _like(resource, request.resource):
                yield Grant(action, resource, statement.get("Sid", ""))


def _holds(
    operator: str, key: str, expected: Sequence[str], context: Mapping[str, tuple[str, ...]]
) -> bool:
    """Whether a condition holds for the values of one key; keys are compared without case."""
    found = next((v for name, v in context.items() if name.lower() == key.lower()), None)
    if operator == "Null":
        return (found is None) == (str(expected[0]).lower() == "true")
    qualifier, _, name = operator.rpartition(":")
    if name.endswith("IfExists"):
        if found is None:
            return True
        name = name.removesuffix("IfExists")
    if name not in _OPERATORS or qualifier not in ("", "ForAllValues", "ForAnyValue"):
        raise NotUnderstood(f"condition {operator}")
    if any("${" in str(value) for value in expected):
        raise NotUnderstood(f"a policy variable in condition {operator} {key}")
    if found is None:
        return qualifier == "ForAllValues"
    matched = [any(_OPERATORS[name](str(e), value) for e in expected) for value in found]
    if not qualifier and len(matched) != 1:
        raise NotUnderstood(f"{operator} on {key}, which has several values")
    return all(matched) if qualifier == "ForAllValues" else any(matched)


def _like(pattern: str, text: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"([*?])", pattern)
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(p, re.escape(p)) for p in parts), re.DOTALL)


_OPERATORS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "StringEquals": lambda expected, value: expected == value,
    "StringLike": _like,
    "ArnEquals": _like,
    "ArnLike": _like,
    "Bool": lambda expected, value: expected.lower() == value.lower(),
}
