"""A visit: delivery of one shard, read from the table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.burials import readable
from fairbox.dispatch.delivery import How, VisitReport
from fairbox.dispatch.ordered.visit import OrderedVisits
from fairbox.dispatch.ports import Doorbell
from fairbox.dispatch.walks import Walk, places_below, places_since
from fairbox.model.clock import milliseconds
from fairbox.model.ids import time_of
from fairbox.tables.walk_positions import END, Places, WalkPosition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from fairbox.dispatch.dispatcher import Dispatcher
    from fairbox.model.messages import MessageRef, Shard
    from fairbox.model.topic_states import TopicState

WAITED_MS: Final = 60_000
"""Time after which a doorbell of a visit apart is left to the walk that goes on there."""
_PAUSED_MS: Final = 900_000
_AFTER_PROBE_MS: Final = 5000


class Visits:
    """Visits shards that doorbells name."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._tables = dispatcher.tables
        self._clock = dispatcher.clock
        self._ordered = OrderedVisits(dispatcher)
        self._gate = dispatcher.gate

    def handle(self, doorbell: Doorbell, *, deadline: float) -> VisitReport:
        """Deliver the messages that a doorbell asks for.

        It sends the messages that the doorbell names. A doorbell that names none asks for a walk: a
        doorbell of the sweep for messages that are due and over 60 s old. On an ordered topic a
        visit sends each key's next messages. A doorbell that came too early is passed on.

        Raises:
            FairboxError: the tables or queues failed; the doorbell must come again.
        """
        report = VisitReport()
        self._tables.topic_cache.refresh()
        topic = self._tables.topic_cache.get(doorbell.topic)
        if topic is None or not topic.pushed:
            return report

        now = milliseconds(self._clock)
        # the longest delay of SQS is 15 minutes: a doorbell for later goes round several times
        if doorbell.not_before > now + 999:
            self._dispatcher.doorbells.ring([doorbell])
        elif topic.topic.ordering == "key":
            self._visit_ordered(doorbell, topic, report, deadline)
        else:
            self._visit(doorbell, topic, report, deadline)
        return report

    def _visit_ordered(
        self, doorbell: Doorbell, topic: TopicState, report: VisitReport, deadline: float
    ) -> None:
        if not doorbell.refs and self._gate.admission(topic) == "none":
            self._postpone(doorbell, topic)
        elif not doorbell.refs and self._room(doorbell, topic) == 0:
            at = self._dispatcher.gate.turns(doorbell, topic, set(topic.subscription_names), set())
            self._dispatcher.ring_at(doorbell.place, {turn // 1000 for turn in at.values()})
        else:
            self._ordered.visit(doorbell, topic, report, deadline)

    def _visit(
        self, doorbell: Doorbell, topic: TopicState, report: VisitReport, deadline: float
    ) -> None:
        audience = _audience(doorbell, topic)
        if not audience.subscriptions:
            return  # removed: whoever removed it has enqueued walks

        by_walk = doorbell.subscription and not doorbell.refs  # which notes where it stopped
        if not by_walk and self._gate.admission(audience) == "none":
            self._put_off(doorbell, audience)
        elif self._waited_too_long(doorbell):
            self._leave_to_walk(doorbell)
        elif doorbell.subscription and not doorbell.refs and self._room(doorbell, topic) == 0:
            self._await_turn(doorbell, audience)
        elif doorbell.refs and (doorbell.kept or not _handed_over(doorbell)):
            self._visit_named(doorbell, audience, report, deadline)
        else:
            Walk(self._dispatcher, topic, doorbell, report, deadline).run()

    def _room(self, doorbell: Doorbell, topic: TopicState) -> int | None:
        """Return how many messages a rate allows the visit; None: others may be sent, too."""
        audience = _audience(doorbell, topic).subscriptions
        return self._gate.room(audience[0]) if len(audience) == 1 else None

    def _await_turn(self, doorbell: Doorbell, audience: TopicState) -> None:
        """Put off a walk of one subscription to its shard's turn, with nothing read.

        Of equal doorbells of one second one stays: where it goes on is noted, not told (0.5 RRU).
        """
        if doorbell.since:
            self._note_places(doorbell, [doorbell.subscription], places_since(doorbell.since))
        at = self._dispatcher.gate.turns(doorbell, audience, audience.subscription_names, ())
        turn = at[doorbell.subscription]
        bell = replace(doorbell, not_before=turn, before=turn, since=0)
        self._dispatcher.doorbells.ring([bell])

    def _visit_named(
        self, doorbell: Doorbell, topic: TopicState, report: VisitReport, deadline: float
    ) -> None:
        alone = doorbell.subscription
        if not alone and all(map(self._dispatcher.apart, topic.subscriptions)):
            # nobody that shares visits is left: reading the messages would be for nothing
            self._hand_over(
                {(topic.topic.name, n): doorbell.refs for n in sorted(self._open(topic))}
            )
            self._keep_closed(doorbell, topic)
            return

        # asked before the read, which costs more
        room = self._room(doorbell, topic)
        # a rate lets it send so many; the others would be read once more in their turn
        refs = doorbell.refs[:room]
        messages, unreadable = self._tables.lanes.read(refs, pass_newer=True)
        # `BatchGetItem` answers in any order; messages are sent in that of the doorbell
        order = {ref: n for n, ref in enumerate(refs)}
        messages.sort(key=lambda m: order.get(m.ref, 0))
        readable_ = readable(self._tables, messages, unreadable, report)

        if readable_:
            how = How(shared=not alone, subscription=alone, kept=doorbell.kept)
            result = self._dispatcher.deliver(readable_, how, deadline=deadline)
            report.deliveries.append(result)
            self._hand_over(result.apart, kept=doorbell.kept)

        waiting = report.paced
        if len(refs) < len(doorbell.refs):
            waiting |= topic.subscription_names
        if not waiting:
            return

        at = self._dispatcher.gate.turns(doorbell, topic, waiting, waiting)
        # before the ring: of equal doorbells for one second one stays, whatever places it tells
        self._note_places(doorbell, at, places_below(doorbell))
        times = (time_of(r.id) if r.due is None else r.due for r in doorbell.refs)
        since = min(times) - 1
        bells = [
            Doorbell(*doorbell.place, (), turn, turn, name, since=since)
            for name, turn in at.items()
        ]
        if doorbell.kept and (rest := doorbell.refs[len(refs) :]):  # no walk looks for them
            bells.append(replace(doorbell, refs=rest, not_before=max(at.values())))

        self._dispatcher.doorbells.ring(bells)

    def _open(self, topic: TopicState) -> set[str]:
        """Return the subscriptions that may be called or probed now."""
        # a probe that is due counts as open: one message goes
        now = milliseconds(self._clock)
        probes = self._gate.next_probes(topic)
        return {n for n in topic.subscription_names if n not in probes or 0 < probes[n] <= now}

    def _keep_closed(self, doorbell: Doorbell, topic: TopicState) -> None:
        """Keep a doorbell, which must not be lost, for the subscriptions that take nothing now."""
        closed = topic.subscription_names - self._open(topic) if doorbell.kept else ()
        for name in sorted(closed):
            bell = replace(doorbell, subscription=name)
            self._put_off(bell, _audience(bell, topic))

    def _hand_over(
        self, apart: Mapping[tuple[str, str], Sequence[MessageRef]], *, kept: bool = False
    ) -> None:
        """Enqueue visits apart for subscriptions that are slow, or have a limit in flight."""
        now = milliseconds(self._clock)
        rings: dict[tuple[Shard, str], list[MessageRef]] = defaultdict(list)
        for (_, name), refs in apart.items():
            for ref in refs:
                rings[ref.place, name].append(ref)
        bells = [
            Doorbell(*shard, tuple(refs), 0, now, name, kept=kept)
            for (shard, name), refs in rings.items()
        ]
        if bells:
            self._dispatcher.doorbells.ring(bells)

    def _waited_too_long(self, doorbell: Doorbell) -> bool:
        apart = doorbell.refs and _handed_over(doorbell) and not doorbell.kept
        return bool(apart) and milliseconds(self._clock) - doorbell.before > WAITED_MS

    def _leave_to_walk(self, doorbell: Doorbell) -> None:
        """Leave these messages to the walk of their subscription, which has so much work.

        So doorbells do not pile up where a destination takes fewer messages than come: 0.5 RRU, and
        1 WRU for the first of them.
        """
        name = doorbell.subscription
        if name in self._note_places(doorbell, [name], places_below(doorbell)):
            now = milliseconds(self._clock)
            bell = Doorbell(*doorbell.place, (), now + 1000, now + 1000, subscription=name)
            self._dispatcher.doorbells.ring([bell])

    def _note_places(
        self, doorbell: Doorbell, names: Iterable[str], places: Places
    ) -> Collection[str]:
        """Note that subscriptions lack messages behind these places (0.5 RRU, 1 WRU if it is new).

        Returns:
            The subscriptions of which nothing was noted.
        """
        # read once; each lost write brings the position as it is then
        there: WalkPosition | None = self._tables.walks.read(doorbell.place)
        new: set[str] = set()
        while there is not None:
            new = set(names) - there.apart.keys()
            lower: dict[str, Places | None] = dict.fromkeys(sorted(new), places)
            for name in sorted(set(names) & there.apart.keys()):
                entry = there.apart[name]
                passed = entry.written and places.later != END  # a walk of lane `ready` goes on
                if passed or not places.lowest(entry).same(entry):
                    lower[name] = places.lowest(entry)
            if not lower:
                break
            there = self._tables.walks.move(doorbell.place, there, apart=lower)

        return new

    def _put_off(self, doorbell: Doorbell, audience: TopicState) -> None:
        """Drop a doorbell while nothing may be sent: closing a circuit enqueues walks.

        If no walk looks for its messages, it comes again when the circuit may be probed, or after
        15 minutes. If it names none, the next check is postponed.
        """
        if not doorbell.refs:
            self._postpone(doorbell, audience)
        elif doorbell.kept:
            now = milliseconds(self._clock)
            until = max(self._gate.quiet_until(audience) or now + _PAUSED_MS, now) + _AFTER_PROBE_MS
            self._dispatcher.doorbells.ring([replace(doorbell, not_before=until, before=0)])

    def _postpone(self, doorbell: Doorbell, topic: TopicState) -> None:
        """Postpone a shard's next check (1 RRU and 3 WRU, at most twice in a quiet period)."""
        row = self._tables.lanes.page("ready", *doorbell.place, limit=1).row
        now = milliseconds(self._clock)
        if row is not None and row.next_check is not None and row.next_check <= now:
            self._tables.rows.postpone_check(row, self._gate.quiet_until(topic), now)


def _audience(doorbell: Doorbell, topic: TopicState) -> TopicState:
    """Return the topic with the subscriptions alone that the visit sends to."""
    return topic.only(doorbell.subscription) if doorbell.subscription else topic


def _handed_over(doorbell: Doorbell) -> bool:
    """Whether a shared visit rang: a walk reads the next messages, for less than by their keys."""
    return bool(doorbell.subscription and doorbell.before)
