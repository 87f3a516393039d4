"""Every write that could replace or make an item has a condition, or its reason by name."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
LIBRARY: Final = ROOT / "layers" / "fairbox" / "python" / "fairbox"

_ASKING: Final = {"same", "present", "conditions", "as_read", "_outstanding"}
"""Names by which a function gathers conditions in `WriteExpressions`."""
_ALONE: Final = "no message lies under its key, and its last writer is right"
UNCONDITIONAL: Final = {
    "message_inserts._put": (
        "`add_many(new=True)`: the caller knows that nothing lies there; no put is made twice"
    ),
    "dead_letters.bury_action": "adds to lane `dead` what died before for other subscriptions",
    "dead_letters.bury_raw": "an unreadable item as it was, in lane `dead`: the same each time",
    "ledger.write": "a row of the ledger: a repetition overwrites itself",
    "batch_table._action": "items of batches, each conditional unless its change is `plain`",
    "topic_cache.change_update": "a counter of the version row, and the latest changes",
    "topic_rows._whole": "a subscription's row, written by administration alone",
    "keys_aside.put": "a key that leaves the shard's row, in a transaction under its version",
    "shard_rows.settle": "a flag of a shard's row, set for good",
    "recounts.fence": "the fence of a recount, deleted by the next call; it is no message",
    "recounts.ask": _ALONE,
    "recounts.save": _ALONE,
    "recounts._keep": _ALONE,
    "repair_cursor.save_cursor": _ALONE,
    "tables.write_heartbeat": "one row, which nothing reads: only its change in the stream counts",
    "feed_connections.open": "the row of a connection, whose id API Gateway has just made",
    "feed_connections.take": "a lease, which is only made longer",
    "feed_connections._update": "the set of held polls: an element more or less",
    "feed_topics.file": "the bundle of a head, in the log: whoever files it files the same",
}
"""Writes by module and function, each with the reason why it needs no condition."""


def unconditional(source: str, module: str) -> Iterator[str]:
    """Yield the functions that put or update an item without a condition."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef) and any(
            _writes(names) and "ConditionExpression" not in names for names in _requests(function)
        ):
            yield f"{module}.{function.name}"


def _requests(function: ast.FunctionDef) -> Iterator[set[str]]:
    """Yield the names in every dict literal and call: what a request may be made of."""
    used = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    used |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    # what `WriteExpressions` gathers here
    gathered = {"UpdateExpression"} if "put" in used else set()
    gathered |= {"ConditionExpression"} if used & _ASKING else set()

    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            names = {str(k.value) for k in node.keys if isinstance(k, ast.Constant)}
            unpacked = [v for k, v in zip(node.keys, node.values, strict=True) if k is None]
        elif isinstance(node, ast.Call):
            names = {keyword.arg for keyword in node.keywords if keyword.arg}
            unpacked = [keyword.value for keyword in node.keywords if keyword.arg is None]
        else:
            continue

        for part in unpacked:
            if isinstance(part, ast.Attribute) and part.attr == "expressions":
                names |= gathered
            if isinstance(part, ast.Call) and getattr(part.func, "id", "") == "condition":
                names.add("ConditionExpression")
        yield names


def _writes(names: set[str]) -> bool:
    return "PutRequest" in names or "UpdateExpression" in names or {"TableName", "Item"} <= names


@pytest.mark.guarantee("adding-again")
def test_every_put_and_update_has_a_condition_or_its_reason() -> None:
    found = {
        site
        for path in (LIBRARY / "tables").glob("*.py")
        for site in unconditional(path.read_text(encoding="utf-8"), path.stem)
    }
    assert found == set(UNCONDITIONAL)
