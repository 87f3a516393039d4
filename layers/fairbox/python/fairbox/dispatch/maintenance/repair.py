"""Repair: a slow scan that finds work that no shard row shows, and finishes work left half done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from fairbox.codec.attributes import PK
from fairbox.codec.keys import parse_lane_pk
from fairbox.codec.messages import read_message
from fairbox.codec.shards import is_shard_row, read_shard
from fairbox.codec.stream_records import read_record, table_of
from fairbox.dispatch.ports import OVERDUE_MS, Doorbell
from fairbox.dispatch.tombstones import finish_marked
from fairbox.errors import NewerVersion, Unreadable
from fairbox.model.clock import milliseconds
from fairbox.model.epochs import belongs
from fairbox.model.ids import time_of
from fairbox.model.stored_messages import NEVER_MS, ShardRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fairbox.dispatch.maintenance.epoch_retirement import Retiring
    from fairbox.dispatch.ports import Doorbells, MarkingStore, Store
    from fairbox.dispatch.stream.marking import Marking
    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import StoredMessage

UNITS_A_SECOND: Final = 200.0
MAX_SUSPECTS: Final = 200
MAX_ORPHANS: Final = 100

Shard = tuple[str, int, int]
Replay = Callable[["Sequence[Mapping[str, Any]]", float], bool]


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of the scan, and the shards whose counts looked wrong the last time."""

    position: Mapping[str, Any] | None = None
    suspects: Mapping[str, str] = field(default_factory=dict)


class RepairStore(Protocol):
    """The tables, as repair uses them besides the ports of delivery and marking."""

    def scan_page(
        self, position: Mapping[str, Any] | None
    ) -> tuple[list[dict[str, Any]], Mapping[str, Any] | None, float]:
        """Return items, the next position (None at the end), and the read units used."""
        ...

    def load_cursor(self) -> Cursor:
        """Return the cursor; the empty one at first."""
        ...

    def save_cursor(self, cursor: Cursor) -> None:
        """Keep the cursor for the next run."""
        ...

    def relocate(self, ref: MessageRef, to: MessageRef, *, in_row: bool) -> bool:
        """Move a message that nobody holds to another shard; return whether it was moved.

        `in_row`: claims lie in the rows of its topic's shards.
        """
        ...


class GivenUp(Protocol):
    """Batches that a stream reader gave up, with their payload."""

    def batches(self) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
        """Yield (name, records) of each."""
        ...

    def done(self, name: str) -> None:
        """Forget a batch that was replayed."""
        ...


@dataclass(slots=True)
class RepairReport:
    """The result of a run.

    Attributes:
        scanned: items read.
        units: read units used.
        replayed: records of given-up batches.
        finished: marked messages.
        unreadable: items buried as they are.
        newer: items and given-up batches that only a newer release can read: they stay.
        flagged: overdue shards that no row showed.
        recounted: shard rows whose counts had been wrong for two runs.
        complete: whether the scan came to its end.
        unfinished: marked messages that could not be finished; the next run tries again.
        closed: old epochs that were found empty, and take no messages any more.
        retired: closed epochs that left the list.
        relocated: messages of epochs that no list has, moved to shards that everybody reads.
        orphans: shards of deleted or unknown topics that still hold messages, a hundred at most, as
            `topic#epoch#shard`.
    """

    scanned: int = 0
    units: float = 0.0
    replayed: int = 0
    finished: int = 0
    unreadable: int = 0
    newer: int = 0
    flagged: int = 0
    recounted: int = 0
    complete: bool = False
    unfinished: int = 0
    closed: int = 0
    retired: int = 0
    relocated: int = 0
    orphans: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _ScannedShard:
    """The findings of the scan about one shard."""

    ready: int = 0
    later: int = 0
    overdue: bool = False
    newer: bool = False  # it holds items that this release cannot read: its counts prove nothing
    row: ShardRow | None = None


class Repair:
    """Scans the outbox at a bounded rate, resumably.

    Args:
        store: the tables, with the ports of delivery and marking.
        cursor_store: the scan and its cursor.
        marking: marks the records of given-up batches.
        given_up: given-up batches.
        doorbells: enqueues visits for their undelivered messages.
        clock: time and pace.
        others: replay given-up batches of other tables' streams until a deadline, by table;
            False when something is left, and the batch must be kept.
        retiring: takes old epochs off their topics' lists; None: they stay.
    """

    def __init__(
        self,
        *,
        store: Store,
        marking_store: MarkingStore,
        cursor_store: RepairStore,
        marking: Marking,
        given_up: GivenUp,
        doorbells: Doorbells,
        clock: Clock,
        others: Mapping[str, Replay] | None = None,
        retiring: Retiring | None = None,
    ) -> None:
        self._store = store
        self._rows = marking_store
        self._cursors = cursor_store
        self._marking = marking
        self._given_up = given_up
        self._doorbells = doorbells
        self._clock = clock
        self._others = others or {}
        self._retiring = retiring

    def run(self, *, deadline: float) -> RepairReport:
        """Replay given-up batches, retire epochs, then scan on until the end or the deadline.

        Args:
            deadline: seconds since 1970.

        Raises:
            FairboxError: tables or queues failed; the next run goes on from the last cursor.
        """
        report = RepairReport()
        self._store.refresh()
        for name, records in self._given_up.batches():
            if self._clock.now() >= deadline:
                return report
            other = self._others.get(table_of(records[0])) if records else None
            if other is None:
                try:
                    self._replay(records, report)
                except NewerVersion:
                    report.newer += 1
                    continue
            elif other(records, deadline):
                report.replayed += len(records)
            else:
                continue
            self._given_up.done(name)
        if self._retiring is not None:
            retired = self._retiring.run(deadline=deadline)
            report.closed, report.retired = retired.closed, retired.retired
        self._scan(deadline, report)
        return report

    def _replay(self, records: Sequence[Mapping[str, Any]], report: RepairReport) -> None:
        """Mark a batch and enqueue visits: both may be repeated, whichever function gave it up."""
        self._marking.handle(records)
        report.replayed += len(records)
        rings: dict[Shard, list[MessageRef]] = defaultdict(list)
        for record in records:
            try:
                change = read_record(record)
            except Unreadable:
                continue
            ref = change.stored.ref
            topic = self._store.topic(ref.topic)
            if change.kind == "INSERT" and topic is not None and topic.pushed:
                rings[ref.topic, ref.epoch, ref.shard].append(ref)
        self._doorbells.ring([Doorbell(*shard, tuple(refs)) for shard, refs in rings.items()])

    def _scan(self, deadline: float, report: RepairReport) -> None:
        cursor = self._cursors.load_cursor()
        position = cursor.position
        whole = position is None
        seen: dict[Shard, _ScannedShard] = defaultdict(_ScannedShard)
        while self._clock.now() < deadline:
            started = self._clock.now()
            items, position, units = self._cursors.scan_page(position)
            report.scanned += len(items)
            report.units += units
            self._take(items, seen, report)
            if position is None:
                report.complete = True
                break
            self._clock.sleep(max(0.0, units / UNITS_A_SECOND - (self._clock.now() - started)))
        self._flag(seen, report)
        suspects: Mapping[str, str] = cursor.suspects
        if whole and report.complete:
            suspects = self._recount(seen, cursor.suspects, report)
        self._cursors.save_cursor(Cursor(position, suspects))

    def _take(
        self,
        items: Iterable[dict[str, Any]],
        seen: dict[Shard, _ScannedShard],
        report: RepairReport,
    ) -> None:
        now = milliseconds(self._clock)
        marked: list[StoredMessage] = []
        for item in items:
            try:
                if is_shard_row(item):
                    row = read_shard(item)
                    seen[row.topic, row.epoch, row.shard].row = row
                    continue
                stored = read_message(item)
            except NewerVersion:
                _, topic, epoch, number = parse_lane_pk(item[PK]["S"])
                seen[topic, epoch, number].newer = True
                report.newer += 1
                continue
            except Unreadable as unreadable:
                self._store.bury_raw(item, str(unreadable))
                report.unreadable += 1
                continue
            ref = stored.ref
            shard = seen[ref.topic, ref.epoch, ref.shard]
            if stored.gone:
                marked.append(stored)
            elif self._relocated(stored):
                report.relocated += 1
            elif stored.lane == "later":
                shard.later += 1
                shard.overdue |= (ref.due or 0) + OVERDUE_MS < now
            else:
                shard.ready += 1
                shard.overdue |= time_of(ref.id) + 2 * OVERDUE_MS < now
        errors: list[str] = []
        report.finished += finish_marked(self._store, marked, errors)
        report.unfinished += len(errors)

    def _relocated(self, stored: StoredMessage) -> bool:
        """Move a message that came so late that its epoch had left the list."""
        ref, topic = stored.ref, self._store.topic(stored.ref.topic)
        if topic is None or topic.epoch(ref.epoch) or ref.epoch > topic.epochs[-1].number:
            return False
        right = belongs(stored, topic.epochs)
        in_row = topic.topic.ordering == "key" and not topic.pushed
        return right is not None and self._cursors.relocate(ref, right, in_row=in_row)

    def _flag(self, seen: Mapping[Shard, _ScannedShard], report: RepairReport) -> None:
        """Let the sweep check overdue shards of pushed topics that no row shows."""
        now = milliseconds(self._clock)
        for shard, state in seen.items():
            if state.newer:
                continue
            topic = self._store.topic(shard[0])
            if topic is None and (state.ready or state.later) and len(report.orphans) < MAX_ORPHANS:
                report.orphans.append("#".join(map(str, shard)))
            if not state.overdue or topic is None or not topic.pushed:
                continue
            shown = state.row is not None and state.row.look_at is not None
            if shown and state.row is not None and (state.row.look_at or 0) <= now + 600_000:
                continue
            rows = self._rows.shard_rows([shard])
            before = rows[0] if rows else ShardRow(*shard)
            report.flagged += self._rows.change_row(replace(before, look_at=now), before)

    def _unlist(self, row: ShardRow) -> None:
        """Take an empty shard that repair listed off the index: no change of a count will do it."""
        now = milliseconds(self._clock)
        if row.outstanding == 0 and row.look_at is not None and row.look_at <= now:
            look_at = NEVER_MS if row.dead > 0 else None
            self._rows.change_row(replace(row, look_at=look_at, backoff=0), row)

    def _recount(
        self, seen: Mapping[Shard, _ScannedShard], suspects: Mapping[str, str], report: RepairReport
    ) -> dict[str, str]:
        """Correct counts that were wrong in the same way, in a still shard, the last time too."""
        found: dict[str, str] = {}
        for shard, state in seen.items():
            if state.newer:
                continue
            row = state.row or ShardRow(*shard)
            if (row.ready, row.later) == (state.ready, state.later):
                self._unlist(row)
                continue
            name = "#".join(map(str, shard))
            evidence = f"{row.ready_sequence} {row.later_sequence} {state.ready} {state.later}"
            if suspects.get(name) == evidence:
                after = replace(row, ready=state.ready, later=state.later)
                if after.outstanding > 0 and after.look_at is None:
                    after = replace(after, look_at=milliseconds(self._clock))
                report.recounted += self._rows.change_row(after, row)
            elif len(found) < MAX_SUSPECTS:
                found[name] = evidence
        return found
