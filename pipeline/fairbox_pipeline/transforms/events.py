"""Lines of the archive to events: each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fairbox_pipeline.columns import EVENT, MALFORMED
from fairbox_pipeline.schemas import EVENTS_TABLE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def events_between(lines: DataFrame, since: int | None, until: int | None) -> DataFrame:
    """Keep the lines that are events with `since` <= `at` < `until` (ms; None: open)."""
    events = lines.where(F.col("kind") == EVENT)
    if since is not None:
        events = events.where(F.col("at") >= since)
    if until is not None:
        events = events.where(F.col("at") < until)
    return events


def first_of_each(events: DataFrame) -> DataFrame:
    """Keep one line an `event_id`, the first by file and line, in the columns of `events`."""
    order = Window.partitionBy("event_id").orderBy("uri", "line")
    numbered = events.withColumn("repetition", F.row_number().over(order))
    return numbered.where(F.col("repetition") == 1).select(*EVENTS_TABLE.names)


def not_in(events: DataFrame, known: DataFrame) -> DataFrame:
    """Drop the events whose `event_id` stands in `known`."""
    return events.join(known.select("event_id"), "event_id", "left_anti").select(*events.columns)


def malformed_lines(lines: DataFrame, archive: str) -> DataFrame:
    """Keep the lines that are no events, in the columns of `malformed`."""
    return lines.where(F.col("kind") == MALFORMED).select(
        name_in_archive(F.col("uri"), archive).alias("file"),
        "line",
        "digest",
        F.col("fault").alias("reason"),
        "text",
        "cut",
    )


def name_in_archive(uri: Column, archive: str) -> Column:
    """Return a file's name from its `dt=` folder on, or below the archive's root.

    So a line has one name, whether its day's folder was read alone or the whole archive.
    """
    from_day = F.regexp_extract(uri, "/(dt=[^/]*/.*)$", 1)
    below = F.substring_index(uri, archive.rstrip("/") + "/", -1)
    return F.when(from_day != "", from_day).otherwise(below)
