"""Update of the tables from an archive: events, malformed lines, messages.

The order of the commits makes a crash harmless. Events first, each once by `event_id`; then
malformed lines, each once by file, line and digest; then the list of files read: a file is listed
only when all of it is in the tables, so after a crash it is read again and adds nothing twice.
Messages follow events by commit: each row of `messages` remembers up to which commit of `events` it
stands.
"""

from __future__ import annotations

import operator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline.errors import EmptyArchiveError, MissingArchiveError
from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.lines import EVENT
from fairbox_pipeline.progress import say
from fairbox_pipeline.reading import list_files, one_file_a_batch, read_archive
from fairbox_pipeline.schemas import (
    DAY_MS,
    EVENTS_TABLE,
    FILES_TABLE,
    KEY,
    MALFORMED_TABLE,
    MESSAGES_TABLE,
)
from fairbox_pipeline.transforms.events import malformed_lines, repeated_lines
from fairbox_pipeline.transforms.messages import merged, messages_of
from fairbox_pipeline.warehouse import FOLDED_PROPERTY, NEW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, Row, SparkSession

    from fairbox_pipeline.warehouse import Commit, Warehouse

_FOR_MESSAGES: Final = (
    *("event", "at", "event_id", *KEY, "partition_key", "content_type", "size", "batch_item"),
    *("ordering", "due", "subscription", "destination", "attempt", "reason", "precision"),
)
PORTION_BYTES: Final = 512 << 20
"""Of archive files; the lines of a portion take some ten times as much, on disk."""
PORTION_FILES: Final = 10_000
_TAKEN_PROPERTY: Final = "fairbox.taken-to."
"""Of table `files`, with the archive's place: newest day of its files, and the last full look."""
_LATE_DAYS: Final = 3
_ALL_FOLDERS_MS: Final = 7 * DAY_MS - DAY_MS // 2  # a run may begin a little earlier than the last
_MOST_FOLDERS: Final = 1000
_RANGES: Final = 200  # of days, in one condition
_HOURS_OF_ID: Final = 6  # hexadecimal digits that ids of 4.7 hours share
_SAME_LINE: Final = (
    "malformed.file = new.file AND malformed.line = new.line AND malformed.digest = new.digest"
)


@dataclass(frozen=True, slots=True)
class Taken:
    """The files and lines of a run.

    Attributes:
        files: number of files read; unchanged files are skipped.
        lines: number of their lines.
        missing_days: days without a file between the archive's first and its last.
    """

    files: int = 0
    lines: int = 0
    missing_days: tuple[str, ...] = ()


def ingest(warehouse: Warehouse, archive: str, now: int, *, of_a_day: bool = False) -> Taken:
    """Add the new files of an archive to the tables, in portions.

    Args:
        warehouse: whose tables are updated.
        archive: folder of the archive.
        now: when the run began, ms since 1970 UTC.
        of_a_day: whether to look at the folders of the last days alone, and once a week at all.

    Raises:
        MissingArchiveError: there is nothing at that place.
        EmptyArchiveError: there is no file of an archive in it.
    """
    looked, recent = _recent_days(warehouse, archive, now) if of_a_day else (now, ())
    if recent:
        with suppress(EmptyArchiveError, MissingArchiveError):
            return _ingest(warehouse, archive, looked, recent)
    return _ingest(warehouse, archive, now, ())


def _ingest(warehouse: Warehouse, archive: str, looked: int, recent: Sequence[str]) -> Taken:
    """Add the new files of some days' folders, or of all; remember when all were looked at."""
    marked = _marked(warehouse, archive, recent)
    day = _day_of("uri").alias("day")
    file = F.struct("uri", "length", "modified", day)
    seen = marked.agg(F.collect_set(day), F.collect_list(F.when(F.col("new"), file)))
    days, new = seen.collect()[0]
    if not days:
        raise EmptyArchiveError(f"the archive is empty: no *.json.gz file below {archive}")
    lines = 0
    if new:
        size = sum(row["length"] for row in new) / 1e6
        say(f"reading {len(new):,} files, {size:,.1f} MB, that are new or changed")
    else:
        say("no file is new or changed")
        refresh_messages(warehouse)
    for files in _portions(new):
        lines += _take(warehouse, archive, files)
        refresh_messages(warehouse)
    _remember(warehouse, archive, days, looked)
    return Taken(len(new), lines, missing_days(days))


def _recent_days(warehouse: Warehouse, archive: str, now: int) -> tuple[int, Sequence[str]]:
    """Return when all folders were last looked at, and those in which a file may be new.

    None: all are due. Firehose names a folder by the time when it took a line, and tries for a day
    to write it; what waited for the archive longer comes into its old folder.
    """
    told = warehouse.property_of(FILES_TABLE, f"{_TAKEN_PROPERTY}{archive}")
    if told is None:
        return now, ()
    day, _, looked = told.partition(" ")
    newest, today = date.fromisoformat(day), datetime.fromtimestamp(now / 1000, UTC).date()
    if now - int(looked) >= _ALL_FOLDERS_MS or (today - newest).days > _MOST_FOLDERS:
        return now, ()
    days = range(-_LATE_DAYS, (today - newest).days + 1)
    return int(looked), [(newest + timedelta(days=n)).isoformat() for n in days]


def _remember(warehouse: Warehouse, archive: str, days: Iterable[str], looked: int) -> None:
    """Remember the newest day of which files were taken, unless they lie in no such folders."""
    name, newest = f"{_TAKEN_PROPERTY}{archive}", max(_dates(days), default=None)
    told = f"{newest} {looked}"
    if newest is not None and warehouse.property_of(FILES_TABLE, name) != told:
        warehouse.set_property(FILES_TABLE, name, told)


def _portions(new: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield files in portions: a first load takes no more memory and disk than any other."""
    files: list[Row] = []
    size = 0
    for file in sorted(new, key=lambda row: str(row["uri"])):
        if files and (size + file["length"] > PORTION_BYTES or len(files) == PORTION_FILES):
            yield files
            files, size = [], 0
        files.append(file)
        size += file["length"]
    if files:
        yield files


def _marked(warehouse: Warehouse, archive: str, days: Sequence[str]) -> DataFrame:
    """List files, of some days' folders or of all: `uri`, `length`, `modified`, `new`."""
    those = F.col("day").isin(*days) if days else F.lit(True)
    as_read = F.struct("length", "modified").alias("as_read")
    known = warehouse.read(FILES_TABLE).where(those).select("uri", as_read)
    unchanged = F.col("as_read") == F.struct("length", "modified")
    marked = list_files(warehouse.spark, archive, days).join(known, "uri", "left")
    return marked.withColumn("new", ~F.coalesce(unchanged, F.lit(False)))


def _take(warehouse: Warehouse, archive: str, files: Sequence[Row]) -> int:
    """Add files to the tables; return their number of lines."""
    uris = [row["uri"] for row in files]
    with lines_at_hand(warehouse.spark, uris) as lines:
        add_events(warehouse, lines)
        _add_malformed(warehouse, archive, lines)
    rows = [(r["uri"], r["length"], r["modified"], r["day"]) for r in files]
    listed = frame_of(warehouse.spark, rows, FILES_TABLE.schema)
    days = sorted({row["day"] for row in files})
    near = f"files.uri = new.uri AND files.day BETWEEN '{days[0]}' AND '{days[-1]}'"
    update = {name: _new(name) for name in FILES_TABLE.names}
    warehouse.merge(FILES_TABLE, listed, on=F.expr(near), update=update)
    return lines.count


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of the files of a run, parsed once and kept for its steps.

    Attributes:
        frame: in `LINE_SCHEMA`.
        count: number of lines.
        malformed: how many of them are no events.
        days: the days of the events, as ranges [first, last] in days since 1970, in order.
    """

    frame: DataFrame
    count: int
    malformed: int
    days: tuple[tuple[int, int], ...]


@contextmanager
def lines_at_hand(spark: SparkSession, uris: Sequence[str]) -> Iterator[Lines]:
    """Parse files, and keep their lines until the block ends.

    Raises:
        UsageError: a file cannot be read.
    """
    frame = read_archive(spark, uris).persist()
    is_event = F.col("kind") == EVENT
    try:
        with one_file_a_batch(spark):
            counted = frame.agg(
                F.count(F.lit(1)),
                F.count(F.when(~is_event, True)),
                F.collect_set(F.when(is_event, F.expr(f"(at - pmod(at, {DAY_MS})) div {DAY_MS}"))),
            )
            count, malformed, days = counted.collect()[0]
        yield Lines(frame, count, malformed, _ranges(days))
    finally:
        frame.unpersist()


def _ranges(days: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return days as ranges; of more than a query can list, the one that holds all."""
    ranges: list[tuple[int, int]] = []
    for day in sorted(days):
        if ranges and day == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], day
        else:
            ranges.append((day, day))
    return tuple(ranges) if len(ranges) <= _RANGES else ((ranges[0][0], ranges[-1][1]),)


def add_events(warehouse: Warehouse, lines: Lines) -> None:
    """Append the events that are not in the table.

    An event's `at` never changes, so of the table only the days of the new events are read. Only
    ids are shuffled, not bodies. The append is refused if another run has added events since this
    one read the known ids.
    """
    events = lines.frame.where(F.col("kind") == EVENT)
    status = warehouse.current(EVENTS_TABLE).snapshot
    known = warehouse.read_at(EVENTS_TABLE, status).where(_on(lines.days))
    repeated = repeated_lines(events, known).persist()
    if repeated.count():
        events = events.join(repeated, ["uri", "line"], "left_anti")
    warehouse.append_after(EVENTS_TABLE, events.select(*EVENTS_TABLE.names), status)
    repeated.unpersist()


def _on(days: Sequence[tuple[int, int]]) -> SparkColumn:
    """Whether an event is of some of these days."""
    each = [F.col("at").between(first * DAY_MS, (last + 1) * DAY_MS - 1) for first, last in days]
    return reduce(operator.or_, each, F.lit(False))


def _add_malformed(warehouse: Warehouse, archive: str, lines: Lines) -> None:
    """Add the malformed lines of files to their table, each once."""
    if lines.malformed:
        found = malformed_lines(lines.frame, archive).dropDuplicates(["file", "line", "digest"])
        warehouse.merge(MALFORMED_TABLE, found, on=F.expr(_SAME_LINE))


def refresh_messages(warehouse: Warehouse) -> bool:
    """Fold the events that were appended into `messages`; return whether there were any.

    Each commit of `events` is folded by itself. A row remembers up to which commit it stands, so a
    commit that was folded before, by a run that crashed or by another run, changes nothing. Where
    the history of `events` is gone, all rows are made from all events.
    """
    done = warehouse.property_of(MESSAGES_TABLE, FOLDED_PROPERTY)
    current = warehouse.current(EVENTS_TABLE).number
    commits = warehouse.commits(EVENTS_TABLE, None if done is None else int(done))
    if commits is None:
        folded = _rebuild(warehouse)
    elif commits:
        for commit in commits:
            _fold(warehouse, commit)
        folded = commits[-1].number
    else:
        folded = current  # whose commits appended nothing
    if str(folded) == done:
        return False
    warehouse.set_property(MESSAGES_TABLE, FOLDED_PROPERTY, str(folded))
    return True


def _rebuild(warehouse: Warehouse) -> int:
    """Replace all rows of `messages`; return up to which commit they stand."""
    status = warehouse.current(MESSAGES_TABLE).snapshot
    current = warehouse.current(EVENTS_TABLE)
    events = warehouse.read_at(EVENTS_TABLE, current.snapshot).select(*_FOR_MESSAGES)
    rows = messages_of(events, current.number)
    warehouse.replace(MESSAGES_TABLE, rows, after=status)
    return current.number


def _fold(warehouse: Warehouse, commit: Commit) -> None:
    """Merge the events of a commit into the rows of their messages."""
    events = warehouse.appended(EVENTS_TABLE, commit).select(*_FOR_MESSAGES)
    rows = messages_of(events, commit.number).persist()
    try:
        near = _near(rows)
        if near is None:
            return
        same = [_standing(name) == _new(name) for name in KEY]
        warehouse.merge(
            MESSAGES_TABLE,
            rows,
            on=reduce(operator.and_, same) & near,
            when=_standing("folded") < commit.number,
            update=merged(_standing, _new),
        )
    finally:
        rows.unpersist()


def _near(rows: DataFrame) -> SparkColumn | None:
    """Return a condition on the ids that stand, met by all these messages; None: there are none.

    Ids begin with their time, so it keeps files of other days from being read.
    """
    ranges = (
        rows.groupBy(F.substring("id", 1, _HOURS_OF_ID))
        .agg(F.min("id").alias("first"), F.max("id").alias("last"))
        .select("first", "last")
    )
    found = [(row["first"], row["last"]) for row in ranges.limit(_RANGES + 1).collect()]
    if not found:
        return None
    if len(found) > _RANGES:
        found = [tuple(rows.agg(F.min("id"), F.max("id")).collect()[0])]
    return reduce(operator.or_, [_standing("id").between(*pair) for pair in found])


def _standing(name: str) -> SparkColumn:
    return F.col(f"{MESSAGES_TABLE.name}.{name}")


def _new(name: str) -> SparkColumn:
    return F.col(f"{NEW}.{name}")


def _day_of(uri: str) -> Any:
    return F.regexp_extract(uri, "/dt=([0-9]{4}-[0-9]{2}-[0-9]{2})/", 1)


def _dates(days: Iterable[str]) -> set[date]:
    """Return the days whose texts are dates."""
    found = set()
    for day in days:
        with suppress(ValueError):
            found.add(date.fromisoformat(day))
    return found


def missing_days(days: Sequence[str]) -> tuple[str, ...]:
    """Return the missing days between the first and the last; texts that are not dates: none."""
    found = _dates(days)
    if not found:
        return ()
    span = (max(found) - min(found)).days
    every = (min(found) + timedelta(days=n) for n in range(span))
    return tuple(day.isoformat() for day in every if day not in found)
