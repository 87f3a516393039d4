"""Job `batches`: batch progress rebuilt from the history and compared with the trackers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from fairbox_pipeline import exports
from fairbox_pipeline.errors import UsageError
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.job import Context, Figures, Job
from fairbox_pipeline.schemas import BATCHES_TABLE, MESSAGES_TABLE
from fairbox_pipeline.session import location
from fairbox_pipeline.transforms import batches
from fairbox_pipeline.transforms.reconcile import CLOCKS_MS

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame

NAMED: Final = 100
"""Number of differing items named in the figures; the table counts all."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's own arguments."""
    parser.add_argument(
        "--trackers",
        type=location,
        metavar="URI",
        help="export of the batches table",
    )


def figures(context: Context) -> Figures:
    """Rebuild, compare, write table `batches`, and return the figures."""
    items, lines = _items(context), frame_of(context.spark, [], exports.LINE)
    if context.options.trackers:
        export = exports.read_export(context.spark, context.options.trackers)
        if export is None:
            raise UsageError(f"--trackers: there is no export at {context.options.trackers}")
        lines = export.lines
    trackers = exports.trackers(lines)
    leaves = batches.leaves_of(trackers).persist()
    roots = batches.trackers_by_batch(trackers, leaves).persist()
    compared = batches.tracked(items, leaves, roots).persist()
    context.warehouse.replace(BATCHES_TABLE, batches.by_batch(compared, roots))
    odd = [row.asDict() for row in batches.differing(compared, NAMED).collect()]
    rows = context.warehouse.read(BATCHES_TABLE).orderBy("batch").collect()
    seen = context.messages if context.of_a_day else context.warehouse.read(MESSAGES_TABLE)
    malformed = batches.malformed_items(seen).orderBy("batch_item")
    return {
        "batches": [_shown(row.asDict(recursive=True)) for row in rows],
        "differing_items": odd,
        "malformed_items": [row.asDict() for row in malformed.limit(NAMED).collect()],
    }


def _items(context: Context) -> DataFrame:
    """Return the items of all batches; in a day's run, of those that the day's messages carry."""
    messages = context.warehouse.read(MESSAGES_TABLE)
    if not context.of_a_day:
        return batches.items_of(messages)
    current = batches.batches_of(context.messages)
    opened = batches.opened(current)
    # no message carries an item of a batch before that is opened
    since = F.lit(False) if opened is None else F.col("first_at") >= opened - CLOCKS_MS
    return batches.items_of(messages.where(since)).join(current, "batch", "left_semi")


def _shown(row: dict[str, object]) -> dict[str, object]:
    return {"id": row.pop("batch"), **row}


JOB: Final = Job(
    "batches", "Rebuild the progress of batches, and compare it with trackers.", figures, arguments
)
