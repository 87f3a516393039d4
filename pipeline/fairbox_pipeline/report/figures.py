"""Figures of the report as small tables: each is a DataFrame step over the warehouse's tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.schemas import PERCENTS
from fairbox_pipeline.transforms.latency import measures

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame

MOST_POINTS: Final = 120
MOST_TOPICS: Final = 7
OTHERS: Final = "other topics"
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


def line_of(named: Collection[str]) -> Column:
    """Return the line of a topic: its own, or that of the others."""
    topic = F.col("topic")
    return F.when(topic.isin(*named), topic).otherwise(OTHERS).alias("line")


def moves(messages: DataFrame, first: int) -> DataFrame:
    """One or two rows a message that was added: `topic`, `at`, `came`, `went`, `left` (0 or 1).

    It comes when it is added; it goes when it is delivered to all, or leaves in another way. What
    was before `first` (ms) was there when that began.
    """
    state = F.col("state")
    gone = (
        F.when(state == "delivered", F.col("delivered_at"))
        .when(state == "dead", F.col("dead_at"))
        .otherwise(F.col("last_at"))
    )
    went = (state == "delivered").cast("int")

    def move(at: Column, came: Column, went: Column, left: Column) -> Column:
        named = zip(("at", "came", "went", "left"), (at, came, went, left), strict=True)
        return F.struct(*(value.alias(name) for name, value in named))

    came = move(F.col("added_at"), F.lit(1), F.lit(0), F.lit(0))
    # clocks differ: nothing goes before it came
    ended = move(F.greatest(gone, "added_at"), F.lit(0), went, 1 - went)
    both = F.array_compact(F.array(came, F.when(state != "outstanding", ended)))
    known = messages.where(F.col("added_at").isNotNull())
    each = known.select("topic", F.explode(both).alias("move")).select("topic", "move.*")
    return each.withColumn("at", F.greatest("at", F.lit(first)))


def outstanding(moved: DataFrame, named: Collection[str], span: Span) -> DataFrame:
    """One row a (`line`, `start`) where something changed: `value`, messages that came or went."""
    change = F.sum(F.col("came") - F.col("went") - F.col("left")).alias("value")
    return moved.groupBy(line_of(named), span.start_of(F.col("at")).alias("start")).agg(change)


def throughput(delivered: DataFrame, named: Collection[str], span: Span) -> DataFrame:
    """One row a (`line`, `start`): `value`, the number of first deliveries."""
    start = span.start_of(F.col("at")).alias("start")
    return delivered.groupBy(line_of(named), start).agg(F.count(F.lit(1)).alias("value"))


def latencies(delivered: DataFrame, span: Span) -> DataFrame:
    """One row a step: `start`, and `measures` of its deliveries.

    `delivered` is from `first_deliveries`, and has a `latency` in each row.
    """
    return delivered.groupBy(span.start_of(F.col("at")).alias("start")).agg(*measures())


def worst_latencies(hours: DataFrame, span: Span) -> DataFrame:
    """One row a step of table `latency_hourly`: `start`, `p50_ms`, `p90_ms`, `p99_ms`, `precision`.

    Those of its worst hour and subscription.
    """
    names = (*(f"p{percent}_ms" for percent in PERCENTS), "precision")
    worst = [F.max(name).alias(name) for name in names]
    return hours.groupBy(span.start_of(F.col("hour")).alias("start")).agg(*worst)


def latencies_by_subscription(delivered: DataFrame, most: int) -> DataFrame:
    """One row a (`topic`, `subscription`), the busiest first: as `latencies`."""
    grouped = delivered.groupBy("topic", "subscription").agg(*measures())
    return grouped.orderBy(F.desc("count"), "topic", "subscription").limit(most)


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


def named_findings(found: DataFrame, most: int) -> DataFrame:
    """Keep the first findings of each kind, `most` of them, in the order of their names."""
    of_kind = Window.partitionBy("kind").orderBy("topic", "id", "subscription", "detail")
    numbered = found.withColumn("nth", F.row_number().over(of_kind))
    return numbered.where(F.col("nth") <= most).orderBy("kind", "nth")
