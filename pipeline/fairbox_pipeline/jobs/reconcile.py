"""Job `reconcile`: messages lost, duplicated, out of order, stuck, or in a wrong shard."""

from __future__ import annotations

import argparse
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fairbox_pipeline.arguments import add_outbox, moment_ms
from fairbox_pipeline.errors import UsageError
from fairbox_pipeline.job import Context, Figures, Job
from fairbox_pipeline.outbox import widths_of
from fairbox_pipeline.progress import say
from fairbox_pipeline.schemas import EVENTS_TABLE, FINDING_KINDS, FINDINGS_TABLE, MESSAGES_TABLE
from fairbox_pipeline.times import iso_time
from fairbox_pipeline.transforms import reconcile as found
from fairbox_pipeline.transforms.latency import first_deliveries

if TYPE_CHECKING:
    from fairbox_pipeline.outbox import Outstanding

STUCK_AFTER_SECONDS: Final = 3600.0
STATES: Final = ("delivered", "dead", "cancelled", "purged", "expired")


def figures(context: Context) -> Figures:
    """Count states and findings, and put each finding into table `findings`.

    Raises:
        UsageError: the snapshot is older than the whole archive.
    """
    tables, options = context.warehouse, context.options
    judged, touched = context.judged, context.touched
    held = context.outstanding
    if options.outstanding is None:
        say("no --outstanding: every message that is not settled counts as lost")
    _check_age(context.warehouse.read(MESSAGES_TABLE), held)
    outstanding = held.messages.cache()
    counted = judged.groupBy("state").agg(F.count(F.lit(1)), F.count("added_at")).collect()
    states = {state: count for state, count, _ in counted}
    widths = widths_of(context.spark, context.topics, touched)
    as_of, after_ms = held.as_of, options.stuck_after * 1000
    end = found.latest(judged, context.now) if as_of is None else as_of
    every = [
        found.lost(judged, outstanding, as_of),
        found.duplicated(touched, tables.read(EVENTS_TABLE)),
        found.out_of_order(first_deliveries(touched)),
        found.stuck(judged, outstanding, end, after_ms, as_of),
        found.wrong_shard(touched, widths),
    ]
    tables.replace(FINDINGS_TABLE, reduce(DataFrame.unionByName, every))
    by_kind = tables.read(FINDINGS_TABLE).groupBy("kind").count().collect()
    kinds: dict[str, int] = {row["kind"]: row["count"] for row in by_kind}
    return {
        "added": sum(added for _, _, added in counted),
        "outstanding": outstanding.count(),
        **{state: states.get(state, 0) for state in STATES},
        **{kind: kinds.get(kind, 0) for kind in FINDING_KINDS},
    }


def _check_age(messages: DataFrame, held: Outstanding) -> None:
    """Refuse a snapshot by which nothing can be judged."""
    if held.as_of is None:
        return
    first = messages.agg(F.min("first_at")).collect()[0][0]
    if first is not None and first > held.as_of:
        raise UsageError(
            f"--outstanding: the snapshot of {iso_time(held.as_of)} is older than the archive, "
            f"which begins at {iso_time(first)}"
        )


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_outbox(parser)
    parser.add_argument(
        "--as-of",
        type=moment_ms,
        metavar="T",
        help="when the list of --outstanding was made: findings are judged as of then; an export "
        "has its own time",
    )
    parser.add_argument(
        "--stuck-after",
        type=_seconds,
        default=STUCK_AFTER_SECONDS,
        metavar="SECONDS",
        help="a message that has been due for longer is stuck (default 3600)",
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return seconds


JOB: Final = Job(
    "reconcile", "Name what was lost, duplicated, out of order or is stuck.", figures, _arguments
)
