"""Marking: ledger, archive, acks, counts and index, all from the stream (stream-driven marking).

Marking reads every record of a message and does not depend on the relay. It may read records again,
in other batches, after a retry or a bisection: readers of the archive and the ledger drop
repetitions, and the counts take only records after the sequence number stored with them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from fairbox.batches.ack_messages import pack
from fairbox.dispatch.parallel import Run, one_by_one
from fairbox.dispatch.stream.lane_changes import (
    LANES,
    LaneChange,
    apply_changes,
    fresh_changes,
    lane_change_of,
)
from fairbox.dispatch.stream.message_events import archive_line, events_of, taken_before_skip
from fairbox.errors import FAILED, NewerVersion, NotAllowed, NotConfigured, Unavailable, Unreadable
from fairbox.model.clock import Clock, milliseconds
from fairbox.settings import ACK_QUEUE_URL
from fairbox.tables.keys import SK
from fairbox.tables.ledger import MAX_PER_ROW, SHARED, SPAN_MS, Delivery, ledger_item
from fairbox.tables.recounts import LaneMarks, digest, id_of
from fairbox.tables.shard_rows import ShardRow
from fairbox.tables.stream_records import Change, read_record, record_lane, without_heartbeats

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from fairbox.dispatch.ports import AckQueue, Archive, SetAside
    from fairbox.model.messages import Shard
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.stored_messages import Offloaded
    from fairbox.tables.tables import Tables

SMALL_TOPIC: Final = 25
_CAS_TRIES: Final = 8
_TRY_AGAIN: Final = (*FAILED, NotConfigured)


class _BodyKept(Unavailable):
    """An offloaded body could not be let expire; all else about its record is done."""


@dataclass(slots=True)
class MarkReport:
    """The result of one invocation.

    Attributes:
        events: kind -> how many.
        written: shards whose rows were written.
        unreadable: records whose images the codec could not read; they were counted only.
        acks: batch items of delivered messages, put into the ack queue.
        newer: records set aside that only a newer release can read.
        failed: other records set aside.
        kept: names under which they are kept.
        stale: shards of records whose sequence numbers were passed already: counted, or given up.
    """

    events: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    written: set[Shard] = field(default_factory=set)
    unreadable: int = 0
    acks: int = 0
    newer: int = 0
    failed: int = 0
    kept: list[str] = field(default_factory=list)
    stale: set[Shard] = field(default_factory=set)


@dataclass(slots=True)
class _Aside:
    """Records that cannot be handled, for one reason."""

    error: Exception
    records: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class _Work:
    """The work that the records of one invocation ask for."""

    lines: list[bytes] = field(default_factory=list)
    deliveries: dict[str, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    changes: dict[Shard, list[LaneChange]] = field(default_factory=lambda: defaultdict(list))
    bodies: list[tuple[Offloaded, Mapping[str, Any]]] = field(default_factory=list)
    sequences: list[str] = field(default_factory=list)
    acks: dict[str, None] = field(default_factory=dict)  # each item once, in order
    topics: dict[str, TopicState | None] = field(default_factory=dict)
    aside: dict[str, _Aside] = field(default_factory=dict)
    doubtful: dict[Shard, None] = field(default_factory=dict)

    def put_aside(self, record: Mapping[str, Any], error: Exception) -> None:
        """Take a record out, which is counted by its key as far as that can be read."""
        reason = "bodies" if isinstance(error, _BodyKept) else type(error).__name__
        self.aside.setdefault(reason, _Aside(error)).records.append(record)


class Marking:
    """Marks the changes that the stream brings.

    Args:
        archive: keeps every event.
        acks: takes the batch items of delivered messages. None: there are no batches, and a
            delivered message that carries an item is a record that cannot be handled.
        aside: keeps records that cannot be handled, so that they stop no others; None: nothing
            does, and they fail the invocation once the others are done.
        run: makes many independent calls; `one_by_one` or `in_threads`.
        bodies: whether the archive keeps the bodies of messages.
    """

    def __init__(
        self,
        tables: Tables,
        archive: Archive,
        clock: Clock,
        acks: AckQueue | None = None,
        *,
        aside: SetAside | None = None,
        run: Run = one_by_one,
        bodies: bool = True,
    ) -> None:
        self._tables = tables
        self._archive = archive
        self._clock = clock
        self._acks = acks
        self._aside = aside
        self._run = run
        self._bodies = bodies

    def handle(
        self,
        records: Sequence[Mapping[str, Any]],
        *,
        deadline: float = inf,
        report: MarkReport | None = None,
    ) -> MarkReport:
        """Mark records as Lambda hands them over; any part of it may be repeated.

        Counts come first, so that no later failure makes the index late. The archive comes last,
        except for the bodies, which are no longer needed.

        Args:
            records: in the order of the stream.
            deadline: when to stop, in seconds since 1970 UTC.
            report: filled in; a new one by default.

        Raises:
            FairboxError: something was not written; all the records must come again.
            Exception: without a place for it, the first error of a record that cannot be handled;
                the others are marked.
        """
        report = MarkReport() if report is None else report
        records = without_heartbeats(records)
        if not records:
            return report

        self._tables.topic_cache.refresh()
        work = _Work()
        for record in records:
            self._take(record, work, report)

        try:
            self._write(work, report, deadline)
        except _TRY_AGAIN:
            raise
        except Exception as error:
            if len(records) > 1 or self._aside is None:
                raise  # the mapping halves the batch until the record is alone
            work.put_aside(records[0], error)
            work.doubtful |= dict.fromkeys(work.changes)

        if work.aside or work.doubtful:
            self._set_aside(work, report)
        return report

    def _write(self, work: _Work, report: MarkReport, deadline: float) -> None:
        self._count(work, report, deadline)
        rows = self._ledger_rows(work)
        if rows:
            self._tables.ledger.write(rows)
        if work.acks and self._acks is not None:
            self._acks.put(pack(work.acks))
        report.acks = len(work.acks)
        if work.lines:
            self._archive.write(work.lines)
        if work.bodies:
            self._expire(work, deadline)

    def _expire(self, work: _Work, deadline: float) -> None:
        """Make the bodies expire; set aside the records of bodies that do not expire in time."""

        def expire(offloaded: Offloaded, record: Mapping[str, Any]) -> None:
            try:
                if self._clock.now() >= deadline:
                    raise _BodyKept("put_object_tagging", "the time is over")
                if self._tables.bodies is not None:
                    self._tables.bodies.expire(offloaded.bucket, offloaded.key)
            except (Unavailable, NotAllowed) as error:
                work.put_aside(record, _BodyKept("put_object_tagging", error.detail))

        self._run([partial(expire, *body) for body in work.bodies])

    def _set_aside(self, work: _Work, report: MarkReport) -> None:
        """Keep the records that cannot be handled, and ask for recounts of their shards."""
        self._tables.recounts.doubt(work.doubtful, milliseconds(self._clock))
        for reason, aside in work.aside.items():
            if self._aside is None:
                raise aside.error
            report.kept.append(self._aside.keep(reason, aside.records))
            if isinstance(aside.error, NewerVersion):
                report.newer += len(aside.records)
            else:
                report.failed += len(aside.records)

    def _take(self, record: Mapping[str, Any], work: _Work, report: MarkReport) -> None:
        try:
            change = read_record(record)
        except NewerVersion as error:
            self._take_by_key(record, work, error)
        except Unreadable:
            report.unreadable += 1
            self._take_by_key(record, work)
        except Exception as error:  # noqa: BLE001 - one record must not stop the others
            self._take_by_key(record, work, error)
        else:
            try:
                self._take_change(change, record, work, report)
            except FAILED:
                # a service failed, and not the record: the whole batch comes again
                raise
            except Exception as error:  # noqa: BLE001 - as above
                self._take_by_key(record, work, error)

    def _take_change(
        self, change: Change, record: Mapping[str, Any], work: _Work, report: MarkReport
    ) -> None:
        ref = change.stored.ref
        topic = self._topic(ref.topic, work)
        events = list(events_of(change, topic))
        lines = [archive_line(event, topic, bodies=self._bodies) for event in events]
        lane_change = lane_change_of(change)
        item = _acked_item(change, topic)
        if item is not None and self._acks is None:
            raise NotConfigured(ACK_QUEUE_URL)

        # from here on nothing fails: a record is taken whole or not at all
        work.sequences.append(change.sequence)
        work.lines += lines
        for event in events:
            report.events[event.kind] += 1
            if event.kind == "delivered":
                work.deliveries[ref.topic].append(event.delivery)
        if lane_change is not None:
            work.changes[ref.place].append(lane_change)
        if item is not None:
            work.acks[item] = None

        old = change.old
        if change.kind == "REMOVE" and old is not None and old.offloaded is not None:
            # a dead letter still needs its body, and so does the copy of a moved message
            kept = old.any_dead or old.gone == "moved"
            work.bodies += [] if kept else [(old.offloaded, record)]

    def _topic(self, name: str, work: _Work) -> TopicState | None:
        if name not in work.topics:
            work.topics[name] = self._tables.topic_cache.get(name)
        return work.topics[name]

    def _take_by_key(
        self, record: Mapping[str, Any], work: _Work, error: Exception | None = None
    ) -> None:
        """Count a record by its key, not by its images; with an error, set it aside.

        Without an error, the relay or a visit buries the item.
        """
        if error is not None:
            work.put_aside(record, error)

        try:
            lane, topic, epoch, number = record_lane(record)
            shard = topic, epoch, number
            delta = {"INSERT": 1, "REMOVE": -1}.get(record["eventName"], 0)
            body = record["dynamodb"]
            # an unreadable item leaves its lane only when it is buried: its removal is a death
            deaths = 1 if delta < 0 and error is None else 0
            key = str(body["Keys"][SK]["S"])
            change = LaneChange(lane, str(body["SequenceNumber"]), delta, deaths, key=key)
        except (Unreadable, LookupError, TypeError, AttributeError):
            return

        work.changes[shard].append(change)
        if error is not None:
            work.doubtful[shard] = None

    def _ledger_rows(self, work: _Work) -> list[dict[str, Any]]:
        if not work.deliveries:
            return []

        groups: dict[str, list[Delivery]] = defaultdict(list)
        for topic, deliveries in work.deliveries.items():
            # a row costs 1 WRU at least: topics of few deliveries share one
            groups[topic if len(deliveries) >= SMALL_TOPIC else SHARED] += deliveries
        sequences = (work.sequences[0], work.sequences[-1])
        rows = []
        for topic, deliveries in groups.items():
            state = None if topic == SHARED else self._topic(topic, work)
            for part, chunk in enumerate(_chunks(deliveries)):
                kept = state.topic.retention if state else self._longest(chunk, work)
                # the key is that of the batch, so that a batch that comes again overwrites its rows
                key = (sequences[0], f"{sequences[1]}#{part}" if part else sequences[1])
                rows.append(ledger_item(topic, chunk, key, chunk[-1].at // 1000 + kept))

        return rows

    def _longest(self, deliveries: Sequence[Delivery], work: _Work) -> int:
        """Return the longest retention of the topics that share a row."""
        states = [self._topic(name, work) for name in {d.topic: None for d in deliveries}]
        return max((s.topic.retention for s in states if s is not None), default=7 * 86400)

    def _count(self, work: _Work, report: MarkReport, deadline: float) -> None:
        """Bring the shard rows up to date."""
        now = int(self._clock.now() * 1000)
        waiting = list(work.changes)
        for _ in range(_CAS_TRIES):
            rows = self._rows(waiting, work)
            done: dict[Shard, bool] = {}

            def count(shard: Shard, before: ShardRow, done: dict[Shard, bool] = done) -> None:
                if self._clock.now() >= deadline:
                    raise Unavailable("update_item", "the time is over")
                done[shard] = self._count_shard(before, work, report, now)

            self._run([partial(count, shard, row) for shard, row in rows.items()])
            waiting = [shard for shard in rows if not done[shard]]
            if not waiting:
                return
        raise Unavailable("update_item", f"{len(waiting)} shard rows are changed by others")

    def _rows(self, shards: Collection[Shard], work: _Work) -> dict[Shard, ShardRow]:
        """Return the rows of shards; rows that this release cannot read are put in doubt."""
        try:
            found = self._tables.rows.get_many(list(shards))
        except Unreadable:
            # read one by one, so that the damaged row stops no other shard
            found = []
            for shard in shards:
                try:
                    found += self._tables.rows.get_many([shard]) or [ShardRow(*shard)]
                except Unreadable:
                    work.doubtful[shard] = None
            shards = [row.place for row in found]

        rows = {shard: ShardRow(*shard) for shard in shards}
        return rows | {row.place: row for row in found}

    def _count_shard(self, before: ShardRow, work: _Work, report: MarkReport, now: int) -> bool:
        """Bring a row up to date; return whether it was as it was read."""
        shard = before.place
        changes = work.changes[shard]
        fresh = fresh_changes(before, changes)
        if len(fresh) < len(changes):
            report.stale.add(shard)
        # before the row: what that has counted is not fresh when the batch comes again
        if before.recount:
            self._log(before, fresh)

        # what the sweep does with the shard decides when it checks it
        pushed, kept_ms = self._checked(shard[0], work)
        after = apply_changes(before, changes, now=now, pushed=pushed, kept_ms=kept_ms)
        if after == before:
            return True

        # a count below zero is wrong for certain
        if after.recount is None and (after.ready < 0 or after.later < 0):
            after = after.doubted(now)
            work.doubtful[shard] = None

        if not self._tables.rows.change(after, before):
            return False
        report.written.add(shard)
        return True

    def _checked(self, name: str, work: _Work) -> tuple[bool, int | None]:
        """Return whether the dispatcher delivers a topic, and its `kept_ms`.

        One that cannot be read may be delivered.
        """
        try:
            topic = self._topic(name, work)
        except Unreadable:
            return True, None
        if topic is None or topic.pushed:
            return topic is not None, None
        return False, topic.kept_ms

    def _log(self, row: ShardRow, fresh: Sequence[LaneChange]) -> None:
        """Keep changes for a recount, before the row says that they were counted."""
        for lane in LANES:
            mine = [c for c in fresh if c.lane == lane]
            present = {digest(c.key): c.delta > 0 for c in mine if c.delta}
            dead = {digest(id_of(c.key)): c.deaths > 0 for c in mine if c.deaths}
            if present or dead:
                first, last = mine[0].sequence, mine[-1].sequence
                marks = LaneMarks(present, dead)
                self._tables.recounts.log(row, lane, marks, first=first, last=last)


def _acked_item(change: Change, topic: TopicState | None) -> str | None:
    """Return the batch item that this change acks: the item of a message that was delivered.

    A message that died for a subscription has failed its item, and the first outcome stands. Its
    record must not ack: it may come late, when a redrive has put the item back.
    """
    old = change.old
    if change.kind != "REMOVE" or old is None or old.lane == "dead":
        return None
    # a delete without `gone` is a delivery
    undelivered = old.gone is not None and not taken_before_skip(old, topic)
    return None if undelivered or old.any_dead else old.message.batch_item


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
