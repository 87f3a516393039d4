"""Walks: visits that read the lanes of a shard in order, from where the last one stopped.

A walk passes messages that it can do nothing about, and never comes back to them: it notes from
where a subscription lacks messages, and a walk for this subscription alone goes on there. So its
reads are bounded by the messages that it can send, not by messages waiting for others.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.burials import readable
from fairbox.dispatch.delivery import How
from fairbox.dispatch.ports import FROM_HEAD, OVERDUE_MS, Doorbell
from fairbox.dispatch.sending.rate_limits import PAGE, page_size
from fairbox.model.clock import milliseconds
from fairbox.model.ids import before, bound_of, sent_at, time_of
from fairbox.tables.keys import due_sk, message_sk
from fairbox.tables.walk_positions import END, LANES, NOWHERE, Places, WalkPosition, audience_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairbox.dispatch.delivery import DeliveryResult, Page, VisitReport
    from fairbox.dispatch.dispatcher import Dispatcher
    from fairbox.model.messages import OpenLane, Shard
    from fairbox.model.topic_states import Admission, TopicState
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables

NOT_RELAYED_MS: Final = 25_000
"""Age from which the relay sends a message no more: it treats records as young until 21 s."""
ONLY_LATER: Final = "later:"
"""`Doorbell.after` of a walk of lane `later` alone, from its position."""
RING_AHEAD_MS: Final = 900_000
AHEAD_MS: Final = 65_000
_STEP_MS: Final = 2000
_SETTLED_MS: Final = 5000
"""Age from which no id comes that sorts below it: a transaction commits within seconds."""
_AGAIN_MS: Final = 5000
_CAS_TRIES: Final = 4
_FIRST_PAGE: Final = 4
"""Delayed messages read first in search of the next long delay; then four times as many."""


class Walk:
    """One walk.

    Args:
        doorbell: without refs; or of one subscription, to begin at the smallest of its refs.
        report: is filled.
        deadline: no call begins after this time (seconds since 1970).
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        topic: TopicState,
        doorbell: Doorbell,
        report: VisitReport,
        deadline: float,
    ) -> None:
        self._dispatcher = dispatcher
        self._tables = dispatcher.tables
        self._clock = dispatcher.clock
        self._topic = topic
        self._doorbell = doorbell
        self._report = report
        self._deadline = deadline

        self._shard = doorbell.place
        self._alone = doorbell.subscription
        self._subscriptions = topic.only(self._alone) if self._alone else topic
        self._names = self._subscriptions.subscription_names
        self._named = frozenset(doorbell.refs)

        self._position = WalkPosition()
        self._shared = Places()  # of the position, where it is to be believed
        self._reached = Places()
        self._unsent: dict[str, Places] = {}
        self._at_once: set[str] = set()  # those of them that are only slow
        self._dues: list[int] = []
        self._stays = False
        self._stop = False  # nothing that follows in the lane can be sent
        self._ended = True

    def run(self) -> None:
        """Walk to the end of the lanes, or to the deadline, and enqueue the walks that follow."""
        if not self._names:
            return

        self._position = self._tables.walks.read(self._shard)
        now = milliseconds(self._clock)  # no place is ahead of the time
        shared = self._position.shared_by(self._topic.subscription_names)
        self._shared = shared.lowest(Places(bound_of(now), due_sk(now)))
        start = self._start_alone() if self._alone else self._start_shared()
        if start is None:  # there is nothing to do
            return
        self._reached = start

        ended = all(self._walk_lane(lane) for lane in LANES if start.of(lane) != END)
        if self._alone:
            self._finish_alone(ended=ended)
        else:
            self._finish_shared(start, ended=ended)

    def _start_shared(self) -> Places:
        shared = self._shared
        lane, place = _after(self._doorbell)
        if lane == "ready":
            return Places(place, END)
        if lane == "later":
            return Places("" if self._doorbell.since else shared.ready, place)
        if self._doorbell.after == FROM_HEAD:
            return Places()
        return replace(shared, ready=END) if self._doorbell.after == ONLY_LATER else shared

    def _start_alone(self) -> Places | None:
        doorbell, shared = self._doorbell, self._shared
        entry = self._position.apart.get(self._alone)
        lane, place = _after(doorbell)
        if doorbell.refs:
            return places_below(doorbell)
        if lane is not None and (entry is None or entry.written):
            first = Places() if lane == "later" else Places(later=END)
            return first.at(lane, place)

        since = places_since(doorbell.since) if doorbell.since else NOWHERE
        start = Places(max(shared.ready, since.ready), max(shared.later, since.later))
        if entry is not None:
            start = start.lowest(entry)
            # a later walk has been here, and has enqueued what follows it
            return None if 0 < doorbell.before <= entry.written and start.same(entry) else start
        return start if doorbell.since else None

    def _walk_lane(self, lane: OpenLane) -> bool:
        """Read a lane in pages, and send; return whether its end was reached."""
        self._ended, self._stop = True, False
        pages = self._pages(lane)
        if self._alone:
            self._dispatcher.deliver_pages(pages, deadline=self._deadline, subscription=self._alone)
            if self._unsent and self._clock.now() >= self._deadline:
                return False  # the time ended within a page
        else:
            how = How(shared=True, walk=True)
            for messages, done in pages:
                done(self._dispatcher.deliver(messages, how, deadline=self._deadline))

        return self._ended

    def _pages(self, lane: OpenLane) -> Iterator[Page]:
        """Read a lane; yield each page's messages to send, and the function for the result."""
        size = page_size(self._subscriptions)
        if self._doorbell.refs:
            size = min(size, max(8, 2 * len(self._doorbell.refs)))
        cursor = self._reached.of(lane)

        while not self._stop:
            if self._clock.now() >= self._deadline:
                self._ended = False
                return
            if self._admission() == "none":
                # otherwise its own place would say that nothing is left for it
                for name in self._names if self._alone else ():
                    self._note(name, lane, self._reached.of(lane))
                return

            now = milliseconds(self._clock)
            page = self._tables.lanes.page(
                lane,
                *self._shard,
                limit=size,
                after=cursor or None,
                until_due=now if lane == "later" else None,
            )

            messages = readable(self._tables, page.messages, page.unreadable, self._report)
            wanted = [self._wanted(m, now) for m in messages]
            due = list(compress(messages, wanted))
            self._dues += [_next_check(stored, now) for stored in messages]

            to_send = [m for m in due if self._concerns(m, now)]
            place = self._reached.of(lane)
            if to_send:
                yield to_send, partial(self._sent, due, lane, place)
            else:
                self._pass(due, lane, place, None)

            # behind a message that was left to the relay the place may not move on
            cut = len(due) < len(messages) or bool(page.newer)
            last = None if cut else page.last
            passed = [*wanted, False].index(False)  # the relay's may lie between others
            self._move(lane, messages[:passed] if cut else page.messages, last, newer=page.newer)

            if last is None or (not to_send and due and self._doorbell.refs):
                return
            cursor = last
            size = page_size(self._subscriptions)

    def _wanted(self, stored: StoredMessage, now: int) -> bool:
        """Whether a message is old enough: messages that may be the relay's are left to it."""
        age = now - sent_at(stored.ref.id, now)
        if stored.ref.due is not None or age > OVERDUE_MS:
            return True
        if stored.ref in self._named:  # whoever handed it over does not wait for the relay
            return True
        if self._alone:
            return age > NOT_RELAYED_MS or not self._dispatcher.relayed(stored, self._subscriptions)
        theirs = age <= NOT_RELAYED_MS and self._dispatcher.relayed(stored, self._topic)
        return time_of(stored.ref.id) < self._doorbell.before and not theirs

    def _sent(
        self,
        messages: Sequence[StoredMessage],
        lane: OpenLane,
        place: str,
        result: DeliveryResult,
    ) -> None:
        """Note the messages of a page that a delivery left, and whether to read on."""
        self._report.deliveries.append(result)
        self._pass(messages, lane, place, result)
        self._stop = self._names == self._names & self._unsent.keys()

    def _concerns(self, stored: StoredMessage, now: int) -> bool:
        """Whether a message can be sent to a subscription that is ready, or need not stay."""
        lacking = stored.lacking(self._topic.subscription_names)
        if not lacking:
            return True
        not_ready = self._dispatcher.gate.next_probes(self._subscriptions)
        return any(
            stored.due(name) + (OVERDUE_MS if stored.state(name).attempts else 0) <= now
            and (name not in not_ready or 0 < not_ready[name] <= now)
            for name in lacking & self._names
        )

    def _pass(
        self,
        messages: Sequence[StoredMessage],
        lane: OpenLane,
        place: str,
        result: DeliveryResult | None,
    ) -> None:
        """Note from where each subscription lacks messages that no doorbell of their own names."""
        now = milliseconds(self._clock)
        outcomes = {} if result is None else result.outcomes
        for stored in messages:
            ref = stored.ref
            for name in stored.lacking(self._names):
                outcome = outcomes.get((ref, name))
                self._stays |= outcome is None or not outcome.taken
                settled = outcome is not None and outcome.verdict in ("taken", "refused")
                written = result is None or ref not in result.unsettled
                late = OVERDUE_MS if stored.state(name).attempts else 0
                if not (settled and written) and stored.due(name) + late <= now:
                    self._note(name, lane, place)
                    if result is not None and ref in result.apart.get((ref.topic, name), ()):
                        self._at_once.add(name)
            place = message_sk(ref.id, ref.due, lane)

    def _note(self, name: str, lane: OpenLane, place: str) -> None:
        """Note that a subscription lacks messages behind a place, unless a lower one is noted."""
        places = self._unsent.get(name, NOWHERE)
        if place < places.of(lane):
            self._unsent[name] = places.at(lane, place)

    def _move(
        self, lane: OpenLane, passed: Sequence[StoredMessage], last: str | None, *, newer: str
    ) -> None:
        """Move the reached place behind the passed messages, but before ids that may come."""
        place = last or ""
        if not place and passed:
            place = message_sk(passed[-1].ref.id, passed[-1].ref.due, lane)
        if newer:
            place = min(place, before(newer) if lane == "ready" else newer)
        # transactions commit late: smaller ids than these may still come
        settled = milliseconds(self._clock) - _SETTLED_MS
        place = min(place, bound_of(settled) if lane == "ready" else due_sk(settled))
        if place > self._reached.of(lane):
            self._reached = self._reached.at(lane, place)

    def _finish_shared(self, start: Places, *, ended: bool) -> None:
        """Write where the next walk begins, and enqueue walks of subscriptions that lack more."""
        # the places first: the walks that are enqueued read from there where they begin
        self._write_shared()
        bells = [
            self._next_walk(name)
            for name in sorted({*self._unsent, *self._position.apart} & self._names)
            if self._admission(name) != "none"
        ]

        if not ended:
            self._report.unfinished = True
            bells.append(self._rest(start))
        # a shorter delay than the long ones has a doorbell of its own, which the relay rang
        if ended and self._doorbell.after == ONLY_LATER:
            due = next_delayed(self._tables, self._shard, milliseconds(self._clock))
            if due is not None:
                bells.append(Doorbell(*self._shard, not_before=due, after=ONLY_LATER))

        if bells:
            self._dispatcher.doorbells.ring(bells)
        if ended and self._report.progress == 0 and start.ready != END:
            self._postpone()

    def _write_shared(self) -> None:
        """Write where the next walks begin, if messages stay that they need not read.

        If another walk has moved the shared places, it has made the same notes.
        """
        reached, audience = self._reached, audience_text(self._names)
        if self._doorbell.after == FROM_HEAD or reached.ready == END:
            reached = reached.at("ready", self._shared.ready)
        if reached.later == END:
            reached = reached.at("later", self._shared.later)

        there = self._position
        moved = self._stays and (reached, audience) != (there.shared, there.audience)
        for _ in range(_CAS_TRIES):
            noted: dict[str, Places | None] = {}
            for name, places in self._unsent.items():
                entry = there.apart.get(name)
                lowest = places if entry is None else places.lowest(entry)
                # a walk that a doorbell told where to go on may have passed it since
                if entry is None or entry.written or not lowest.same(entry):
                    noted[name] = lowest
            for name in there.apart.keys() - self._names:  # it was removed
                noted[name] = None

            if not (noted or moved):
                return

            shared = (reached, audience)
            others = self._tables.walks.move(self._shard, there, shared=shared, apart=noted)
            first = self._position
            if others is None or (others.shared, others.audience) != (first.shared, first.audience):
                return
            there = others

    def _rest(self, start: Places) -> Doorbell:
        """Return the doorbell of the walk that goes on where this one met its deadline."""
        doorbell = replace(self._doorbell, not_before=0)
        # nothing was reached: the next one begins where this one did
        if self._reached == start:
            return doorbell
        lane: OpenLane = "later" if self._reached.ready == start.ready else "ready"
        from_head = int(doorbell.after == FROM_HEAD)  # lane `ready`, too
        return replace(doorbell, after=f"{lane}:{self._reached.of(lane)}", since=from_head)

    def _finish_alone(self, *, ended: bool) -> None:
        """Note where the subscription's next walk begins, or that nothing is left for one."""
        name = self._alone
        entry = self._position.apart.get(name)
        left = self._unsent.get(name)
        if not ended:
            self._report.unfinished = True
            left = self._reached if left is None else left.lowest(self._reached)

        named = bool(self._doorbell.refs)
        ready = self._admission(name) != "none"
        if left is None:
            more = entry is not None and not named and not self._write_alone(None)
        else:
            told = ended and ready and entry is not None and entry.written and not named
            if not told:  # else the doorbell says where: a turn of a rate is no write
                self._write_alone(left)
            more = entry is None or not named

        if ready and more:
            self._dispatcher.doorbells.ring([self._next_walk(name)])

    def _write_alone(self, left: Places | None) -> bool:
        """Write where the subscription's next walk begins; None: nowhere.

        Returns:
            False: it begins lower, where another walk or visit has noted that messages are left.
        """
        name, there = self._alone, self._position
        mine = there.apart.get(name)
        for _ in range(_CAS_TRIES):
            entry = there.apart.get(name)
            # somebody may have noted messages lower than this walk has read
            lower = entry is not None and (self._doorbell.refs or entry != mine)
            after = left
            if entry is not None and lower:
                after = entry if left is None else left.lowest(entry)
                if after.same(entry):
                    return False
            if after is not None:
                after = replace(after, written=milliseconds(self._clock))

            others = self._tables.walks.move(self._shard, there, apart={name: after})
            if others is None:
                return not lower
            there = others

        return False

    def _next_walk(self, name: str) -> Doorbell:
        """Return the doorbell of the walk for a subscription that lacks messages.

        Where a walk of the subscription alone met its deadline, it goes on at once: others that are
        enqueued find that it has written its place, and end.
        """
        now = milliseconds(self._clock)
        at = now + _AGAIN_MS
        places = self._unsent.get(name)
        if places is None or name in self._at_once or self._report.unfinished:
            at = now + 1000

        served = {n for delivery in self._report.deliveries for n in delivery.served}
        waiting = self._report.paced
        at = self._dispatcher.gate.turns(self._doorbell, self._topic, waiting, served).get(name, at)

        if self._alone and self._report.unfinished and self._report.progress and not waiting:
            return Doorbell(*self._shard, before=now + 1, subscription=name)
        after = ""
        if self._alone and places is not None and not self._doorbell.refs:
            lane: OpenLane = "later" if places.later != END else "ready"
            after = f"{lane}:{places.of(lane)}"
        return Doorbell(*self._shard, not_before=at, before=at, subscription=name, after=after)

    def _admission(self, name: str = "") -> Admission:
        """Return the admission to the walk's subscriptions, or to one of them."""
        its = self._subscriptions
        return self._dispatcher.gate.admission(its.only(name) if name else its)

    def _postpone(self) -> None:
        """Postpone the shard's next check, because nothing could be sent."""
        row = self._tables.lanes.page("ready", *self._shard, limit=1).row
        now = milliseconds(self._clock)
        if row is None or (row.next_check or now + 1) > now:  # another visit has postponed it
            return

        due = min((at for at in self._dues if at > now), default=0)
        if self._admission() == "none":
            due = self._dispatcher.gate.quiet_until(self._topic)  # who closes it enqueues visits
        if row.later:
            page = self._tables.lanes.page("later", *self._shard, limit=1, after=due_sk(now + 1))
            if page.messages:
                following = page.messages[0].ref.due or 0
                due = min(due, following) if due > now else following

        self._tables.rows.postpone_check(row, due, now)


def _after(doorbell: Doorbell) -> tuple[OpenLane | None, str]:
    """Return the lane and the sort key behind which a doorbell makes its walk go on."""
    name, _, place = doorbell.after.partition(":")
    for lane in LANES:
        if name == lane and place:
            return lane, place
    return None, ""


def places_below(doorbell: Doorbell) -> Places:
    """Return the places right before the messages that a doorbell names."""
    ready = min((ref.id for ref in doorbell.refs if ref.due is None), default="")
    later = min((ref.due for ref in doorbell.refs if ref.due is not None), default=None)
    return Places(before(ready) if ready else END, END if later is None else due_sk(later))


def places_since(time: int) -> Places:
    """Return the places behind which messages lie that were added or due after a time (ms)."""
    return Places(bound_of(time), due_sk(time))


def next_delayed(tables: Tables, shard: Shard, now: int) -> int | None:
    """Return when the next message with a long delay is due, within 65 s, in steps of 2 s (ms)."""
    after: str | None = due_sk(now + 1)
    limit = _FIRST_PAGE
    while after is not None:
        page = tables.lanes.page(
            "later", *shard, limit=limit, after=after, until_due=now + AHEAD_MS, consistent=False
        )
        for stored in page.messages:
            due = stored.ref.due or 0
            # a shorter delay has a doorbell of its own, which the relay rang
            if due - time_of(stored.ref.id) > RING_AHEAD_MS:
                return -(-max(due, now + 1) // _STEP_MS) * _STEP_MS
        after, limit = page.last, min(PAGE, 4 * limit)
    return None


def _next_check(stored: StoredMessage, now: int) -> int:
    dues = [state.due for state in stored.states.values() if not state.dead]
    overdue = sent_at(stored.ref.id, now) + OVERDUE_MS
    return max(overdue, stored.ref.due or 0, min(dues, default=0))
