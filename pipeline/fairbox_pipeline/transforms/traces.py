"""Tables to traces: the messages that a question names, their relatives, and all their events.

Relatives are messages of the same id (copies by a destination `topic:`), both ends of a replay, and
the notices that their batches have ended. Nothing is followed further.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline.schemas import DAY_MS, EVENTS_TABLE, KEY, MESSAGES_TABLE, REPLAYS_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark.sql import Column, DataFrame, Row

    from fairbox_pipeline.warehouse import Warehouse
    from fairbox_pipeline.windows import Window

MOST_EVENTS: Final = 10_000
_NOTICES: Final = "fairbox.batches."
"""Prefix of the topics that tell of the end of a batch; its id is the message's partition key."""
_TRACING: Final = ("traceparent", "ce-traceparent")
_UUID7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_SHOWN: Final = (
    *(*KEY, "state", "partition_key", "content_type", "size", "batch_item", "due"),
    *("first_at", "last_at"),
)
_OF_EVENT: Final = (
    *("event", "at", "precision", "subscription", "destination", "attempt", "reason"),
    "traceparent",
)

Traced = list[dict[str, Any]]


def is_uuid7(text: str) -> bool:
    """Whether a text is a UUIDv7 in lower case, as ids of messages are."""
    return _UUID7.fullmatch(text) is not None


def with_trace(warehouse: Warehouse, trace: str, window: Window, limit: int) -> Column:
    """Return the condition on messages whose `added` has a trace id in its header.

    It names the ids of the first `limit` and one more.
    """
    named = F.exists(
        F.map_entries("headers"),
        lambda entry: _is_tracing(entry) & entry["value"].rlike(f"^[0-9a-f]{{2}}-{trace}-"),
    )
    added = window.of(warehouse.read(EVENTS_TABLE).where(F.col("event") == "added"), "at")
    found = added.where(named).select("id", "at").orderBy("at", "id").limit(limit + 1)
    return _among("id", {row["id"] for row in found.collect()})


def of_batch(batch: str) -> Column:
    """Return the condition on messages with items of a batch, or that tell of its end."""
    told = F.col("topic").startswith(_NOTICES) & (F.col("partition_key") == batch)
    return F.col("batch_item").startswith(f"{batch}:") | told


def traced(warehouse: Warehouse, asked: Column, window: Window, limit: int) -> tuple[Traced, bool]:
    """Return messages with their events, and whether there are more than `limit` of either.

    Each has `found_by`: `question`, `id`, `replay` or `batch`. They are in the order of their first
    events; events are by time, of one second by attempt.
    """
    messages = warehouse.read(MESSAGES_TABLE).select(*_SHOWN)
    named: dict[tuple[Any, ...], tuple[str, Row]] = {}

    def take(found: DataFrame, found_by: Callable[[Row], str]) -> bool:
        rows = found.orderBy("first_at", *KEY).limit(limit + 1).collect()
        new = [row for row in rows if _key(row) not in named]
        room = limit - len(named)
        named.update({_key(row): (found_by(row), row) for row in new[:room]})
        return len(new) > room

    cut = take(window.of(messages.where(asked), "first_at"), lambda _: "question")
    if named:
        ids = {row["id"] for _, row in named.values()}
        ends = ids | _replayed(warehouse, ids)
        same = messages.where(_among("id", ends))
        cut |= take(same, lambda row: "id" if row["id"] in ids else "replay")
        cut |= take(_notices(messages, [row for _, row in named.values()]), lambda _: "batch")
    events, more = _events(warehouse, [row for _, row in named.values()])
    return [
        {"ref": "/".join(map(str, key)), "found_by": why}
        | {name: row[name] for name in _SHOWN}
        | {"events": [{name: one[name] for name in _OF_EVENT} for one in events.get(key, [])]}
        for key, (why, row) in sorted(named.items(), key=lambda each: each[1][1]["first_at"])
    ], cut or more


def _replayed(warehouse: Warehouse, ids: set[str]) -> set[str]:
    """Return the ids at both ends of the replays that name some of these."""
    plans = warehouse.read(REPLAYS_TABLE).where(_among("id", ids) | _among("new_id", ids))
    ends = plans.select("id", "new_id").distinct().limit(MOST_EVENTS).collect()
    return {end for plan in ends for end in plan}


def _notices(messages: DataFrame, rows: list[Row]) -> DataFrame:
    """Return the messages that tell of the end of the batches of these."""
    batches = {row["batch_item"].partition(":")[0] for row in rows if row["batch_item"]}
    since = min(row["first_at"] for row in rows) - DAY_MS
    told = F.col("topic").startswith(_NOTICES) & _among("partition_key", batches)
    return messages.where(told & (F.col("first_at") >= since))


def _events(warehouse: Warehouse, rows: list[Row]) -> tuple[dict[tuple[Any, ...], list[Row]], bool]:
    """Return the events of messages by their keys, and whether there are more."""
    if not rows:
        return {}, False
    between = F.col("at").between(
        min(row["first_at"] for row in rows), max(row["last_at"] for row in rows)
    )
    tracing = F.get(F.filter(F.map_entries("headers"), _is_tracing), F.lit(0))["value"]
    attempt = F.when(F.col("event") == "added", -1).otherwise(F.col("attempt"))
    found = (
        warehouse.read(EVENTS_TABLE)
        .where(between & _among("id", {row["id"] for row in rows}))
        .withColumn("traceparent", tracing)
        .select(*KEY, *_OF_EVENT, "event_id", attempt.alias("nth"))
        .orderBy(F.expr("at div 1000"), F.col("nth").asc_nulls_last(), "at", "event_id")
        .limit(MOST_EVENTS + 1)
        .collect()
    )
    by_key: dict[tuple[Any, ...], list[Row]] = {}
    for event in found[:MOST_EVENTS]:
        by_key.setdefault(_key(event), []).append(event)
    return by_key, len(found) > MOST_EVENTS


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def _among(name: str, values: Collection[str]) -> Column:
    return F.col(name).isin(*sorted(values)) if values else F.lit(False)


def _is_tracing(entry: Column) -> Column:
    return F.lower(entry["key"]).isin(*_TRACING)
