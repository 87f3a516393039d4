"""The run of a job: arguments, session, update of the tables, figures, report."""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from fairbox_pipeline.arguments import parser_of, window_of
from fairbox_pipeline.errors import EmptyArchiveError, Exit, MissingArchiveError, PipelineError
from fairbox_pipeline.ingest import Taken, ingest
from fairbox_pipeline.progress import Teller
from fairbox_pipeline.runs import WorkMeter, row_of
from fairbox_pipeline.schemas import EVENTS_TABLE, FILES_TABLE, MESSAGES_TABLE, RUNS_TABLE
from fairbox_pipeline.session import open_session
from fairbox_pipeline.showing import show
from fairbox_pipeline.warehouse import Warehouse, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from fairbox_pipeline.windows import Window

Figures = dict[str, Any]
FAILURES: Final = (PipelineError, Py4JError, PySparkException, OSError)


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a job.

    Attributes:
        spark: the session; namespace `fairbox` is the warehouse's.
        warehouse: the tables, updated from the archive.
        options: the arguments as parsed.
        teller: prints progress to standard error.
        window: the part of the history that the figures describe.
        now: when the run began, ms since 1970 UTC.
        found: figures of the jobs that ran before in the same run, by name.
    """

    spark: SparkSession
    warehouse: Warehouse
    options: argparse.Namespace
    teller: Teller
    window: Window
    now: int
    found: Mapping[str, Figures] = field(default_factory=dict)

    def messages(self) -> DataFrame:
        """Return table `messages`: those whose first event lies in the window."""
        return self.window.of(self.warehouse.read(MESSAGES_TABLE), "first_at")

    def events(self) -> DataFrame:
        """Return table `events`: those in the window."""
        return self.window.of(self.warehouse.read(EVENTS_TABLE), "at")


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
        before_archive: whether it succeeds while nothing has ever been archived.
    """

    name: str
    about: str
    figures: Callable[[Context], Figures]
    arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments
    combined: bool = False
    before_archive: bool = False


def combine(
    name: str,
    about: str,
    jobs: Sequence[Job],
    *,
    after: Mapping[str, Sequence[str]],
    before_archive: bool = False,
) -> Job:
    """Return a job that runs others in one session, with one update of the tables.

    The figures of a job that fails are `failed` (one line) and `code` (with which it would have
    ended alone). The others run nevertheless, but for those that `after` puts behind it.
    """

    def arguments(parser: argparse.ArgumentParser) -> None:
        for job in jobs:
            job.arguments(parser)

    def figures(context: Context) -> Figures:
        found: dict[str, Figures] = {}
        for job in jobs:
            broken = [one for one in after.get(job.name, ()) if "failed" in found[one]]
            try:
                if broken:
                    raise PipelineError(f"not run, because {broken[0]} failed")
                with context.teller.step(job.name):
                    found[job.name] = job.figures(replace(context, found=found))
            except FAILURES as exc:
                error = one_line(exc)
                context.teller.say(f"{job.name}: {error}")
                context.spark.catalog.clearCache()
                found[job.name] = {"failed": str(error), "code": int(error.exit_code)}
        return found

    return Job(name, about, figures, arguments, combined=True, before_archive=before_archive)


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
        error = one_line(exc)
        Teller().say(str(error))
        return int(error.exit_code)
    parts = figures if job.combined else {job.name: figures}
    if options.json:
        sys.stdout.write(json.dumps(figures, ensure_ascii=False) + "\n")
    else:
        for name, part in parts.items():
            show(name, part)
    return next((part["code"] for part in parts.values() if "failed" in part), int(Exit.OK))


def one_line(exc: BaseException) -> PipelineError:
    """Return a failure as an error whose message is one line."""
    return exc if isinstance(exc, PipelineError) else failure(exc)


def _figures(job: Job, options: argparse.Namespace, parser: argparse.ArgumentParser) -> Figures:
    try:
        window = window_of(options)
    except argparse.ArgumentTypeError as exc:
        parser.error(str(exc))
    began = time.time()
    spark = open_session(options.warehouse)
    teller, meter = Teller(spark), WorkMeter(spark)
    warehouse = Warehouse(spark)
    warehouse.prepare()
    taken = _take(job, warehouse, options.archive, teller)
    _warn(taken, teller)
    with teller.step(job.name):
        now = round(began * 1000)
        figures = job.figures(Context(spark, warehouse, options, teller, window, now))
    _report(job, warehouse, taken, meter, began)
    return figures


def _take(job: Job, warehouse: Warehouse, archive: str, teller: Teller) -> Taken:
    """Update the tables; take nothing from an archive that has not begun, if the job allows it."""
    try:
        return ingest(warehouse, archive, teller)
    except (EmptyArchiveError, MissingArchiveError) as exc:
        if not job.before_archive or warehouse.count(FILES_TABLE):
            raise
        teller.say(f"{exc}; nothing has been archived yet")
        return Taken()


def _warn(taken: Taken, teller: Teller) -> None:
    for uri, why in sorted(taken.damaged.items()):
        teller.say(f"damaged file {uri}: {why}; what could be read is in the tables")
    if taken.missing_days:
        days = ", ".join(taken.missing_days[:10])
        more = len(taken.missing_days) - 10
        teller.say(f"no file of {days}" + (f" and {more} days more" if more > 0 else ""))


def _report(job: Job, warehouse: Warehouse, taken: Taken, meter: WorkMeter, began: float) -> None:
    """Write the run into table `runs` and print it."""
    work = meter.read()
    ended = time.time()
    row = row_of(
        warehouse.spark,
        work=work,
        run=str(uuid.uuid4()),
        job=job.name,
        began=round(began * 1000),
        ended=round(ended * 1000),
        files=taken.files,
        lines=taken.lines,
    )
    warehouse.append(RUNS_TABLE, row)
    Teller().say(
        f"{job.name}: {taken.lines:,} lines of {taken.files:,} files in {ended - began:.1f} s; "
        f"{work.stages} stages read {work.input_rows:,} rows, shuffled "
        f"{work.shuffle_bytes / 1e6:,.1f} MB, spilled {work.spill_bytes / 1e6:,.1f} MB; "
        f"skew {work.skew or 1.0}"
    )
