"""The run of a job: arguments, session, update of the tables, figures, report."""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from fairbox_pipeline.arguments import parser_of, window_of
from fairbox_pipeline.errors import EmptyArchiveError, Exit, MissingArchiveError, PipelineError
from fairbox_pipeline.exports import read_export
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.ingest import Taken, ingest
from fairbox_pipeline.outbox import read_outstanding, read_topics
from fairbox_pipeline.progress import say
from fairbox_pipeline.runs import WorkMeter
from fairbox_pipeline.schemas import (
    DAY_MS,
    EVENTS_TABLE,
    FILES_TABLE,
    HOUR_MS,
    MESSAGES_TABLE,
    RUNS_TABLE,
    UNSETTLED,
)
from fairbox_pipeline.session import open_session
from fairbox_pipeline.showing import show
from fairbox_pipeline.times import Window
from fairbox_pipeline.transforms.reconcile import latest
from fairbox_pipeline.warehouse import Warehouse, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from fairbox_pipeline.exports import Export
    from fairbox_pipeline.outbox import KnownTopic, Outstanding

Figures = dict[str, Any]
FAILURES: Final = (PipelineError, Py4JError, PySparkException, OSError)


@dataclass(frozen=True)
class Context:
    """The context of a job.

    Attributes:
        spark: the session; namespace `fairbox` is the warehouse's.
        warehouse: the tables, updated from the archive.
        options: the arguments as parsed.
        window: the part of the history that the figures describe.
        now: when the run began, ms since 1970 UTC.
        of_a_day: whether this is a day's run: what it reads does not grow with the history.
        found: figures of the jobs that ran before in the same run, by name.
    """

    spark: SparkSession
    warehouse: Warehouse
    options: argparse.Namespace
    window: Window
    now: int
    of_a_day: bool = False
    found: dict[str, Figures] = field(default_factory=dict)

    @cached_property
    def messages(self) -> DataFrame:
        """Table `messages`: those whose first event lies in the window."""
        table = self.touched if self.of_a_day else self.warehouse.read(MESSAGES_TABLE)
        return self.window.of(table, "first_at")

    @cached_property
    def touched(self) -> DataFrame:
        """The messages of the window; of a day's run all that had an event from then on.

        What was added before may be delivered in the day: late, or again. It begins with the day
        of UTC, and files without such an event are not read.
        """
        if not self.of_a_day:
            return self.messages
        first = self.since // DAY_MS * DAY_MS
        return self.warehouse.read(MESSAGES_TABLE).where(F.col("last_at") >= first).persist()

    @cached_property
    def judged(self) -> DataFrame:
        """The messages of the window; of a day's run also the unsettled ones before it."""
        if not self.of_a_day:
            return self.messages
        unsettled = F.col("state").isin(*UNSETTLED) & (F.col("first_at") < self.since)
        older = self.warehouse.read(MESSAGES_TABLE).where(unsettled)
        older = older.coalesce(self.spark.sparkContext.defaultParallelism)  # of files of many days
        return self.messages.unionByName(older.persist())

    @property
    def since(self) -> int:
        """The beginning of a day's run, ms."""
        assert self.window.since is not None
        return self.window.since

    @property
    def events(self) -> DataFrame:
        """Table `events`: those in the window."""
        return self.window.of(self.warehouse.read(EVENTS_TABLE), "at")

    @cached_property
    def _export(self) -> Export | None:
        """The export of the outbox, if one is given: of a run, its files are read once."""
        uri = self.options.outstanding
        return None if uri is None else read_export(self.spark, uri)

    @cached_property
    def topics(self) -> Mapping[str, KnownTopic]:
        """The outbox's topics by name: see `read_topics`."""
        uri = self.options.topics
        return read_topics(self.spark, uri, self._export if uri is None else None)

    @property
    def outstanding(self) -> Outstanding:
        """The messages that the outbox held: see `read_outstanding`."""
        uri, as_of = self.options.outstanding, self.options.as_of
        return read_outstanding(self.spark, uri, self._export, as_of)


def _no_arguments(_: argparse.ArgumentParser) -> None:
    """Most jobs have none of their own."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job.

    Attributes:
        name: as the command takes it.
        about: one sentence for `--help`.
        figures: does the work and returns the printed figures.
        arguments: adds the job's own to a parser.
        combined: whether the figures are those of other jobs, by their names.
        of_a_day: whether its window is a day, unless `--since` says otherwise. It succeeds also
            while nothing has ever been archived.
    """

    name: str
    about: str
    figures: Callable[[Context], Figures]
    arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments
    combined: bool = False
    of_a_day: bool = False


def combine(
    name: str,
    about: str,
    jobs: Sequence[Job],
    *,
    after: Mapping[str, Sequence[str]],
    of_a_day: bool = False,
) -> Job:
    """Return a job that runs others in one session, with one update of the tables.

    The figures of a job that fails are `failed` (one line) and `code` (with which it would have
    ended alone). The others run nevertheless, but for those that `after` puts behind it.
    """

    def arguments(parser: argparse.ArgumentParser) -> None:
        for job in jobs:
            job.arguments(parser)

    def figures(context: Context) -> Figures:
        found = context.found
        for job in jobs:
            broken = [one for one in after.get(job.name, ()) if "failed" in found[one]]
            try:
                if broken:
                    raise PipelineError(f"not run, because {broken[0]} failed")
                found[job.name] = job.figures(context)
            except FAILURES as exc:
                error = failure(exc)
                say(f"{job.name}: {error}")
                found[job.name] = {"failed": str(error), "code": int(error.exit_code)}
                context.spark.catalog.clearCache()
        return {job.name: found[job.name] for job in jobs}

    return Job(name, about, figures, arguments, combined=True, of_a_day=of_a_day)


def run(job: Job, argv: Sequence[str] | None = None) -> int:
    """Run a job and print its figures; return the exit code.

    Every job first adds the new files of the archive to the tables, as `history` does. Its figures
    describe the updated tables, or the window of them.
    """
    parser = parser_of(job.name, job.about, job.arguments)
    options = parser.parse_args(argv)
    try:
        figures = _figures(job, options, parser)
    except FAILURES as exc:
        error = failure(exc)
        say(str(error))
        return int(error.exit_code)
    parts = figures if job.combined else {job.name: figures}
    if options.json:
        sys.stdout.write(json.dumps(figures, ensure_ascii=False) + "\n")
    else:
        for name, part in parts.items():
            show(name, part)
    return next((part["code"] for part in parts.values() if "failed" in part), int(Exit.OK))


def _figures(job: Job, options: argparse.Namespace, parser: argparse.ArgumentParser) -> Figures:
    try:
        window = window_of(options)
    except argparse.ArgumentTypeError as exc:
        parser.error(str(exc))
    began = time.time()
    spark = open_session(options.warehouse)
    meter = WorkMeter(spark)
    warehouse = Warehouse(spark)
    warehouse.prepare()
    now = round(began * 1000)
    taken = _take(job, warehouse, options.archive, now)
    _warn(taken)
    if job.of_a_day and window.since is None:
        window = _day_before(warehouse, window.until, now)
    context = Context(spark, warehouse, options, window, now, of_a_day=job.of_a_day)
    try:
        figures = job.figures(context)
    finally:
        spark.catalog.clearCache()
    _report(job, warehouse, taken, meter, began)
    return figures


def _take(job: Job, warehouse: Warehouse, archive: str, now: int) -> Taken:
    """Update the tables; take nothing from an archive that has not begun, if the job allows it."""
    try:
        return ingest(warehouse, archive, now, of_a_day=job.of_a_day)
    except (EmptyArchiveError, MissingArchiveError) as exc:
        if not job.of_a_day or warehouse.count(FILES_TABLE):
            raise
        say(f"{exc}; nothing has been archived yet")
        return Taken()


def _day_before(warehouse: Warehouse, until: int | None, now: int) -> Window:
    """Return the day before a time (ms), or the last one of the archive, from a full hour on."""
    if until is not None:
        return Window(until - DAY_MS, until)
    end = latest(warehouse.read(MESSAGES_TABLE), now)
    return Window(-((DAY_MS - end) // HOUR_MS) * HOUR_MS)


def _warn(taken: Taken) -> None:
    if taken.missing_days:
        days = ", ".join(taken.missing_days[:10])
        more = len(taken.missing_days) - 10
        say(f"no file of {days}" + (f" and {more} days more" if more > 0 else ""))


def _report(job: Job, warehouse: Warehouse, taken: Taken, meter: WorkMeter, began: float) -> None:
    """Write the run into table `runs` and print it."""
    work, ended = meter.read(), time.time()
    times = {"began": round(began * 1000), "ended": round(ended * 1000)}
    read = {"files": taken.files, "lines": taken.lines}
    row = {"run": str(uuid.uuid4()), "job": job.name, **times, **read, **work}
    values = tuple(row[name] for name in RUNS_TABLE.names)
    warehouse.append(RUNS_TABLE, frame_of(warehouse.spark, [values], RUNS_TABLE.schema))
    say(
        f"{job.name}: {taken.lines:,} lines of {taken.files:,} files in {ended - began:.1f} s; "
        f"{work['stages']} stages read {work['input_rows']:,} rows, shuffled "
        f"{work['shuffle_bytes'] / 1e6:,.1f} MB, spilled {work['spill_bytes'] / 1e6:,.1f} MB"
    )
