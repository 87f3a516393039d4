"""Messages to causes: why they are dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from fairbox_pipeline.schemas import KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GAP: Final = "*"
"""The place of a number or an id in a reason."""
_UUID: Final = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_WITH_DIGITS: Final = r"[A-Za-z]*\d\w*"


def dead_causes(messages: DataFrame, most: int) -> DataFrame:
    """Return `topic` `subscription` `reason` `messages` `first_at` `last_at`, the fullest first.

    They count messages that are dead now, by the latest death of each subscription since the last
    redrive; times are ms. In `reason` each number and id is `*`.
    """
    dead = messages.where(F.col("state") == "dead")
    deaths = dead.select(*KEY, "redriven_at", F.explode("subscriptions").alias("taker")).select(
        *KEY,
        "redriven_at",
        "taker.subscription",
        "taker.reason",
        F.col("taker.dead_at").alias("at"),
    )
    since = deaths.where(F.col("at") > F.coalesce("redriven_at", F.lit(-1)))
    plain = F.regexp_replace(F.coalesce("reason", F.lit("")), "^max_attempts: ", "")
    reason = F.regexp_replace(F.regexp_replace(plain, _UUID, GAP), _WITH_DIGITS, GAP)
    causes = since.groupBy("topic", "subscription", reason.alias("reason")).agg(
        F.count_distinct("epoch", "shard", "id").alias("messages"),
        F.min("at").alias("first_at"),
        F.max("at").alias("last_at"),
    )
    return causes.orderBy(F.desc("messages"), "topic", "subscription", "reason").limit(most)
