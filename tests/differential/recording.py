"""Requests that the library sends, recorded while worlds run, with the items that they met."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from fairbox.testing import MemoryDynamoDB
from fairbox.testing.application import BATCHES as APP_BATCHES
from fairbox.testing.application import DELIVERIES as APP_DELIVERIES
from fairbox.testing.application import OUTBOX as APP_OUTBOX
from fairbox_simulation.chaos import CALM
from fairbox_simulation.whole_run import run_whole

from tests.releases import world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MESSAGES = 80  # of the simulated world: enough for every expression that the library has
SAMPLES = 2  # requests kept of each shape
MOST_ITEMS = 40  # that a kept request may meet
NAMES = {name: f"differential-{name}" for name in (APP_OUTBOX, APP_DELIVERIES, APP_BATCHES)}
"""The application's tables, and what they are called on both engines."""
METHODS = {
    "GetItem": "get_item",
    "PutItem": "put_item",
    "UpdateItem": "update_item",
    "DeleteItem": "delete_item",
    "Query": "query",
    "Scan": "scan",
    "BatchGetItem": "batch_get_item",
    "BatchWriteItem": "batch_write_item",
    "TransactWriteItems": "transact_write_items",
    "TransactGetItems": "transact_get_items",
    "BatchExecuteStatement": "batch_execute_statement",
}


@dataclass(frozen=True)
class Recorded:
    """A request of the library: method, arguments, and the items of its partitions before it."""

    method: str
    arguments: dict[str, Any]
    before: dict[str, list[dict[str, Any]]]


@cache
def recorded() -> dict[str, list[Recorded]]:
    """Return a few requests of each shape: operation, tables, expressions, statements."""
    found: dict[str, list[Recorded]] = {}
    with _recording(found):
        world.build()
        assert run_whole(0, CALM, MESSAGES) == []
    return dict(sorted(found.items()))


@contextmanager
def _recording(found: dict[str, list[Recorded]]) -> Iterator[None]:
    original = MemoryDynamoDB._call

    def call(
        engine: MemoryDynamoDB, operation: str, work: Callable[..., Any], request: dict[str, Any]
    ) -> Any:
        if operation in METHODS:
            samples = found.setdefault(shape(operation, request), [])
            if len(samples) < SAMPLES:
                before = _before(engine, request)
                if before is not None:
                    renamed = _renamed(copy.deepcopy(request))
                    samples.append(Recorded(METHODS[operation], renamed, before))
        return original(engine, operation, work, request)

    with patch.object(MemoryDynamoDB, "_call", call):
        yield


def shape(operation: str, request: dict[str, Any]) -> str:
    """Return a text that is the same for requests that differ in values only."""
    return f"{operation} {sorted(set(_texts(request)))}"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if key in ("Statement", "TableName", "IndexName") or (
            key.endswith("Expression") and isinstance(inner, str)
        ):
            yield inner
        elif key == "RequestItems":
            yield from inner
        elif key not in ("Item", "Key", "ExpressionAttributeValues", "Parameters"):
            yield from _texts(inner)


def _before(
    engine: MemoryDynamoDB, request: dict[str, Any]
) -> dict[str, list[dict[str, Any]]] | None:
    """Return the items whose partition the request names; None: too many."""
    text = repr(request)
    found: dict[str, list[dict[str, Any]]] = {}
    for name, renamed in NAMES.items():
        if name in engine._engine.tables and name in text:
            items = [item for item in engine.items(name) if repr(item["pk"]["S"]) in text]
            if len(items) > MOST_ITEMS:
                return None
            found[renamed] = items
    return found


def _renamed(value: Any) -> Any:
    """Give the tables the names that they have here."""
    if isinstance(value, list):
        return [_renamed(each) for each in value]
    if isinstance(value, dict):
        return {
            key: _table_in(inner)
            if key in ("TableName", "Statement")
            else {NAMES[name]: _renamed(part) for name, part in inner.items()}
            if key == "RequestItems"
            else _renamed(inner)
            for key, inner in value.items()
        }
    return value


def _table_in(text: str) -> str:
    for name, renamed in NAMES.items():
        if text == name:
            return renamed
        text = text.replace(f'"{name}"', f'"{renamed}"')
    return text
