"""Lines of the archive to events: each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fairbox_pipeline.lines import MALFORMED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def repeated_lines(events: DataFrame, known: DataFrame) -> DataFrame:
    """Return `uri` and `line` of the events to drop: known ones, and all but the first of each.

    The first of an `event_id` is that by file and line. Both frames need `event_id` alone; `events`
    has `uri` and `line` as well. One shuffle, of these columns.
    """
    nowhere = [
        F.lit(None).cast(kind).alias(n) for n, kind in (("uri", "string"), ("line", "bigint"))
    ]
    status = known.select("event_id", *nowhere)
    order = Window.partitionBy("event_id").orderBy("uri", "line")  # nulls first: those that stand
    numbered = (
        events.select("event_id", "uri", "line")
        .unionByName(status)
        .withColumn("nth", F.row_number().over(order))
    )
    return numbered.where((F.col("nth") > 1) & F.col("uri").isNotNull()).select("uri", "line")


def malformed_lines(lines: DataFrame, archive: str) -> DataFrame:
    """Keep the lines that are no events, in the columns of `malformed`."""
    return lines.where(F.col("kind") == MALFORMED).select(
        name_in_archive(F.col("uri"), archive).alias("file"),
        "line",
        "digest",
        F.col("fault").alias("reason"),
        "text",
    )


def name_in_archive(uri: Column, archive: str) -> Column:
    """Return a file's name from its `dt=` folder on, or below the archive's root.

    So a line has one name, whether its day's folder was read alone or the whole archive.
    """
    from_day = F.regexp_extract(uri, "/(dt=[^/]*/.*)$", 1)
    below = F.substring_index(uri, archive.rstrip("/") + "/", -1)
    return F.when(from_day != "", from_day).otherwise(below)
