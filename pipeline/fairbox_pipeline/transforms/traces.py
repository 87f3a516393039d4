"""Tables to traces: the messages that a question names, their relatives, and all their events.

Relatives are messages of the same id (copies by a destination `topic:`), both ends of a replay, and
the notices that their batches have ended. Nothing is followed further.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline.schemas import DAY_MS, EVENTS_TABLE, KEY, MESSAGES_TABLE, REPLAYS_TABLE

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame, Row

    from fairbox_pipeline.warehouse import Warehouse
    from fairbox_pipeline.windows import Window

MOST_EVENTS: Final = 10_000
_TRACING: Final = ("traceparent", "ce-traceparent")
_SHOWN: Final = (
    *(*KEY, "state", "partition_key", "content_type", "size", "batch_item", "due"),
    *("first_at", "last_at"),
)
_OF_EVENT: Final = (
    *("event", "at", "precision", "subscription", "destination", "attempt", "reason"),
    "traceparent",
)


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
    return F.col("batch_item").startswith(f"{batch}:") | _tells_of([batch])


def _tells_of(batches: Collection[str]) -> Column:
    """Return the condition on messages that tell of the end of batches."""
    return F.col("topic").startswith("fairbox.batches.") & _among("partition_key", batches)


def traced(
    warehouse: Warehouse, asked: Column, window: Window, limit: int
) -> tuple[list[dict[str, Any]], bool]:
    """Return messages with their events, and whether there are more than `limit` of either.

    Each has `found_by`: `question`, `id`, `replay` or `batch`. They are in the order of their first
    events; events are by time, of one second by attempt.
    """
    messages = warehouse.read(MESSAGES_TABLE).select(*_SHOWN)
    found: dict[tuple[Any, ...], dict[str, Any]] = {}

    def take(rows: DataFrame, found_by: str) -> None:
        for row in rows.orderBy("first_at", *KEY).limit(limit + 1).collect():
            found.setdefault(_key(row), {"found_by": found_by, **row.asDict()})

    take(window.of(messages.where(asked), "first_at"), "question")
    ids = {one["id"] for one in found.values()}
    take(messages.where(_among("id", ids)), "id")
    take(messages.where(_among("id", _replayed(warehouse, ids) - ids)), "replay")
    batches = {one["batch_item"].partition(":")[0] for one in found.values() if one["batch_item"]}
    since = min((one["first_at"] for one in found.values()), default=0) - DAY_MS
    take(messages.where(_tells_of(batches) & (F.col("first_at") >= since)), "batch")

    kept = dict(list(found.items())[:limit])
    events, more = _events(warehouse, list(kept.values()))
    answer = [
        {"ref": "/".join(map(str, key)), **one, "events": events.get(key, [])}
        for key, one in sorted(kept.items(), key=lambda each: each[1]["first_at"])
    ]
    return answer, more or len(found) > limit


def _replayed(warehouse: Warehouse, ids: Collection[str]) -> set[str]:
    """Return the ids at both ends of the replays that name some of these."""
    plans = warehouse.read(REPLAYS_TABLE).where(_among("id", ids) | _among("new_id", ids))
    ends = plans.select("id", "new_id").distinct().limit(MOST_EVENTS).collect()
    return {end for plan in ends for end in plan}


def _events(
    warehouse: Warehouse, messages: list[dict[str, Any]]
) -> tuple[dict[tuple[Any, ...], list[dict[str, Any]]], bool]:
    """Return the events of messages by their keys, and whether there are more."""
    if not messages:
        return {}, False
    first, last = min(m["first_at"] for m in messages), max(m["last_at"] for m in messages)
    tracing = F.get(F.filter(F.map_entries("headers"), _is_tracing), F.lit(0))["value"]
    attempt = F.when(F.col("event") == "added", -1).otherwise(F.col("attempt"))
    rows = (
        warehouse.read(EVENTS_TABLE)
        .where(F.col("at").between(first, last) & _among("id", {m["id"] for m in messages}))
        .withColumn("traceparent", tracing)
        .orderBy(F.expr("at div 1000"), attempt.asc_nulls_last(), "at", "event_id")
        .select(*KEY, *_OF_EVENT)
        .limit(MOST_EVENTS + 1)
        .collect()
    )
    by_key: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows[:MOST_EVENTS]:
        by_key.setdefault(_key(row), []).append({name: row[name] for name in _OF_EVENT})
    return by_key, len(rows) > MOST_EVENTS


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def _among(name: str, values: Collection[str]) -> Column:
    return F.col(name).isin(*sorted(values)) if values else F.lit(False)


def _is_tracing(entry: Column) -> Column:
    return F.lower(entry["key"]).isin(*_TRACING)
