"""Job `report`: one self-contained HTML page with the plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline.job import Context, Figures, Job
from fairbox_pipeline.jobs import advise, sizing
from fairbox_pipeline.report.page import Tables, contents, render
from fairbox_pipeline.schemas import (
    BATCHES_TABLE,
    DAY_MS,
    FINDINGS_TABLE,
    LATENCY_TABLE,
    RUNS_TABLE,
)
from fairbox_pipeline.session import location
from fairbox_pipeline.transforms.latency import first_deliveries

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "report.html"
HOURS_SHOWN_MS: Final = 30 * DAY_MS
"""Before the window of a day's run."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's own arguments."""
    advise.JOB.arguments(parser)
    parser.add_argument(
        "--page", type=location, metavar="URI", help=f"where it goes ({NAME} in the warehouse)"
    )


def figures(context: Context) -> Figures:
    """Write the page; return its path."""
    read = context.warehouse.read
    tables = Tables(
        messages=context.messages,
        judged=context.judged,
        deliveries=first_deliveries(context.messages),
        findings=read(FINDINGS_TABLE),
        batches=read(BATCHES_TABLE),
        topics=sizing.figures(context)["topics"],
        is_reconciled=_is_reconciled(context),
        hours=_hours(context),
    )
    page = render(contents(tables) | advise.figures(context))
    given: str | None = context.options.page
    place = given or f"{context.options.warehouse}/{NAME}"
    _write_file(context.spark, place, page.encode())
    return {"page": place}


def _hours(context: Context) -> DataFrame | None:
    """Return the hourly latencies of the days before a day's run; None: it shows all days."""
    since = context.window.since
    if not context.of_a_day or since is None:
        return None
    before = F.col("hour").between(since - HOURS_SHOWN_MS, since - 1)
    return context.warehouse.read(LATENCY_TABLE).where(before)


def _is_reconciled(context: Context) -> bool:
    """Whether a run of `reconcile` has filled table `findings`: this one, or one before."""
    jobs = ("reconcile", "all", "daily")
    runs = context.warehouse.read(RUNS_TABLE)
    return "reconcile" in context.found or not runs.where(F.col("job").isin(*jobs)).isEmpty()


def _write_file(spark: SparkSession, uri: str, content: bytes) -> None:
    """Write a file atomically.

    Raises:
        Py4JJavaError: it could not be written.
    """
    context: Any = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001 - Python has no other door to Hadoop's file systems
    paths = jvm.org.apache.hadoop.fs
    path, partial = paths.Path(uri), paths.Path(f"{uri}.new")
    system = path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001 - as above
    stream = system.create(partial, True)
    try:
        stream.write(content)
    finally:
        stream.close()
    system.delete(path, False)
    if not system.rename(partial, path):
        raise OSError(f"{uri} could not be put into its place")


JOB: Final = Job("report", "Write one HTML page with the plots.", figures, arguments)
