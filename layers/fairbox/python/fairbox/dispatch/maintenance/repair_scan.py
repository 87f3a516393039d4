"""Repair: a slow scan that finds work that no shard row shows, and finishes work left half done."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from fairbox.dispatch.burials import Burials, finish_marked
from fairbox.dispatch.maintenance.epoch_retirement import Retiring
from fairbox.dispatch.maintenance.recount import Recounts
from fairbox.dispatch.ports import OVERDUE_MS, Doorbell, Doorbells, GivenUpBatch
from fairbox.dispatch.stream.lane_changes import LANES
from fairbox.dispatch.stream.marking import Marking, MarkReport
from fairbox.errors import FairboxError, NewerVersion, Unreadable
from fairbox.model.clock import Clock, milliseconds
from fairbox.model.epochs import belongs
from fairbox.model.ids import sent_at
from fairbox.model.topic_states import NEW, SubscriptionStatus, TopicState
from fairbox.tables.deferred_keys import EVERY_KEY, DeferredKeys, name_digest, read_deferred
from fairbox.tables.keys import PK, message_sk, parse_lane_pk
from fairbox.tables.message_edits import Edits
from fairbox.tables.repair_cursor import Cursor, LanePart, RepairTable
from fairbox.tables.shard_rows import NEVER_MS, ShardRow, is_shard_row, read_shard
from fairbox.tables.stored_messages import StoredMessage, key_digest, read_message
from fairbox.tables.stream_records import read_record, table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fairbox.model.messages import MessageRef, OpenLane, Shard
    from fairbox.tables.tables import Tables
    from fairbox.tables.walk_positions import WalkPosition

logger = logging.getLogger("fairbox")

UNITS_A_SECOND: Final = 200.0
MAX_SUSPECTS: Final = 200
FORGOTTEN_MS: Final = 300_000
"""Time from which a message that could be sent is not only late: its doorbell or hint is lost."""
MAX_DOUBTED: Final = 200
"""Shards that the scan of one run puts in doubt at most: each is read once more."""
WAIT_SECONDS: Final = 5.0
LONGEST_WAIT_SECONDS: Final = 60.0
"""For marking to meet what recounts wait for; where it stands still, the next run goes on."""
RECOUNTS_SECONDS: Final = 15.0
"""Time between two looks at recounts that wait for marking, in a run that still scans."""
MAX_ORPHANS: Final = 100

Replay = Callable[["Sequence[Mapping[str, Any]]", float], bool]


class GivenUp(Protocol):
    """Batches that a stream reader gave up, with their payload."""

    def names(self) -> Mapping[str, float]:
        """Return the names of all, with the time of each (seconds since 1970 UTC)."""
        ...

    def read(self, name: str) -> GivenUpBatch:
        """Return one.

        Raises:
            Unreadable: it holds no records.
            Unavailable: it could not be read now.
        """
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
        failed: given-up batches that could not be read or replayed: they stay.
        kept: given-up batches that stay, for any reason.
        kept_hours: age of the oldest of them, in hours.
        flagged: overdue shards that no row showed.
        recounted: shard rows whose counts were wrong, and are corrected.
        doubtful: shards whose counts are in doubt, and will be known in the next run.
        complete: whether the scan came to its end.
        unfinished: marked messages that could not be finished; the next run tries again.
        closed: old epochs that were found empty, and no longer take messages.
        retired: closed epochs that left the list.
        relocated: messages of epochs that no list has, moved to shards that everybody reads.
        orphans: shards of deleted or unknown topics that still hold messages, a hundred at most, as
            `topic#epoch#shard`.
        rung: messages that a subscription has lacked for minutes though it may be sent to, or
            probed: a visit is enqueued.
    """

    scanned: int = 0
    units: float = 0.0
    replayed: int = 0
    finished: int = 0
    unreadable: int = 0
    newer: int = 0
    failed: int = 0
    kept: int = 0
    kept_hours: float = 0.0
    flagged: int = 0
    recounted: int = 0
    doubtful: int = 0
    complete: bool = False
    unfinished: int = 0
    closed: int = 0
    retired: int = 0
    relocated: int = 0
    orphans: list[str] = field(default_factory=list)
    rung: int = 0


@dataclass(slots=True)
class _ScannedShard:
    """The findings of the scan about one shard.

    Attributes:
        occupied: whether messages lie in it.
        overdue: whether one of them is.
        newer: whether it holds items that this release cannot read.
        row: its row, if the scan met it.
        lanes: lanes whose end was reached -> messages in them.
        sequences: of its row's counts, as the scan met it.
        position: where its walks go on, if that was read.
        deferred: of an ordered topic, the keys that visits hold back, if the scan met the row.
    """

    occupied: bool = False
    overdue: bool = False
    newer: bool = False
    row: ShardRow | None = None
    lanes: dict[OpenLane, int] = field(default_factory=dict)
    sequences: tuple[str, str] | None = None
    position: WalkPosition | None = None
    deferred: DeferredKeys | None = None

    def still(self, row: ShardRow, lane: OpenLane) -> bool:
        """Whether the count of a lane is that of the row which the scan met."""
        at = LANES.index(lane)
        met = self.sequences or ("", "")  # what was never counted has not changed either
        return met[at] == (row.ready_sequence, row.later_sequence)[at]


class Repair:
    """Scans the outbox at a bounded rate, resumably.

    Args:
        marking: marks the records of given-up batches.
        given_up: given-up batches.
        doorbells: enqueues visits for their undelivered messages.
        others: replay given-up batches of other tables' streams until a deadline, by table;
            False when something is left, and the batch must be kept.
        next_id: makes ids, for recounts.
        wait: lets so many seconds pass in which marking goes on; `clock.sleep` by default.
    """

    def __init__(
        self,
        *,
        tables: Tables,
        marking: Marking,
        given_up: GivenUp,
        doorbells: Doorbells,
        clock: Clock,
        others: Mapping[str, Replay],
        next_id: Callable[[], str],
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._tables = tables
        self._rows = tables.rows
        self._cursors = RepairTable(tables)
        self._marking = marking
        self._given_up = given_up
        self._doorbells = doorbells
        self._clock = clock
        self._others = others
        self._retiring = Retiring(tables, clock)
        self._recounts = Recounts(tables, clock, next_id)
        self._wait = wait or clock.sleep
        self._read_statuses: dict[str, Mapping[str, SubscriptionStatus]] = {}

    def run(self, *, deadline: float, report: RepairReport | None = None) -> RepairReport:
        """Replay given-up batches, retire epochs, recount, and scan until the end or the deadline.

        Half of the time at most goes to given-up batches, and to recounts before the scan. Recounts
        that wait for marking are looked at again during the scan and, once it is complete, for a
        minute at most. A failure does not stop the rest.

        Args:
            deadline: seconds since 1970.
            report: filled in; a new one by default.

        Raises:
            FairboxError: tables or queues failed; the next run goes on from the last cursor.
        """
        report = RepairReport() if report is None else report
        self._read_statuses.clear()
        self._tables.topic_cache.refresh()

        cursor = self._cursors.load_cursor()
        # batches that always fail must not keep the scan from running
        half = (self._clock.now() + deadline) / 2
        cursor = replace(cursor, tried=self._replay_all(cursor.tried, half, report))

        self._retire(report, deadline)
        self._recount(report, deadline=half)
        self._scan(cursor, deadline, report)
        self._recount(report, deadline=deadline)

        until = min(deadline, self._clock.now() + LONGEST_WAIT_SECONDS)
        while report.complete and report.doubtful and self._clock.now() < until:
            self._wait(WAIT_SECONDS)
            self._recount(report, deadline=deadline)
        return report

    def _retire(self, report: RepairReport, deadline: float) -> None:
        try:
            retired = self._retiring.run(deadline=deadline)
        except FairboxError as error:
            logger.warning("epochs could not be retired", extra={"error": str(error)})
        else:
            report.closed, report.retired = retired.closed, retired.retired

    def _recount(self, report: RepairReport, *, deadline: float) -> None:
        try:
            recounted = self._recounts.run(deadline=deadline)
        except FairboxError as error:
            logger.warning("recounts could not be listed", extra={"error": str(error)})
        else:
            report.recounted += recounted.corrected
            report.units += recounted.units
            report.doubtful = recounted.waiting

    def _replay_all(self, tried: str, deadline: float, report: RepairReport) -> str:
        """Replay given-up batches in turn; return the last one tried if the time was over."""
        try:
            names = dict(self._given_up.names())
        except FairboxError as error:
            logger.warning("given-up batches could not be listed", extra={"error": str(error)})
            return tried

        kept = dict(names)
        last = ""
        # behind the last one tried, and then from the first: half a run may be too short for all
        for name in sorted(names, key=lambda name: (name <= tried, name)):
            if self._clock.now() >= deadline:
                break
            last = name
            try:
                if self._replayed(name, deadline, report):
                    del kept[name]
            except NewerVersion:
                report.newer += 1
            except Exception:
                # its records may be of any kind: it stays, and stops no other
                report.failed += 1
                logger.exception("a given-up batch could not be replayed", extra={"object": name})
        else:
            last = ""

        report.kept = len(kept)
        oldest = min(kept.values(), default=self._clock.now())
        report.kept_hours = max(0.0, (self._clock.now() - oldest) / 3600)
        return last

    def _replayed(self, name: str, deadline: float, report: RepairReport) -> bool:
        """Replay a given-up batch; return whether it is done with."""
        batch = self._given_up.read(name)
        records = batch.records
        other = self._others.get(table_of(records[0])) if records else None
        if other is None:
            self._replay(batch, deadline)
        elif not other(records, deadline):
            return False
        report.replayed += len(records)
        # last: a run that is killed before replays it once more, and so loses nothing
        self._given_up.done(name)
        return True

    def _replay(self, batch: GivenUpBatch, deadline: float) -> None:
        """Mark a batch and enqueue visits: both may be repeated, whichever function gave it up.

        The row cannot say whether a record that marking had gone past was counted. And if marking
        has not come so far yet, which the relay's batches show, it passes by the records before.
        """
        marked = MarkReport()
        try:
            self._marking.handle(batch.records, deadline=deadline, report=marked)
        finally:
            if not batch.counted:
                self._tables.recounts.doubt(
                    sorted(marked.stale | marked.written), milliseconds(self._clock)
                )

        rings: dict[Shard, list[MessageRef]] = defaultdict(list)
        for record in batch.records:
            try:
                change = read_record(record)
            except Unreadable:
                continue
            ref = change.stored.ref
            topic = self._tables.topic_cache.get(ref.topic)
            if change.kind == "INSERT" and topic is not None and topic.pushed:
                rings[ref.place].append(ref)

        self._doorbells.ring([Doorbell(*shard, tuple(refs)) for shard, refs in rings.items()])

    def _scan(self, cursor: Cursor, deadline: float, report: RepairReport) -> None:
        position, lane = cursor.position, cursor.lane
        seen: dict[Shard, _ScannedShard] = defaultdict(_ScannedShard)
        recounts_at = self._clock.now() + RECOUNTS_SECONDS

        while self._clock.now() < deadline:
            started = self._clock.now()
            items, position, units = self._cursors.scan_page(position)
            report.scanned += len(items)
            report.units += units
            for item in items:
                lane = self._follow(lane, item, seen)
            self._take(items, seen, report)
            if position is None:
                report.complete = True
                lane = _end_lane(lane, seen)
                break

            self._clock.sleep(max(0.0, units / UNITS_A_SECOND - (self._clock.now() - started)))
            if report.doubtful and self._clock.now() >= recounts_at:
                self._recount(report, deadline=deadline)
                recounts_at = self._clock.now() + RECOUNTS_SECONDS

        self._flag(seen, report)
        suspects = self._compare(seen, cursor.suspects)
        # last: a run that is killed before scans this part again
        self._cursors.save_cursor(Cursor(position, suspects, lane, cursor.tried))

    def _follow(
        self, lane: LanePart, item: Mapping[str, Any], seen: dict[Shard, _ScannedShard]
    ) -> LanePart:
        """Count an item in its lane; a scan returns the items of a lane one after the other."""
        key = item[PK]["S"]
        if key != lane.key:
            _end_lane(lane, seen)
            lane = LanePart(key, sequences=("", "") if key.startswith("ready#") else None)
        if not is_shard_row(item):
            return replace(lane, count=lane.count + 1)
        with suppress(Unreadable):
            row = read_shard(item)
            lane = replace(lane, sequences=(row.ready_sequence, row.later_sequence))
        return lane

    def _take(
        self,
        items: Iterable[dict[str, Any]],
        seen: dict[Shard, _ScannedShard],
        report: RepairReport,
    ) -> None:
        now = milliseconds(self._clock)
        marked: list[StoredMessage] = []
        hidden: dict[Shard, list[MessageRef]] = defaultdict(list)

        for item in items:
            try:
                if is_shard_row(item):
                    row = read_shard(item)
                    its = seen[row.place]
                    its.row, its.deferred = row, read_deferred(item)
                    continue
                stored = read_message(item)
            except NewerVersion:
                _, topic, epoch, number = parse_lane_pk(item[PK]["S"])
                # its key is all of it that this release can read
                seen[topic, epoch, number].newer = True
                report.newer += 1
                continue
            except Unreadable as unreadable:
                Burials(self._tables).bury_raw(item, str(unreadable))
                report.unreadable += 1
                continue

            ref = stored.ref
            shard = seen[ref.place]
            if stored.gone:
                marked.append(stored)
            elif self._relocated(stored):
                report.relocated += 1
            else:
                shard.occupied = True
                later = stored.lane == "later"
                late = (ref.due or 0) if later else sent_at(ref.id, now) + OVERDUE_MS
                # a minute later than the sweep: what it is about to ring for is not lost
                shard.overdue |= late + OVERDUE_MS < now
                if late + FORGOTTEN_MS <= now and self._hidden(stored, shard, now):
                    hidden[ref.place].append(ref)

        # ordered visits read one of these, and what follows it; others each of them
        bells = [Doorbell(*at, tuple(refs), kept=True) for at, refs in hidden.items()]
        self._doorbells.ring(bells)
        report.rung += sum(map(len, hidden.values()))

        errors: list[str] = []
        report.finished += finish_marked(self._tables, marked, errors)
        report.unfinished += len(errors)

    def _hidden(self, stored: StoredMessage, shard: _ScannedShard, now: int) -> bool:
        """Whether a ready subscription lacks a message that nothing will come back to.

        The message is under retry, and its doorbell is minutes late; or a hint is wrong, and says
        that walks have seen to it (0.5 RRU for each shard that holds such messages).
        """
        ref, topic = stored.ref, self._tables.topic_cache.get(stored.ref.topic)
        if topic is None or not topic.pushed:
            return False

        names = topic.subscription_names
        lacking = stored.lacking(names)
        due = [
            name
            for name in sorted(lacking)
            if stored.due(name) + FORGOTTEN_MS <= now and _sends(self._statuses(topic)[name], now)
        ]

        if topic.topic.ordering == "key":
            return any(_passed(stored, name, shard.deferred) for name in due)
        if any(stored.state(name).attempts for name in due):
            return True
        if lacking and not due:
            return False

        if shard.position is None:
            shard.position = self._tables.walks.read(ref.place)

        lane: OpenLane = "later" if stored.lane == "later" else "ready"
        place = message_sk(ref.id, ref.due, lane)
        position = shard.position
        # if nobody lacks it, the places of the shared walks alone say whether one comes by
        return any(position.hides(lane, place, name, names) for name in due or ("",))

    def _statuses(self, topic: TopicState) -> Mapping[str, SubscriptionStatus]:
        """Return how a topic's subscriptions stood in this run (1 RRU each)."""
        name = topic.topic.name
        if name not in self._read_statuses:
            found = self._tables.circuits.read(name, sorted(topic.subscription_names))
            self._read_statuses[name] = defaultdict(lambda: NEW, found)
        return self._read_statuses[name]

    def _relocated(self, stored: StoredMessage) -> bool:
        """Move a message that came so late that its epoch had left the list."""
        ref, topic = stored.ref, self._tables.topic_cache.get(stored.ref.topic)
        if topic is None or topic.epoch(ref.epoch) or ref.epoch > topic.epochs[-1].number:
            return False
        right = belongs(stored.message, stored.ref, topic.epochs)
        in_row = topic.topic.ordering == "key" and not topic.pushed
        return right is not None and Edits(self._tables).relocate(
            ref, right, milliseconds(self._clock), ordered=in_row
        )

    def _flag(self, seen: Mapping[Shard, _ScannedShard], report: RepairReport) -> None:
        """Make the sweep check overdue shards of pushed topics that no row shows."""
        now = milliseconds(self._clock)
        for shard, state in seen.items():
            if state.newer:
                continue
            topic = self._tables.topic_cache.get(shard[0])
            if topic is None and state.occupied and len(report.orphans) < MAX_ORPHANS:
                report.orphans.append("#".join(map(str, shard)))

            if not state.overdue or topic is None or not topic.pushed:
                continue
            shown = state.row is not None and state.row.next_check is not None
            if shown and state.row is not None and (state.row.next_check or 0) <= now + 600_000:
                continue

            # read again: the scan may have met the row minutes ago
            rows = self._rows.get_many([shard])
            before = rows[0] if rows else ShardRow(*shard)
            report.flagged += self._rows.change(replace(before, next_check=now), before)

    def _compare(
        self, seen: Mapping[Shard, _ScannedShard], before: Mapping[str, int]
    ) -> dict[str, int]:
        """Put counts in doubt that differ from the scan's; return the suspects.

        The scan trails the table, and a row trails the stream, so that a busy shard differs for a
        while. A count is in doubt if it differs and has not changed since the scan met the row, if
        it differs as it did when its lane was last read, or if it is negative. The recount decides.
        """
        suspects = dict(before)
        doubtful: list[Shard] = []
        ended = [shard for shard, state in seen.items() if state.lanes and not state.newer]

        for row in self._read_rows(ended):
            shard = row.place
            lanes = seen[shard].lanes
            if "later" not in lanes and row.later and self._later_is_empty(shard):
                lanes["later"] = 0  # a lane in which nothing lies is not in the scan
            off = {lane: getattr(row, lane) - count for lane, count in lanes.items()}
            wrong = row.recount == 0 or row.ready < 0 or row.later < 0

            for lane, difference in off.items():
                name = "#".join(map(str, (lane, *shard)))
                same = suspects.pop(name, 0) == difference or seen[shard].still(row, lane)
                wrong |= difference != 0 and same
                if difference and not same:
                    suspects[name] = difference

            if wrong and not row.recount:
                doubtful.append(shard)
            elif not any(off.values()):
                self._unlist(row)

        self._tables.recounts.doubt(doubtful[:MAX_DOUBTED], milliseconds(self._clock))
        return dict(list(suspects.items())[-MAX_SUSPECTS:])

    def _later_is_empty(self, shard: Shard) -> bool:
        return not self._tables.lanes.count("later", *shard, limit=1)

    def _read_rows(self, shards: Sequence[Shard]) -> Iterator[ShardRow]:
        """Yield the rows of shards, the empty one where there is none (consistent, 1 RRU each)."""
        for start in range(0, len(shards), 100):
            some = shards[start : start + 100]
            rows = {shard: ShardRow(*shard) for shard in some}
            with suppress(Unreadable):  # one is damaged by now: the next run buries it
                rows |= {r.place: r for r in self._rows.get_many(some)}
                yield from rows.values()

    def _unlist(self, row: ShardRow) -> None:
        """Take an empty shard that repair listed off the index: no change of a count will do it."""
        now = milliseconds(self._clock)
        listed = row.next_check is not None and row.next_check <= now
        if not listed or (row.ready, row.later, row.recount) != (0, 0, None):
            return
        if self._later_is_empty(row.place):
            next_check = NEVER_MS if row.dead > 0 else None
            self._rows.change(replace(row, next_check=next_check, backoff=0), row)


def _sends(status: SubscriptionStatus, now: int) -> bool:
    """Whether a subscription is sent to, or its next probe is minutes late."""
    probed = status.circuit == "closed" or status.until + FORGOTTEN_MS <= now
    return probed and not status.paused


def _passed(stored: StoredMessage, name: str, deferred: DeferredKeys | None) -> bool:
    """Whether visits of an ordered shard begin behind a message that no entry holds."""
    if deferred is None or stored.ref.id > deferred.start:
        return False
    digest, keys = name_digest(name), (key_digest(stored), EVERY_KEY)
    return not any(
        e.subscription == digest and e.key in keys and e.id <= stored.ref.id
        for e in deferred.entries
    )


def _end_lane(lane: LanePart, seen: dict[Shard, _ScannedShard]) -> LanePart:
    """Note the content of a lane that was read to its end."""
    with suppress(Unreadable):
        name, topic, epoch, number = parse_lane_pk(lane.key)
        if name != "dead":
            shard = seen[topic, epoch, number]
            shard.lanes[name] = lane.count
            shard.sequences = lane.sequences or shard.sequences
    return LanePart()
