"""Job `reconcile`: messages lost, duplicated, out of order, stuck, or in a wrong shard."""

from __future__ import annotations

import argparse
import sys
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fairbox_pipeline.arguments import add_outstanding
from fairbox_pipeline.job import Context, Figures, Job, run
from fairbox_pipeline.outstanding import read_outstanding
from fairbox_pipeline.schemas import EVENTS_TABLE, FINDINGS_TABLE
from fairbox_pipeline.transforms import reconcile as found
from fairbox_pipeline.transforms.deliveries import first_deliveries

if TYPE_CHECKING:
    from collections.abc import Sequence

STUCK_AFTER_SECONDS: Final = 3600.0
STATES: Final = ("delivered", "dead", "cancelled", "purged", "expired")
KINDS: Final = ("lost", "duplicated", "out_of_order", "stuck", "wrong_shard")


def figures(context: Context) -> Figures:
    """Count states and findings, and put each finding into table `findings`."""
    tables = context.warehouse
    messages = context.messages()
    given = context.options.outstanding
    outstanding = read_outstanding(context.spark, given, context.teller.say).cache()
    if context.options.outstanding is None:
        context.teller.say("no --outstanding: every message that is not settled counts as lost")
    counted = messages.groupBy("state").agg(F.count(F.lit(1)), F.count("added_at")).collect()
    states = {state: count for state, count, _ in counted}
    tables.replace(FINDINGS_TABLE, findings(context, messages, outstanding))
    by_kind = tables.read(FINDINGS_TABLE).groupBy("kind").count().collect()
    kinds: dict[str, int] = {row["kind"]: row["count"] for row in by_kind}
    held = outstanding.count()
    outstanding.unpersist()
    return {
        "added": sum(added for _, _, added in counted),
        "outstanding": held,
        **{state: states.get(state, 0) for state in STATES},
        **{kind: kinds.get(kind, 0) for kind in KINDS},
    }


def findings(context: Context, messages: DataFrame, outstanding: DataFrame) -> DataFrame:
    """Return the rows of table `findings`."""
    events = context.warehouse.read(EVENTS_TABLE)
    latest = found.latest(messages, context.now)
    after_ms = context.options.stuck_after * 1000
    return reduce(
        DataFrame.unionByName,
        [
            found.lost(messages, outstanding),
            found.duplicated(messages, events),
            found.out_of_order(first_deliveries(messages)),
            found.stuck(messages, outstanding, latest, after_ms),
            found.wrong_shard(messages),
        ],
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_outstanding(parser)
    parser.add_argument(
        "--stuck-after",
        type=_seconds,
        default=STUCK_AFTER_SECONDS,
        metavar="SECONDS",
        help="a message older than that is stuck (default 3600)",
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return seconds


JOB: Final = Job(
    "reconcile", "Name what was lost, duplicated, out of order or is stuck.", figures, _arguments
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; return the exit code."""
    return run(JOB, argv)


if __name__ == "__main__":
    sys.exit(main())
