"""Events to messages: the state of each, independent of the order of its events.

A row is folded from any part of a message's events: `merged` makes the row of two parts from their
rows, because each column is a least, a greatest, a sum, or follows from those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairbox_pipeline.schemas import KEY, MESSAGES_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame

_OF_ADDED = ("partition_key", "ordering", "content_type", "size", "batch_item", "due")
_SUMS = ("events", "deliveries", "failures")
_LEAST = ("first_at",)
_GREATEST = ("last_at", "attempts", "dead_at", "redriven_at")
_FLAGS = ("cancelled", "purged", "expired")  # the first that holds is the state
_ENTRY = MESSAGES_TABLE.schema["subscriptions"].dataType.elementType.names  # type: ignore[attr-defined]


def messages_of(events: DataFrame, folded: int) -> DataFrame:
    """Make one row of each message, in the columns of table `messages`.

    Each event is there once. One shuffle: by the message's key, which serves both groupings.

    Args:
        events: some or all events of the messages that it names.
        folded: number of the commit of `events` that is the last of them.
    """
    by_subscription = _by_subscription(events.repartition(*KEY))
    whole = by_subscription.groupBy(*KEY).agg(
        *(F.min(name).alias(name) for name in (*_LEAST, "added")),
        *(F.max(name).alias(name) for name in _GREATEST),
        *(F.sum(name).alias(name) for name in _SUMS),
        F.max(F.col("cancelled") & F.col("subscription").isNull()).alias("cancelled"),
        *(F.max(name).alias(name) for name in ("purged", "expired")),
        F.sort_array(F.collect_list(_entry())).alias("subscriptions"),
    )
    facts = {name: F.col(name) for name in MESSAGES_TABLE.names if name in whole.columns}
    facts |= {name: F.col(f"added.{name}") for name in _OF_ADDED}
    facts |= {"added_at": F.col("added.at"), "added_event": F.col("added.event_id")}
    flags = {name: F.col(name) for name in _FLAGS}
    return whole.select(*_row({**facts, "folded": F.lit(folded).cast("bigint")}, flags))


def merged(old: Callable[[str], Column], new: Callable[[str], Column]) -> dict[str, Column]:
    """Return the columns of a message's row from those of two parts of its events.

    Args:
        old: returns a column of the row of one part, by name.
        new: the same of the other part. No event is in both; `folded` is that of this part.
    """
    earlier = new("added_at").isNotNull() & (
        old("added_at").isNull()
        | (new("added_at") < old("added_at"))
        | ((new("added_at") == old("added_at")) & (new("added_event") < old("added_event")))
    )
    facts = {name: old(name) for name in KEY}
    for name in (*_OF_ADDED, "added_at", "added_event"):
        facts[name] = F.when(earlier, new(name)).otherwise(old(name))
    # of a value and null, both give the value
    facts |= {name: F.least(old(name), new(name)) for name in _LEAST}
    facts |= {name: F.greatest(old(name), new(name)) for name in _GREATEST}
    facts |= {name: old(name) + new(name) for name in _SUMS}
    facts |= {"subscriptions": _takers(old("subscriptions"), new("subscriptions"))}
    flags = {name: (old("state") == name) | (new("state") == name) for name in _FLAGS}
    row = _row({**facts, "folded": new("folded")}, flags)
    return dict(zip(MESSAGES_TABLE.names, row, strict=True))


def _by_subscription(events: DataFrame) -> DataFrame:
    """Make one row of each (message, subscription), null for events that name none."""
    first = _delivery(F.col("at"), F.col("precision"))
    death = _death(F.col("at"), F.col("reason"))
    rows = events.groupBy(*KEY, "subscription").agg(
        F.min("at").alias("first_at"),
        F.max("at").alias("last_at"),
        F.count(F.lit(1)).alias("events"),
        F.min(F.when(F.col("event") == "delivered", first)).alias("first"),
        F.count(_at_of("delivered")).alias("deliveries"),
        F.count(_at_of("failed")).alias("failures"),
        F.max("attempt").alias("attempts"),
        F.max("destination").alias("destination"),
        F.max(F.when(F.col("event") == "dead", death)).alias("death"),
        F.max(_at_of("redriven")).alias("redriven_at"),
        *(_seen(kind).alias(kind) for kind in _FLAGS),
        F.min(F.when(F.col("event") == "added", _added())).alias("added"),
    )
    return rows.select(
        "*",
        F.col("first.at").alias("first_delivered_at"),
        "first.precision",
        F.col("death.at").alias("dead_at"),
        "death.reason",
    )


def _row(facts: Mapping[str, Column], flags: Mapping[str, Column]) -> list[Column]:
    """Return the columns of table `messages` from those that follow from no other."""
    state = _state(facts, flags)
    takers = facts["subscriptions"]
    last = F.array_max(F.transform(takers, lambda taker: taker["first_delivered_at"]))
    columns = {**facts, "state": state, "delivered_at": F.when(state == "delivered", last)}
    return [columns[name].alias(name) for name in MESSAGES_TABLE.names]


def _state(facts: Mapping[str, Column], flags: Mapping[str, Column]) -> Column:
    """Return the state of a message, the first that holds."""
    dead_at, redriven_at = facts["dead_at"], facts["redriven_at"]
    dead = dead_at.isNotNull() & (redriven_at.isNull() | (dead_at > redriven_at))
    lacking = F.exists(facts["subscriptions"], _lacks)
    return (
        F.when(flags["cancelled"], "cancelled")
        .when(flags["purged"], "purged")
        .when(flags["expired"], "expired")
        .when(dead, "dead")
        .when((facts["deliveries"] > 0) & ~lacking, "delivered")
        .otherwise("outstanding")
    )


def _lacks(taker: Column) -> Column:
    """Whether a named subscription lacks the message, and it was not skipped for that."""
    named = taker["subscription"].isNotNull() & ~taker["skipped"]
    return named & taker["first_delivered_at"].isNull()


def _at_of(kind: str) -> Column:
    return F.when(F.col("event") == kind, F.col("at"))


def _seen(kind: str) -> Column:
    return F.max(F.col("event") == kind)


def _added() -> Column:
    """Return the fields of `added`; among several, the least struct is the earliest."""
    return F.struct("at", "event_id", *_OF_ADDED)


def _delivery(at: Column, precision: Column) -> Column:
    """Return a delivery: the least is the earliest, and of one time the exact one."""
    return F.struct(at.alias("at"), precision.alias("precision"))


def _death(at: Column, reason: Column) -> Column:
    """Return a death: the greatest is the latest."""
    return F.struct(at.alias("at"), reason.alias("reason"))


def _entry() -> Column:
    """Return the entry of a subscription, or of attempts without one; null: neither."""
    named = F.col("subscription").isNotNull()
    attempts = F.col("deliveries") + F.col("failures") + F.col("dead_at").isNotNull().cast("int")
    told = named | (attempts > 0)
    skipped = (named & F.col("cancelled")).alias("skipped")
    return F.when(told, F.struct(*(skipped if n == "skipped" else F.col(n) for n in _ENTRY)))


def _takers(old: Column, new: Column) -> Column:
    """Return the entries of both rows, one of each subscription."""
    both = F.map_zip_with(_by_name(old), _by_name(new), lambda _, one, other: _taker(one, other))
    return F.sort_array(F.map_values(both))


def _by_name(takers: Column) -> Column:
    """Return entries as a map; its keys are made so that no subscription has that of null."""

    def named(taker: Column) -> Column:
        name = F.concat(F.lit("="), taker["subscription"])
        return F.struct(F.coalesce(name, F.lit("")), taker)

    return F.map_from_entries(F.transform(takers, named))


def _taker(old: Column, new: Column) -> Column:
    """Return the entry of two of one subscription, of which one may be null."""

    def total(name: str) -> Column:
        return F.coalesce(old[name], F.lit(0)) + F.coalesce(new[name], F.lit(0))

    first = F.least(*(_first(taker) for taker in (old, new)))
    death = F.greatest(*(_last_death(taker) for taker in (old, new)))
    fields = {
        "subscription": F.coalesce(old["subscription"], new["subscription"]),
        "destination": F.greatest(old["destination"], new["destination"]),
        "first_delivered_at": first["at"],
        "precision": first["precision"],
        "deliveries": total("deliveries"),
        "failures": total("failures"),
        "dead_at": death["at"],
        "reason": death["reason"],
        "skipped": F.greatest(old["skipped"], new["skipped"]),
    }
    return F.struct(*(fields[name].alias(name) for name in _ENTRY))


def _first(taker: Column) -> Column:
    """Return the first delivery of an entry; null: none, or there is no entry."""
    at = taker["first_delivered_at"]
    return F.when(at.isNotNull(), _delivery(at, taker["precision"]))


def _last_death(taker: Column) -> Column:
    """Return the latest death of an entry; null: none, or there is no entry."""
    at = taker["dead_at"]
    return F.when(at.isNotNull(), _death(at, taker["reason"]))
