"""A visit of an ordered shard: each key in the order of ids, failed messages held in the row.

While nothing fails it is one consistent query of the head, and no write but the deletes. Messages
that were not taken are held in the shard's row, so that a later visit begins behind them: for each
entry that is due it reads the one message, and after its delivery the messages that follow it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.burials import readable
from fairbox.dispatch.delivery import How, VisitReport
from fairbox.dispatch.ordered.barriers import NOTHING, BlockingLetters, ResizeBarrier, Waits
from fairbox.dispatch.ordered.key_order import CHECK_MS, KeyOrder
from fairbox.errors import Unavailable
from fairbox.model.clock import milliseconds
from fairbox.model.ids import before, behind, time_of
from fairbox.model.messages import MessageRef, Shard
from fairbox.tables.deferred_keys import DeferredKey, DeferredKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.dispatch.dispatcher import Dispatcher
    from fairbox.dispatch.ports import Doorbell
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.lanes import ShardPage
    from fairbox.tables.shard_rows import ShardRow
    from fairbox.tables.stored_messages import StoredMessage

YOUNG_MS: Final = 2_000  # smaller ids than these may still be committed
FIRST_PAGE: Final = 20  # read before the row says that the visit begins elsewhere
PAGE: Final = 100
_FOLLOWERS: Final = 10  # read first behind a delivered message; then twice as many, up to a page
_PASSED: Final = 8  # messages passed that are worth a write of their own
_LANE_END: Final = "~"  # behind every id
_CAS_TRIES: Final = 8
NEWER_MS: Final = 60_000  # until messages behind one of a newer release are tried again
_FROM_HEAD_MS: Final = 600_000
_FROM_HEAD_MS_A_MESSAGE: Final = 2000  # so that it reads one message in 2 s: 0.125 RRU a second
_FROM_HEAD_AT_MOST_MS: Final = 86_400_000  # in a paused week a message is read seven times so


class OrderedVisits:
    """Visits shards of ordered topics."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._barrier = ResizeBarrier(dispatcher.tables, dispatcher.clock)
        self._deep: set[Shard] = set()  # shards in which visits begin far behind the head

    def visit(
        self, doorbell: Doorbell, topic: TopicState, report: VisitReport, deadline: float
    ) -> None:
        """Deliver each key's next messages; raises as `Visits.handle` does.

        Costs 1 RRU for 4 KB of messages while nothing is held. Otherwise the row costs 1 RRU and
        each due entry 1; messages behind `start`, and the followers of delivered ones, cost by
        size. `fairbox.dispatch.ordered.barriers` gives the cost of a resize.
        """
        tables = self._dispatcher.tables
        shard = doorbell.place
        now = milliseconds(self._dispatcher.clock)
        page: ShardPage | None = None
        if shard in self._deep:
            # from the row alone: a page from the head would be read for nothing
            row, deferred = tables.deferred_keys.get(shard)
        else:
            page = tables.lanes.page("ready", *shard, limit=FIRST_PAGE + 1).before_newer()
            row, deferred = page.row, page.deferred or DeferredKeys()

        waits = NOTHING
        # older shards cost 1 RRU each: they are asked only if something here may have to wait
        if page is None or page.messages or deferred.entries:
            waits = self._barrier.waits(topic, shard, settled=row is not None and row.settled)
        if waits.everything:
            self._wait(shard, row, waits, now)
            return

        read = (row, deferred, waits)
        begun = OrderedVisit(self._dispatcher, shard, topic, report, deadline, read)
        start = begun.start(now)
        if page is not None and page.last is None:
            start = ""  # that was all of it
        elif start:
            self._deep.add(shard)
            page = None

        # the row is empty again: the next visit reads the head first
        if not deferred.start:
            self._deep.discard(shard)
        begun.run(start, page, doorbell, now)

    def _wait(self, shard: Shard, row: ShardRow | None, waits: Waits, now: int) -> None:
        """Come again when older shards may be done."""
        self._dispatcher.ring_at(shard, {-(-waits.again // 1000)})
        if row is not None and (row.next_check or now + 1) <= now:
            self._dispatcher.tables.rows.postpone_check(row, waits.again, now)


class OrderedVisit:
    """One visit; it is its dispatcher's `SendOrder`.

    Args:
        dispatcher, shard, topic, report, deadline: as of `OrderedVisits.visit`.
        read: the shard row and the keys that it holds, read before any message, and the keys that
            older shards list.
    """

    def __init__(  # noqa: PLR0917 - the parts of one visit
        self,
        dispatcher: Dispatcher,
        shard: Shard,
        topic: TopicState,
        report: VisitReport,
        deadline: float,
        read: tuple[ShardRow | None, DeferredKeys, Waits],
    ) -> None:
        self._dispatcher = dispatcher
        self._tables = dispatcher.tables
        self._clock = dispatcher.clock
        self._shard = shard
        self._topic = topic
        self._report = report
        self._deadline = deadline

        self._row, self._base, waits = read
        self._order = KeyOrder(topic, self._base, dispatcher.rng, waits)
        self._letters = BlockingLetters(dispatcher.tables, topic, shard)
        self._ceiling: str | None = None  # the start that others wrote into the row meanwhile
        self._start = self._reach = ""  # reading began behind it; all is settled up to it
        self._begun = 0
        self._passed = 0
        self._from_head = False
        self._checking = False  # from the head, although the row says to begin elsewhere

    def start(self, now: int) -> str:
        """Return the id to begin behind at `now` (ms); empty: at the head.

        It is the head from time to time, for late messages whose doorbell was lost: after ten
        minutes, or longer if much waits, since repair finds them too. And it is the head if the row
        is of other subscriptions than the topic has.
        """
        deferred = self._base
        if not deferred.start:
            return ""
        ready = 0 if self._row is None else self._row.ready
        pause = max(_FROM_HEAD_MS, ready * _FROM_HEAD_MS_A_MESSAGE)
        others = deferred.audience != self._order.audience
        self._checking = others or now - deferred.since >= min(pause, _FROM_HEAD_AT_MOST_MS)
        return "" if self._checking else deferred.start

    def run(self, start: str, page: ShardPage | None, doorbell: Doorbell, now: int) -> None:
        """Try the entries that are due, then go on behind `start`; write down the held keys.

        Args:
            start: see the method of this name.
            page: the page that was read from the head, if the visit begins there.
            doorbell: the doorbell that is answered.
            now: when the first read began, in milliseconds since 1970 UTC.
        """
        self._from_head = not start
        self._begun = now
        self._start = self._reach = start
        self._retry(start, page, doorbell, now)
        if not self._report.unfinished:
            self._walk(page, now)
        self._end()

    def admits(self, stored: StoredMessage, name: str, now: int) -> bool:
        """Return whether a message that a subscription lacks may be sent to it at `now` (ms)."""
        return self._order.admits(stored, name, now)

    def may_die(self, stored: StoredMessage, died: frozenset[str]) -> bool:
        """Hold the key in the row before its message dies, if the topic says `block` (1 WRU)."""
        blocks = self._order.blocking(stored, died, milliseconds(self._clock))
        if blocks is None:
            return False
        added = {(b.place, b.id): b for b in blocks}
        if not added:
            return True

        for _ in range(_CAS_TRIES):
            # even if the row has it: readers of the redriven message see a new version then
            row = self._order.row
            others = (e for e in row.entries if (e.place, e.id) not in added)
            held = sorted((*others, *added.values()), key=lambda entry: entry.id)
            changed = replace(row, entries=tuple(held))
            if row.audience != self._order.audience:
                changed = replace(changed, start="", audience=self._order.audience)
            theirs = self._tables.deferred_keys.write(self._shard, changed, row.version)
            if theirs is None:
                self._order.row = replace(changed, version=row.version + 1)
                return True
            self._adopt(theirs)

        return False

    def _retry(self, start: str, page: ShardPage | None, doorbell: Doorbell, now: int) -> None:
        """Try the due and the named messages, then the followers of delivered ones."""
        order, named = self._order, {ref.id for ref in doorbell.refs}
        probed = order.digests(self._probed(now))
        # a doorbell with `before` follows a change of a circuit: all may be ready again
        woken = order.digests(self._topic.subscription_names) if doorbell.before > 0 else probed

        due = []
        for entry in order.due(now, named, woken):
            if entry.state == "blocked" and self._letters.block(entry):
                order.defer(entry, now + CHECK_MS)
            else:
                due.append(entry)
        due = order.free(due)

        if not start:
            self._lift(due, page, now)
            return

        probing = [e for e in due if e.subscription in probed and e.state != "blocked"]
        due = [e for e in due if e not in probing]
        ids = {e.id for e in due if e.state == "waiting"} | {i for i in named if i <= start}
        if due or ids:
            self._try(due, ids, now)

        self._followers([e for e in order.lifted if e.id <= start], start)
        if probing:  # a page shows more than the messages that were tried before
            for entry in probing:
                order.lift(entry)
            self._followers(probing, _LANE_END)

    def _probed(self, now: int) -> set[str]:
        """Return the subscriptions that take one message, as a probe."""
        gate = self._dispatcher.gate
        gate.admission(self._topic)
        return {name for name, at in gate.next_probes(self._topic).items() if 0 < at <= now}

    def _try(self, due: Sequence[DeferredKey], ids: set[str], now: int) -> None:
        """Send the first messages of these entries, and others that are named."""
        order = self._order
        refs = [MessageRef(*self._shard, i) for i in sorted(ids)]
        found, unreadable = self._tables.lanes.read(refs) if refs else ([], [])
        messages = readable(self._tables, found, unreadable, self._report)
        # before the delivery: followers of a message that died meanwhile must wait
        self._catch_up(messages or due)
        order.heads = self._through(due, messages, now)
        self._deliver(sorted(messages, key=lambda m: m.ref.id))
        order.lift_heads()

    def _lift(self, due: Sequence[DeferredKey], page: ShardPage | None, now: int) -> None:
        """Lift the due entries: their messages are in the page from the head, or will be read."""
        if page is not None:
            read = [e for e in due if page.last is None or e.id <= page.last]
            lying = [m for m in page.messages if m.gone is None]
            through = self._through(read, lying, now)
            due = [e for e in due if e in through or e not in read]
        for entry in due:
            self._order.lift(entry)

    def _catch_up(self, found: Sequence[object]) -> None:
        """Hold the keys that others hold since the row was read, if dead letters block (1 RRU).

        A message that has died in the meantime was not found: only the row, written before, says
        that its followers wait.
        """
        if found and self._topic.topic.on_dead == "block":
            _, theirs = self._tables.deferred_keys.get(self._shard)
            if theirs.version != self._order.row.version:
                self._adopt(theirs)

    def _through(
        self, due: Sequence[DeferredKey], messages: Sequence[StoredMessage], now: int
    ) -> list[DeferredKey]:
        """Return the entries whose message may be sent or has gone for good; defer the others."""
        stuck = self._letters.stuck(due, messages)
        for entry in stuck:
            self._order.defer(entry, now)
        return [e for e in due if e not in stuck]

    def _followers(self, entries: Sequence[DeferredKey], start: str) -> None:
        """Read the messages from the first of these up to `start` once, and send them in order."""
        cursor = before(min((e.id for e in entries), default=start))
        limit = _FOLLOWERS

        while cursor < start:
            free = [e for e in entries if not self._order.covers(e, max(cursor, e.id))]
            if not free:
                return
            if self._late():
                self._open(free, cursor)
                return

            cursor = max(cursor, before(min(e.id for e in free)))
            page = self._tables.lanes.page("ready", *self._shard, limit=limit, after=cursor)
            newer, page = page.newer, page.before_newer()
            messages = readable(self._tables, page.messages, page.unreadable, self._report)
            self._catch_up(messages)
            self._deliver([m for m in messages if m.ref.id <= start])

            # the keys of items that only a newer release reads are unknown: all behind them waits
            if newer and newer <= start:
                self._hold_back(free, before(newer), milliseconds(self._clock) + NEWER_MS)
                return
            cursor = page.last or start
            # few follow as a rule: a small page first costs less
            limit = min(PAGE, limit * 2)

    def _open(self, entries: Sequence[DeferredKey], cursor: str) -> None:
        """Make the next visit go on with the followers of these entries, behind `cursor`."""
        self._report.unfinished = True
        self._hold_back(entries, cursor, milliseconds(self._clock))

    def _hold_back(self, entries: Sequence[DeferredKey], cursor: str, due: int) -> None:
        for entry in entries:
            first = max(entry.id, behind(cursor)) if cursor else entry.id
            self._order.hold(replace(entry, id=first, due=due, state="open"))

    def _walk(self, page: ShardPage | None, now: int) -> None:
        """Read on, page by page, and send the messages that are not held."""
        cursor = self._reach
        growing = True

        while not self._order.all_wait(cursor):
            if self._late():
                self._report.unfinished = True
                break
            if page is None:
                now = milliseconds(self._clock)
                after = cursor or None
                page = self._tables.lanes.page("ready", *self._shard, limit=PAGE, after=after)
                page = page.before_newer()
                self._catch_up(page.messages)

            messages = readable(self._tables, page.messages, page.unreadable, self._report)
            self._deliver(messages)
            growing = growing and self._advance(messages, now)
            if page.last is None or page.newer or self._order.uncovered:
                self._report.unfinished |= bool(self._order.uncovered)
                break
            cursor, page = page.last, None

        # the row may say to begin behind here: what was not read before its start needs entries
        if self._report.unfinished and self._from_head:
            self._open(self._order.lifted, self._reach)

    def _advance(self, messages: Sequence[StoredMessage], now: int) -> bool:
        """Move `start` behind these messages; return whether the next page may move it on."""
        for stored in messages:
            young = time_of(stored.ref.id) > now - YOUNG_MS
            if young or stored.ref.id in self._order.uncovered:
                return False
            self._reach = stored.ref.id
            self._passed += self._order.keeps(stored)
        return True

    def _late(self) -> bool:
        return self._clock.now() >= self._deadline

    def _deliver(self, messages: Sequence[StoredMessage]) -> None:
        if not messages:
            return
        report = self._dispatcher.deliver(messages, How(order=self), deadline=self._deadline)
        self._report.deliveries.append(report)
        now = milliseconds(self._clock)
        self._order.lift_heads()
        self._order.learn(report, now, start=self._start, late=self._late())

    def _adopt(self, theirs: DeferredKeys) -> None:
        self._order.adopt(theirs)
        self._ceiling = min(theirs.start, theirs.start if self._ceiling is None else self._ceiling)

    def _next_row(self) -> DeferredKeys:
        """Return the row to write."""
        row, entries = self._order.row, self._order.entries
        if not entries:
            return DeferredKeys(row.version)

        start = self._reach
        if row.audience == self._order.audience:
            start = max(start, row.start)
        if self._ceiling is not None:
            start = min(start, self._ceiling)
        # when the lane was last read from its head
        since = self._begun if self._checking or not row.start else row.since
        return DeferredKeys(
            row.version, entries, start, since if start else 0, self._order.audience
        )

    def _end(self) -> None:
        """Enqueue visits for waiting messages, then write the row: a crash costs an extra visit."""
        now = milliseconds(self._clock)
        entries = self._order.entries
        fresh = [e for e in entries if e not in self._base.entries]
        fresh = [e for e in fresh if e.state != "blocked" or e.due <= now]
        # for the others whoever probes or resumes the subscription enqueues visits
        rung = [e for e in fresh if not (e.whole and e.subscription in self._order.quiet)]
        # rounded up: a visit that came too early would have to ring again
        seconds = {-(-e.due // 1000) for e in rung if e.due > now}
        if self._report.unfinished or any(e.due <= now for e in fresh):
            seconds = {0} | seconds

        self._dispatcher.ring_at(self._shard, seconds)
        self._write()

        row = self._row
        if self._report.progress == 0 and row is not None and (row.next_check or now + 1) <= now:
            self._tables.rows.postpone_check(row, min((e.due for e in entries), default=0), now)

    def _write(self) -> None:
        for _ in range(_CAS_TRIES):
            row, wanted = self._order.row, self._next_row()
            if not self._differs(row, wanted):
                return
            theirs = self._tables.deferred_keys.write(self._shard, wanted, row.version)
            if theirs is None:
                return
            self._adopt(theirs)

        raise Unavailable("update_item", "the shard is being changed by others")

    def _differs(self, row: DeferredKeys, wanted: DeferredKeys) -> bool:
        """Whether a row is worth writing."""
        if not wanted.entries:
            return bool(row.entries or row.start)
        if set(wanted.entries) != set(row.entries) or wanted.start < row.start:
            return True
        return self._checking or (wanted.start > row.start and self._passed >= _PASSED)
