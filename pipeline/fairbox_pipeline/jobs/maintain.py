"""Job `maintain`: files merged by day, old snapshots and orphans removed, rows of an age or a key.

By Iceberg's own procedures: each is one commit or none, and may be repeated.
"""

from __future__ import annotations

import argparse
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline.erasure import erase_lines
from fairbox_pipeline.errors import UsageError
from fairbox_pipeline.ingest import refresh_messages
from fairbox_pipeline.job import Context, Figures, Job
from fairbox_pipeline.schemas import (
    DAY_MS,
    EVENTS_TABLE,
    KEY,
    LATENCY_TABLE,
    MESSAGES_TABLE,
    REPLAYS_TABLE,
    RUNS_TABLE,
    TABLES,
)

if TYPE_CHECKING:
    from fairbox_pipeline.schemas import Table
    from fairbox_pipeline.warehouse import Warehouse

_AGES: Final = (
    (EVENTS_TABLE, "at"),
    (MESSAGES_TABLE, "last_at"),
    (LATENCY_TABLE, "hour"),
    (REPLAYS_TABLE, "planned_at"),
    (RUNS_TABLE, "ended"),
)
"""The time (ms) by which a table's rows are too old."""
_ERASED: Final = (EVENTS_TABLE, MESSAGES_TABLE, REPLAYS_TABLE)
_IS_ERASED: Final = (
    "EXISTS (SELECT 1 FROM erased e WHERE e.topic = t.topic AND e.epoch = t.epoch "
    "AND e.shard = t.shard AND e.id = t.id)"
)
MAINTAINED_PROPERTY: Final = "fairbox.maintained"
"""Of table `events`: when all tables were last maintained, ms."""
_SNAPSHOTS_LAST: Final = timedelta(days=1)
"""A query that reads a snapshot has ended by then."""
_ORPHANS_LAST: Final = timedelta(days=3)
"""A run that writes a file has committed it by then, or was killed."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's own arguments."""
    _add_retention(parser)
    parser.add_argument(
        "--erase-key",
        metavar="KEY",
        help="delete the messages with this partition key, in the archive too",
    )
    parser.add_argument("--topic", metavar="T", help="with --erase-key: of this topic alone")


def _add_retention(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--retain",
        type=_days,
        metavar="DAYS",
        help="delete events, messages, plans of replays and runs that are older",
    )


def _weekly_arguments(parser: argparse.ArgumentParser) -> None:
    _add_retention(parser)
    parser.add_argument(
        "--maintain-every",
        type=_days,
        metavar="DAYS",
        help="maintain the tables if they were not for so long; never by default",
    )


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 36_500:
        raise argparse.ArgumentTypeError(f"not a number of days from 1: {text!r}")
    return int(text)


def figures(context: Context) -> Figures:
    """Delete what is asked for, then maintain each table; return what changed.

    Raises:
        UsageError: `--topic` without `--erase-key`.
    """
    options = context.options
    erases = options.erase_key is not None
    if options.topic is not None and not erases:
        raise UsageError("--topic goes with --erase-key")
    erased = _erase(context) if erases else {"erased": 0, "erased_files": 0}
    return {**erased, **_maintained(context, at_once=erases)}


def figures_when_due(context: Context) -> Figures:
    """Maintain the tables if it is time; else return when they were."""
    every = context.options.maintain_every
    last = int(context.warehouse.property_of(EVENTS_TABLE, MAINTAINED_PROPERTY) or 0)
    # a run that begins a little earlier than the one a week ago is not put off for a day
    if every is None or context.now - last < every * DAY_MS - DAY_MS // 2:
        return {"maintained_at": last or None, "tables": []}
    return _maintained(context, at_once=False)


def _maintained(context: Context, *, at_once: bool) -> Figures:
    """Delete what is too old, and maintain each table; `at_once`: keep no older snapshot."""
    options, warehouse = context.options, context.warehouse
    found: Figures = {"maintained_at": context.now}
    if options.retain is not None:
        found["retained_since"] = before = (context.now // DAY_MS - options.retain) * DAY_MS
        for table, column in _AGES:
            warehouse.delete(table, f"t.{column} < {before}")
    now = datetime.fromtimestamp(context.now / 1000, UTC)
    # a later time is that of every snapshot, this run's own as well
    keep = now + _SNAPSHOTS_LAST if at_once else now - _SNAPSHOTS_LAST
    found["tables"] = [
        _maintain(context, table, keep, now - _ORPHANS_LAST)
        for table in TABLES
        if warehouse.current(table).before is not None  # nothing was ever written to the others
    ]
    warehouse.set_property(EVENTS_TABLE, MAINTAINED_PROPERTY, str(context.now))
    return found


def _erase(context: Context) -> Figures:
    """Delete the messages of a key, and their events; return how many, and of how many files.

    The archive comes first: the tables know its lines' messages until all of them are gone.
    """
    options, warehouse = context.options, context.warehouse
    named = F.col("partition_key") == options.erase_key
    if options.topic is not None:
        named &= F.col("topic") == options.topic
    keys = warehouse.read(MESSAGES_TABLE).where(named).select(*KEY).localCheckpoint()
    keys.createOrReplaceTempView("erased")
    # what a killed run leaves there is removed as an orphan, days later
    folder = f"{warehouse.location(EVENTS_TABLE)}/erasure-{uuid.uuid4()}"
    files = erase_lines(context.spark, options.archive, folder, keys, named)
    for table in _ERASED:
        warehouse.delete(table, _IS_ERASED)
    return {"erased": keys.count(), "erased_files": files}


def _maintain(context: Context, table: Table, keep: datetime, orphans: datetime) -> dict[str, Any]:
    """Merge a table's files by partition; remove old snapshots, and files of no snapshot."""
    warehouse: Warehouse = context.warehouse
    before = warehouse.count(table, "data-files")
    merge = "options => map('min-input-files', '2', 'partial-progress.enabled', 'true')"
    warehouse.call("rewrite_data_files", table, merge)
    if table is EVENTS_TABLE:
        # the messages stand by a commit of events: by one that will be known
        refresh_messages(warehouse)
    snapshots = warehouse.call(
        "expire_snapshots", table, f"older_than => {_sql(keep)}, retain_last => 1"
    )
    removed = warehouse.call("remove_orphan_files", table, f"older_than => {_sql(orphans)}")
    return {
        "table": table.name,
        "files_before": before,
        "files": warehouse.count(table, "data-files"),
        "removed_files": sum(snapshots[0]) if snapshots else 0,
        "orphans": len(removed),
    }


def _sql(moment: datetime) -> str:
    return f"TIMESTAMP '{moment.strftime('%Y-%m-%d %H:%M:%S.%f')}'"


JOB: Final = Job("maintain", "Merge files, and remove what is old.", figures, arguments)
WEEKLY: Final = replace(JOB, figures=figures_when_due, arguments=_weekly_arguments)
"""The job beside others, when it is due."""
