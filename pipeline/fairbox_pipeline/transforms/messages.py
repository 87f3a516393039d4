"""Events to messages: the state of each, independent of the order of its events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairbox_pipeline.schemas import KEY, MESSAGES_TABLE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OF_ADDED = ("partition_key", "ordering", "content_type", "size", "batch_item", "due")


def messages_of(events: DataFrame) -> DataFrame:
    """Make one row of each message, in the columns of table `messages`.

    `events` holds all events of the messages that it names, each once. One shuffle: by the
    message's key, which serves both groupings.
    """
    by_subscription = _by_subscription(events.repartition(*KEY))
    whole = by_subscription.groupBy(*KEY).agg(
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        F.sum("events").alias("events"),
        F.sum("deliveries").alias("deliveries"),
        F.sum("failures").alias("failures"),
        F.max("attempts").alias("attempts"),
        F.min("added").alias("added"),
        F.max("dead_at").alias("dead_at"),
        F.max("redriven_at").alias("redriven_at"),
        F.max(F.col("cancelled") & F.col("subscription").isNull()).alias("cancelled"),
        *(F.max(name).alias(name) for name in ("purged", "expired")),
        F.max("first_delivered_at").alias("last_of_first_deliveries"),
        F.max(_lacking()).alias("lacking"),
        F.sort_array(F.collect_list(_entry())).alias("subscriptions"),
    )
    stated = whole.withColumn("state", state_of())
    final = _final_columns()
    return stated.select(*(final[name] for name in MESSAGES_TABLE.names))


def _by_subscription(events: DataFrame) -> DataFrame:
    """Make one row of each (message, subscription), null for events that name none."""
    return events.groupBy(*KEY, "subscription").agg(
        F.min("at").alias("first_at"),
        F.max("at").alias("last_at"),
        F.count(F.lit(1)).alias("events"),
        F.min(_at_of("delivered")).alias("first_delivered_at"),
        F.count(_at_of("delivered")).alias("deliveries"),
        F.count(_at_of("failed")).alias("failures"),
        F.max("attempt").alias("attempts"),
        F.max("destination").alias("destination"),
        F.max(_at_of("dead")).alias("dead_at"),
        F.max(_at_of("redriven")).alias("redriven_at"),
        *(_seen(kind).alias(kind) for kind in ("cancelled", "purged", "expired")),
        F.min(F.when(F.col("event") == "added", _added())).alias("added"),
    )


def state_of() -> Column:
    """Return the state of a message, the first that holds."""
    dead = F.col("dead_at").isNotNull() & (
        F.col("redriven_at").isNull() | (F.col("dead_at") > F.col("redriven_at"))
    )
    return (
        F.when(F.col("cancelled"), "cancelled")
        .when(F.col("purged"), "purged")
        .when(F.col("expired"), "expired")
        .when(dead, "dead")
        .when((F.col("deliveries") > 0) & ~F.col("lacking"), "delivered")
        .otherwise("outstanding")
    )


def _final_columns() -> dict[str, str | Column]:
    columns: dict[str, str | Column] = {name: name for name in MESSAGES_TABLE.names}
    columns |= {name: F.col(f"added.{name}").alias(name) for name in _OF_ADDED}
    columns["added_at"] = F.col("added.at").alias("added_at")
    delivered = F.when(F.col("state") == "delivered", F.col("last_of_first_deliveries"))
    return columns | {"delivered_at": delivered.alias("delivered_at")}


def _at_of(kind: str) -> Column:
    return F.when(F.col("event") == kind, F.col("at"))


def _seen(kind: str) -> Column:
    return F.max(F.col("event") == kind)


def _added() -> Column:
    """Return the fields of `added`; among several, the least struct is the earliest."""
    return F.struct("at", "event_id", *_OF_ADDED)


def _lacking() -> Column:
    """Whether a named subscription lacks the message, and it was not skipped for that."""
    named = F.col("subscription").isNotNull() & ~F.col("cancelled")
    return named & F.col("first_delivered_at").isNull()


def _entry() -> Column:
    """Return the entry of a subscription, or of deliveries without one; null: neither."""
    told = F.col("subscription").isNotNull() | (F.col("deliveries") > 0)
    fields = MESSAGES_TABLE.schema["subscriptions"].dataType.elementType.names  # type: ignore[attr-defined]
    return F.when(told, F.struct(*fields))
