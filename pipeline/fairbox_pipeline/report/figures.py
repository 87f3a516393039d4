"""Figures of the report as small tables: each is a DataFrame step over the warehouse's tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.schemas import PERCENTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_POINTS: Final = 120
MOST_TOPICS: Final = 7
OTHERS: Final = "other topics"
NOT_NAMED: Final = 0
"""Rank of the topics that are shown together."""
ATTEMPTS: Final = ("1", "2", "3", "4", "5 to 9", "10 and more")
_STEPS_MS: Final = tuple(
    seconds * 1000
    for seconds in (
        *(1, 2, 5, 10, 30, 60, 120, 300, 900, 1800),
        *(3600, 2 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400, 30 * 86_400),
    )
)


@dataclass(frozen=True, slots=True)
class Span:
    """The time that the tables cover, cut into steps.

    Attributes:
        first, last: earliest and latest event, ms since 1970 UTC.
        step: ms of one step; every step begins at a multiple of it.
    """

    first: int
    last: int
    step: int

    @classmethod
    def over(cls, first: int, last: int) -> Span:
        """Cut a time into the finest steps of which there are not too many."""
        for step in _STEPS_MS:
            if last // step - first // step < MOST_POINTS:
                return cls(first, last, step)
        step = _STEPS_MS[-1]
        return cls(first, last, step * -(-(last - first) // (step * MOST_POINTS)))

    @property
    def starts(self) -> list[int]:
        """The beginning of every step, ms."""
        begin = self.first // self.step * self.step
        return list(range(begin, self.last + 1, self.step))

    def start_of(self, at: Column) -> Column:
        """Return the beginning of the step that a time (ms) lies in."""
        return F.floor(at / self.step).cast("long") * self.step


def totals(messages: DataFrame) -> DataFrame:
    """One row: `messages`, `items` (those that carry one of a batch), `first`, `last` (ms)."""
    return messages.agg(
        F.count(F.lit(1)).alias("messages"),
        F.count("batch_item").alias("items"),
        F.min("first_at").alias("first"),
        F.max("last_at").alias("last"),
    )


def states(messages: DataFrame) -> DataFrame:
    """One row a state: `state`, `messages`."""
    return messages.groupBy("state").agg(F.count(F.lit(1)).alias("messages"))


def ranked_topics(messages: DataFrame) -> DataFrame:
    """One row a topic: `topic`, `messages`, `rank` from 1, 0 for those shown together."""
    counted = messages.groupBy("topic").agg(F.count(F.lit(1)).alias("messages"))
    place = F.row_number().over(Window.orderBy(F.desc("messages"), "topic"))
    rank = F.when(place <= MOST_TOPICS, place).otherwise(F.lit(NOT_NAMED))
    return counted.withColumn("rank", rank)


def moves(messages: DataFrame, first: int) -> DataFrame:
    """One or two rows a message that was added: `topic`, `at`, `came`, `went`, `left` (0 or 1).

    It comes when it is added; it goes when it is delivered to all, or leaves in another way. What
    was before `first` (ms) was there when that began.
    """
    gone = (
        F.when(F.col("state") == "delivered", F.col("delivered_at"))
        .when(F.col("state") == "dead", F.col("dead_at"))
        .when(F.col("state") != "outstanding", F.col("last_at"))
    )
    went = F.when(F.col("state") == "delivered", 1).otherwise(0)
    ends = F.array(
        _move(F.col("added_at"), came=F.lit(1), went=F.lit(0), left=F.lit(0)),
        # clocks differ: nothing goes before it came
        _move(F.greatest(gone, "added_at"), came=F.lit(0), went=went, left=1 - went),
    )
    known = messages.where(F.col("added_at").isNotNull())
    each = known.select("topic", "state", F.explode(ends).alias("move")).select("*", "move.*")
    real = each.where((F.col("came") == 1) | (F.col("state") != "outstanding"))
    at = F.greatest("at", F.lit(first)).alias("at")
    return real.select("topic", at, "came", "went", "left")


def _move(at: Column, *, came: Column, went: Column, left: Column) -> Column:
    return F.struct(at.alias("at"), came.alias("came"), went.alias("went"), left.alias("left"))


def outstanding(moved: DataFrame, ranks: DataFrame, span: Span) -> DataFrame:
    """One row a (`rank`, `start`) where something changed: `change`, messages that came or went."""
    named = moved.join(ranks.select("topic", "rank"), "topic")
    change = F.sum(F.col("came") - F.col("went") - F.col("left")).alias("change")
    return named.groupBy("rank", span.start_of(F.col("at")).alias("start")).agg(change)


def latencies(delivered: DataFrame, span: Span) -> DataFrame:
    """One row a step: `start`, `p50`, `p90`, `p99` (ms, interpolated), `count`, `precision`.

    `delivered` is from `first_deliveries`, and has a `latency` in each row.
    """
    return delivered.groupBy(span.start_of(F.col("at")).alias("start")).agg(
        *(F.percentile("latency", p / 100).alias(f"p{p}") for p in PERCENTS),
        F.count(F.lit(1)).alias("count"),
        F.max("precision").alias("precision"),
    )


def worst_latencies(hours: DataFrame) -> DataFrame:
    """One row an hour: `hour`, `p50`, `p90`, `p99` (ms), `precision`: of the worst subscription.

    `hours` is table `latency_hourly`.
    """
    return hours.groupBy("hour").agg(
        *(F.max(f"p{p}_ms").alias(f"p{p}") for p in PERCENTS),
        F.max("precision").alias("precision"),
    )


def latencies_by_subscription(delivered: DataFrame, most: int) -> DataFrame:
    """One row a (`topic`, `subscription`), the busiest first: as `latencies`, and `max`."""
    grouped = delivered.groupBy("topic", "subscription").agg(
        F.count(F.lit(1)).alias("count"),
        *(F.percentile("latency", p / 100).alias(f"p{p}") for p in PERCENTS),
        F.max("latency").alias("max"),
        F.max("precision").alias("precision"),
    )
    return grouped.orderBy(F.desc("count"), "topic", "subscription").limit(most)


def throughput(delivered: DataFrame, ranks: DataFrame, span: Span) -> DataFrame:
    """One row a (`rank`, `start`): `count` of first deliveries."""
    named = delivered.join(ranks.select("topic", "rank"), "topic")
    start = span.start_of(F.col("at")).alias("start")
    return named.groupBy("rank", start).agg(F.count(F.lit(1)).alias("count"))


def shards(messages: DataFrame) -> DataFrame:
    """One row a topic, of its newest epoch: `shards`, `fullest`, `most`, `mean`, `skew`.

    As `sizing` has it: skew is the fullest shard's messages by the mean over all shards, from 0 to
    the greatest number seen.
    """
    by_shard = messages.groupBy("topic", "epoch", "shard").agg(F.count(F.lit(1)).alias("n"))
    newest = Window.partitionBy("topic")
    current = by_shard.withColumn("newest", F.max("epoch").over(newest))
    current = current.where(F.col("epoch") == F.col("newest"))
    grouped = current.groupBy("topic").agg(
        (F.max("shard") + 1).alias("shards"),
        F.max_by("shard", F.struct("n", -F.col("shard"))).alias("fullest"),
        F.max("n").alias("most"),
        F.sum("n").alias("messages"),
    )
    mean = F.col("messages") / F.col("shards")
    return grouped.withColumn("mean", mean).withColumn("skew", F.col("most") / mean)


def attempts(events: DataFrame) -> DataFrame:
    """One row a (`event`, `tries`) of deliveries and deaths: `count`, by the number of attempts."""
    n = F.col("attempt")
    tries = F.when(n < 5, n.cast("string")).when(n < 10, ATTEMPTS[4]).otherwise(ATTEMPTS[5])
    ended = events.where(F.col("event").isin("delivered", "dead") & (n >= 1))
    return ended.groupBy("event", tries.alias("tries")).agg(F.count(F.lit(1)).alias("count"))


def fairness(moved: DataFrame, span: Span) -> DataFrame:
    """One row a step in which two topics or more had work: `start`, `jain`, `topics`.

    A topic's share is what was delivered of it in the step, by what it had to deliver: what was
    outstanding when the step began and what was added in it. Jain's index of the shares is 1 when
    every topic is served alike, 1/n when one of n has everything.
    """
    spark = moved.sparkSession
    starts = frame_of(spark, [(start,) for start in span.starts], "start long")
    # a topic that waits while nothing of it moves has its part in every step
    grid = moved.select("topic").distinct().crossJoin(F.broadcast(starts))
    steps = moved.groupBy("topic", span.start_of(F.col("at")).alias("start")).agg(
        *(F.sum(name).alias(name) for name in ("came", "went", "left"))
    )
    filled = grid.join(steps, ["topic", "start"], "left").na.fill(0)
    so_far = Window.partitionBy("topic").orderBy("start")
    work = (
        F.sum("came").over(so_far)
        - F.sum(F.col("went") + F.col("left")).over(so_far)
        + F.col("went")
    )
    share = F.col("went") / F.col("work")
    shares = filled.withColumn("work", work).where(F.col("work") > 0)
    jain = (F.sum(share) * F.sum(share)) / (F.count(share) * F.sum(share * share))
    grouped = shares.groupBy("start").agg(
        F.when(F.sum(share) > 0, jain).alias("jain"), F.count(F.lit(1)).alias("topics")
    )
    return grouped.where((F.col("topics") > 1) & F.col("jain").isNotNull())


def findings(found: DataFrame) -> DataFrame:
    """One row a kind: `kind`, `count`."""
    return found.groupBy("kind").agg(F.count(F.lit(1)).alias("count"))


def named_findings(found: DataFrame, most: int) -> DataFrame:
    """Keep the first findings of each kind, `most` of them, in the order of their names."""
    of_kind = Window.partitionBy("kind").orderBy("topic", "id", "subscription", "detail")
    numbered = found.withColumn("nth", F.row_number().over(of_kind))
    return numbered.where(F.col("nth") <= most).orderBy("kind", "nth")
