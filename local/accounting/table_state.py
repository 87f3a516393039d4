"""The contents of the tables at the end of a run, for its account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.accounting.business import BUSINESS_TABLE
from local.accounting.topics import BY_TOPIC, PULL, ROUTES, Route

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox import Outbox

State = tuple[str, dict[str, Any]]


def table_state(outbox: Outbox, dynamodb: Any) -> Iterator[State]:
    """Yield everything in the tables, as (kind, fields)."""
    for route in ROUTES:
        yield from _outstanding(outbox, route)
        yield from _dead(outbox, route)
        yield "counts", counts(outbox, route)
    for delivery in outbox.delivered():
        if delivery.topic in BY_TOPIC:
            yield (
                "ledger",
                {"topic": delivery.topic, "taker": delivery.subscription, "id": delivery.id},
            )
    for page in dynamodb.get_paginator("scan").paginate(TableName=BUSINESS_TABLE):
        for row in page["Items"]:
            yield "business", {"n": row["id"]["S"]}


def _outstanding(outbox: Outbox, route: Route) -> Iterator[State]:
    for lane in ("ready", "later"):
        for stored in outbox.stored(lane, route.name):
            takers = stored.lacking(frozenset(route.subscriptions)) or {PULL}
            for taker in takers:
                yield "outstanding", {"topic": route.name, "taker": taker, "id": stored.ref.id}


def _dead(outbox: Outbox, route: Route) -> Iterator[State]:
    for letter in outbox.dead(route.name):
        for taker in letter.subscriptions or {PULL}:
            yield (
                "dead",
                {"topic": route.name, "taker": taker, "id": letter.id, "reason": letter.reason},
            )


def counts(outbox: Outbox, route: Route) -> dict[str, Any]:
    """Return a topic's counts: those of its shard rows, and the true ones."""
    tables, lanes = outbox.tables, outbox.tables.lanes
    places = outbox.topic(route.name).shards()
    rows = tables.rows.get_many([(route.name, *place) for place in places])
    return {
        "topic": route.name,
        "counted": {
            "ready": sum(row.ready for row in rows),
            "later": sum(row.later for row in rows),
            "dead": sum(row.dead for row in rows),
        },
        "true": {
            "ready": sum(lanes.count("ready", route.name, *p, limit=None) for p in places),
            "later": sum(lanes.count("later", route.name, *p, limit=None) for p in places),
            "dead": sum(1 for _ in outbox.dead(route.name)),
        },
    }
