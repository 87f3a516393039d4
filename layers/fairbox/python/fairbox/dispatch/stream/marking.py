"""Marking: ledger, archive, acks, counts and index, all from the stream (stream-driven marking).

Marking reads every record of a message and does not depend on the relay. It may read records again,
in other batches, after a retry or a bisection: readers of the archive and the ledger drop
repetitions, and the counts take only records after the sequence number stored with them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.batches.ack_messages import pack
from fairbox.codec.ledger import MAX_PER_ROW, SHARED, SPAN_MS, ledger_item
from fairbox.codec.stream_records import read_record, record_lane, sequence_order
from fairbox.dispatch.stream.message_events import archive_line, events_of
from fairbox.errors import NewerVersion, NotConfigured, Unavailable, Unreadable
from fairbox.model.stored_messages import NEVER_MS, Delivery, Offloaded, ShardRow
from fairbox.settings import ACK_QUEUE_URL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fairbox.codec.stream_records import Change
    from fairbox.dispatch.ports import AckQueue, Archive, MarkingStore
    from fairbox.model.clock import Clock
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.model.topics import TopicState

SMALL_TOPIC: Final = 25
FIRST_CHECK_MS: Final = 60_000
PULLED_CHECK_MS: Final = 3_600_000
_CAS_TRIES: Final = 8

Shard = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class LaneChange:
    """The effect of one record on the counts of a shard.

    Attributes:
        lane: the lane in whose stream order the sequence number is.
        sequence: the record's.
        delta: messages in the lane: +1, 0, -1.
        deaths: +1 for a death, -1 for a redrive.
        due: of an insert into lane `later`, in milliseconds since 1970 UTC.
    """

    lane: Literal["ready", "later"]
    sequence: str
    delta: int
    deaths: int = 0
    due: int | None = None


@dataclass(slots=True)
class MarkReport:
    """The result of one invocation.

    Attributes:
        events: kind -> how many.
        ledger_rows, row_writes: rows written.
        unreadable: records whose images the codec could not read; they were counted only.
        acks: batch items of delivered messages, put into the ack queue.
    """

    events: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    ledger_rows: int = 0
    row_writes: int = 0
    unreadable: int = 0
    acks: int = 0


@dataclass(slots=True)
class _Work:
    """The work that the records of one invocation ask for."""

    lines: list[bytes] = field(default_factory=list)
    deliveries: dict[str, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    changes: dict[Shard, list[LaneChange]] = field(default_factory=lambda: defaultdict(list))
    bodies: list[Offloaded] = field(default_factory=list)
    sequences: list[str] = field(default_factory=list)
    acks: dict[str, None] = field(default_factory=dict)  # each item once, in order
    topics: dict[str, TopicState | None] = field(default_factory=dict)


class Marking:
    """Marks the changes that the stream brings.

    Args:
        store: the tables.
        archive: keeps every event.
        clock: gives the time.
        acks: takes the batch items of delivered messages. None: there are no batches, and a
            delivered message that carries an item fails the invocation, so that nothing is lost.
    """

    def __init__(
        self, store: MarkingStore, archive: Archive, clock: Clock, acks: AckQueue | None = None
    ) -> None:
        self._store = store
        self._archive = archive
        self._clock = clock
        self._acks = acks

    def handle(self, records: Iterable[Mapping[str, Any]]) -> MarkReport:
        """Mark records as Lambda hands them over; any part of it may be repeated.

        Raises:
            NotConfigured: a delivered message carries a batch item, and there is no ack queue.
            NewerVersion: only a newer release can read a record; nothing was written.
            FairboxError: something was not written; all the records must come again.
        """
        report = MarkReport()
        self._store.refresh()
        work = _Work()
        for record in records:
            self._take(record, work, report)
        if work.lines:
            self._archive.write(work.lines)
        rows = self._ledger_rows(work)
        if rows:
            self._store.write_ledger(rows)
        report.ledger_rows = len(rows)
        report.acks = self._ack(work.acks)
        report.row_writes = self._count(work)
        for offloaded in work.bodies:
            self._store.expire_body(offloaded)
        return report

    def _take(self, record: Mapping[str, Any], work: _Work, report: MarkReport) -> None:
        try:
            change = read_record(record)
        except NewerVersion:
            raise  # counted alone, it would never reach ledger and archive
        except Unreadable:
            report.unreadable += 1
            self._take_unreadable(record, work)
            return
        work.sequences.append(change.sequence)
        stored = change.stored
        ref = stored.ref
        topic = self._topic(ref.topic, work)
        for event in events_of(change, topic):
            work.lines.append(archive_line(event, topic))
            report.events[event.kind] += 1
            if event.kind == "delivered":
                work.deliveries[ref.topic].append(event.delivery)
        lane_change = _lane_change(change, stored)
        if lane_change is not None:
            work.changes[ref.topic, ref.epoch, ref.shard].append(lane_change)
        old = change.old
        item = _acked_item(change)
        if item is not None:
            work.acks[item] = None
        if change.kind == "REMOVE" and old is not None and old.offloaded is not None:
            # a dead letter still needs its body, and so does the copy of a moved message
            work.bodies += [] if old.any_dead or old.gone == "moved" else [old.offloaded]

    def _topic(self, name: str, work: _Work) -> TopicState | None:
        if name not in work.topics:
            work.topics[name] = self._store.topic(name)
        return work.topics[name]

    def _ack(self, items: Mapping[str, None]) -> int:
        """Put items into the ack queue, a thousand and more a message; return their number."""
        if items and self._acks is None:
            raise NotConfigured(ACK_QUEUE_URL)
        if items and self._acks is not None:
            self._acks.put(pack(items))
        return len(items)

    def _take_unreadable(self, record: Mapping[str, Any], work: _Work) -> None:
        """Count an item that the codec cannot read; the relay or a visit buries it."""
        try:
            lane, topic, epoch, shard = record_lane(record)
        except Unreadable:
            return
        delta = {"INSERT": 1, "REMOVE": -1}.get(record["eventName"], 0)
        deaths = 1 if delta < 0 else 0
        sequence = record["dynamodb"]["SequenceNumber"]
        work.changes[topic, epoch, shard].append(LaneChange(lane, sequence, delta, deaths))

    def _ledger_rows(self, work: _Work) -> list[dict[str, Any]]:
        if not work.deliveries:
            return []
        groups: dict[str, list[Delivery]] = defaultdict(list)
        for topic, deliveries in work.deliveries.items():
            groups[topic if len(deliveries) >= SMALL_TOPIC else SHARED] += deliveries
        sequences = (work.sequences[0], work.sequences[-1])
        rows = []
        for topic, deliveries in groups.items():
            state = self._topic(topic, work)
            for part, chunk in enumerate(_chunks(deliveries)):
                kept = state.topic.retention if state else self._longest(chunk, work)
                key = (sequences[0], f"{sequences[1]}#{part}" if part else sequences[1])
                rows.append(ledger_item(topic, chunk, key, chunk[-1].at // 1000 + kept))
        return rows

    def _longest(self, deliveries: Sequence[Delivery], work: _Work) -> int:
        """Return the longest retention of the topics that share a row."""
        states = [self._topic(name, work) for name in {d.topic: None for d in deliveries}]
        return max((s.topic.retention for s in states if s is not None), default=7 * 86400)

    def _count(self, work: _Work) -> int:
        """Bring the shard rows up to date; return the number written."""
        written = 0
        waiting: dict[Shard, Sequence[LaneChange]] = dict(work.changes)
        for _ in range(_CAS_TRIES):
            rows = {(r.topic, r.epoch, r.shard): r for r in self._store.shard_rows(list(waiting))}
            lost: dict[Shard, Sequence[LaneChange]] = {}
            for shard, shard_changes in waiting.items():
                before = rows.get(shard, ShardRow(*shard))
                topic = self._topic(shard[0], work)
                after = apply_changes(
                    before,
                    shard_changes,
                    now=int(self._clock.now() * 1000),
                    pushed=topic is not None and topic.pushed,
                )
                if after == before:
                    continue
                if self._store.change_row(after, before):
                    written += 1
                else:
                    lost[shard] = shard_changes
            if not lost:
                return written
            waiting = lost
        raise Unavailable("update_item", f"{len(waiting)} shard rows are changed by others")


def _acked_item(change: Change) -> str | None:
    """Return the batch item that this change acks: the item of a message that was delivered.

    A message that died for a subscription has failed its item, and the first outcome stands. Its
    record must not ack: it may come late, when a redrive has put the item back.
    """
    old = change.old
    if change.kind != "REMOVE" or old is None or old.lane == "dead":
        return None
    return None if old.gone is not None or old.any_dead else old.message.batch_item


def _lane_change(change: Change, stored: StoredMessage) -> LaneChange | None:
    if stored.lane == "dead":
        return None
    delta = {"INSERT": 1, "REMOVE": -1, "MODIFY": 0}[change.kind]
    deaths = 0
    if change.kind == "MODIFY" and change.old is not None and change.new is not None:
        redriven = change.new.redriven > change.old.redriven
        deaths = int(change.new.any_dead) - int(change.old.any_dead or redriven)
    elif change.kind == "INSERT" and stored.redriven:
        deaths = -1
    if not delta and not deaths:
        return None
    return LaneChange(
        stored.lane, change.sequence, delta, deaths, stored.ref.due if delta > 0 else None
    )


def _chunks(deliveries: list[Delivery]) -> Iterator[list[Delivery]]:
    """Yield deliveries by time, in rows of bounded number and span."""
    chunk: list[Delivery] = []
    for delivery in sorted(deliveries, key=lambda d: (d.at, d.id)):
        if chunk and (len(chunk) >= MAX_PER_ROW or delivery.at - chunk[0].at >= SPAN_MS):
            yield chunk
            chunk = []
        chunk.append(delivery)
    if chunk:
        yield chunk


def apply_changes(
    row: ShardRow, changes: Sequence[LaneChange], *, now: int, pushed: bool
) -> ShardRow:
    """Return the row after the changes that it has not counted yet; the same row when they cancel.

    Args:
        row: as read.
        changes: in the order of each lane's stream.
        now: milliseconds since 1970 UTC.
        pushed: whether the dispatcher delivers the topic.
    """
    after = row
    earliest: int | None = None
    for lane in ("ready", "later"):
        mine = [c for c in changes if c.lane == lane]
        if not mine:
            continue
        counted = sequence_order(row.ready_sequence if lane == "ready" else row.later_sequence)
        fresh = [c for c in mine if sequence_order(c.sequence) > counted]
        dues = [c.due for c in fresh if c.due is not None]
        earliest = min([*dues, *([] if earliest is None else [earliest])], default=None)
        delta = sum(c.delta for c in fresh)
        deaths = sum(c.deaths for c in fresh)
        if not delta and not deaths:
            continue
        last = max((c.sequence for c in fresh), key=sequence_order)
        if lane == "ready":
            after = replace(
                after,
                ready=after.ready + delta,
                ready_deaths=after.ready_deaths + deaths,
                ready_sequence=last,
            )
        else:
            after = replace(
                after,
                later=after.later + delta,
                later_deaths=after.later_deaths + deaths,
                later_sequence=last,
            )
    return _with_next_check(row, after, earliest, now=now, pushed=pushed)


def _with_next_check(
    before: ShardRow, after: ShardRow, earliest: int | None, *, now: int, pushed: bool
) -> ShardRow:
    if after.ready <= 0 and after.later <= 0:
        look = NEVER_MS if after.dead > 0 else None
        return replace(after, look_at=look, backoff=0) if after != before else after
    look = after.look_at if after.look_at != NEVER_MS else None
    if look is None:
        look = now + (FIRST_CHECK_MS if pushed else PULLED_CHECK_MS)
        if pushed and after.ready <= 0 and earliest is not None:
            look = max(earliest, now)
    if pushed and earliest is not None and earliest < look:
        look = max(earliest, now)
    return replace(after, look_at=look) if look != after.look_at else after
