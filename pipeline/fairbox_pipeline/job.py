"""The run of a job: arguments, session, update of the tables, figures, report."""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from fairbox_pipeline.arguments import parser_of, window_of
from fairbox_pipeline.errors import Exit, PipelineError
from fairbox_pipeline.ingest import Taken, ingest
from fairbox_pipeline.progress import Teller
from fairbox_pipeline.runs import WorkMeter, row_of
from fairbox_pipeline.schemas import RUNS_TABLE
from fairbox_pipeline.session import open_session
from fairbox_pipeline.showing import show
from fairbox_pipeline.warehouse import Warehouse, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a job.

    Attributes:
        spark: the session; namespace `fairbox` is the warehouse's.
        warehouse: the tables, updated from the archive.
        options: the arguments as parsed.
        teller: prints progress to standard error.
    """

    spark: SparkSession
    warehouse: Warehouse
    options: argparse.Namespace
    teller: Teller


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
    """

    name: str
    about: str
    figures: Callable[[Context], Figures]
    arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments


def run(job: Job, argv: Sequence[str] | None = None) -> int:
    """Run a job and print its figures; return the exit code.

    Every job first adds the new files of the archive to the tables, as `history` does; its
    figures describe the updated tables.
    """
    parser = parser_of(job.name, job.about, job.arguments)
    options = parser.parse_args(argv)
    try:
        figures = _figures(job, options, parser)
    except PipelineError as exc:
        Teller().say(str(exc))
        return int(exc.exit_code)
    except (Py4JJavaError, PySparkException) as exc:
        Teller().say(str(failure(exc)))
        return int(Exit.FAILED)
    if options.json:
        sys.stdout.write(json.dumps(figures, ensure_ascii=False) + "\n")
    else:
        show(job.name, figures)
    return int(Exit.OK)


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
    taken = ingest(warehouse, options.archive, window, teller)
    _warn(taken, teller)
    with teller.step(job.name):
        figures = job.figures(Context(spark, warehouse, options, teller))
    _report(job, warehouse, taken, meter, began)
    return figures


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
