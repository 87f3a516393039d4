"""The dispatcher: sends messages to their subscriptions, then deletes, retries or buries them.

Relay and visit run this one code. Delivery is at least once: send, then delete. On the happy path
a message costs one delete and no other write.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.decisions import OutcomeWriter
from fairbox.dispatch.delivery import Admitted, Delivery, DeliveryResult, How, Job
from fairbox.dispatch.overlapping_pages import PageStream
from fairbox.dispatch.ports import OVERDUE_MS, Doorbell
from fairbox.dispatch.sending.circuit_breakers import Gate
from fairbox.dispatch.sending.circuit_follow_up import follow_up_bells
from fairbox.dispatch.sending.sender import Sender, run_concurrently, run_sequentially
from fairbox.errors import FairboxError
from fairbox.model.clock import milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from random import Random

    from fairbox.dispatch.delivery import SendOrder
    from fairbox.dispatch.overlapping_pages import Page
    from fairbox.dispatch.ports import Destinations, Doorbells, Outcome
    from fairbox.dispatch.sending.lines import Readiness
    from fairbox.dispatch.sending.sender import FanOut
    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef, Shard
    from fairbox.model.topic_states import TopicState
    from fairbox.model.topics import Subscription
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables

_AFTER_PROBE_MS: Final = 5000
_AGAIN_MS: Final = 1000
_UNRUNG_MS: Final = 60_000
_PAUSED_MS: Final = 900_000


class Dispatcher:
    """Delivers the messages that a visit has read or the relay was handed.

    Args:
        destinations: opens destinations.
        doorbells: enqueues visits for messages that have to wait.
        fan_out: runs the calls to several destinations; `run_concurrently` or `run_sequentially`.
        readiness: says which subscriptions are ready; by default circuits and limits do.
    """

    def __init__(
        self,
        tables: Tables,
        destinations: Destinations,
        doorbells: Doorbells,
        *,
        clock: Clock,
        rng: Random,
        fan_out: FanOut = run_concurrently,
        readiness: Readiness | None = None,
    ) -> None:
        self.tables = tables
        self.doorbells = doorbells
        self.clock = clock
        self.gate = Gate(tables, clock, rng)
        self._sender = Sender(
            tables.bodies, destinations, clock, fan_out, readiness or self.gate, rng=rng
        )
        self.rng = rng

    def apart(self, subscription: Subscription) -> bool:
        """Whether shared visits leave a subscription to visits apart."""
        return self._sender.apart(subscription)

    def allowed_in_stream(self, topic: TopicState) -> bool:
        """Whether the relay may call a subscription of the topic."""
        return any(map(self._sender.allowed_in_stream, topic.subscriptions))

    def ring_at(self, shard: Shard, seconds: set[int]) -> None:
        """Enqueue visits of a shard at these times, in seconds since 1970 UTC; 0: at once."""
        self.doorbells.ring(
            [Doorbell(*shard, not_before=second * 1000) for second in sorted(seconds)]
        )

    def deliver(
        self,
        messages: Sequence[StoredMessage],
        *,
        deadline: float,
        timeout: float = 14.0,
        order: SendOrder | None = None,
        from_stream: bool = False,
        shared: bool = False,
        subscription: str = "",
        kept: bool = False,
        walk: bool = False,
    ) -> DeliveryResult:
        """Send messages that are due to the subscriptions that lack them, and write the outcomes.

        Args:
            messages: outstanding messages of pushed topics, in the order to send them.
            deadline: no call begins after this time (seconds since 1970).
            timeout: seconds that one call may take, where the subscription does not say less.
            order: of an ordered shard, its order; the caller then enqueues visits of messages that
                wait.
            from_stream: leave out subscriptions that may not be called from the stream; the result
                has the messages `left`, for which no visit is enqueued here.
            shared: leave out subscriptions that need visits apart; the result has their messages
                `apart`, for which no visit is enqueued here. Not on ordered topics.
            subscription: send to this one only; empty: to all.
            kept: no walk looks for these messages: they keep doorbells of their own.
            walk: skip messages under retry, which have their own doorbells, until they are a
                minute overdue.

        Returns:
            The result; nothing is raised for a destination's failure.
        """
        how = How(order, from_stream, shared, subscription, kept, walk)
        delivery = self._begin(messages, how)
        sent = self._sender.send(
            delivery.admitted.jobs,
            deadline,
            timeout,
            from_stream=from_stream,
            shared=shared,
            apart=bool(subscription),
        )

        delivery.result.outcomes = sent.outcomes
        self._finish(delivery, sent.handed_over)
        return delivery.result

    def deliver_pages(
        self,
        pages: Iterator[Page],
        *,
        deadline: float,
        subscription: str,
        timeout: float = 14.0,
    ) -> None:
        """Send a walk's pages to one subscription, and keep its room in flight full.

        While its circuit is closed and it has no rate, a page is taken as soon as the pages before
        leave room in flight. The outcomes of a page are written when all its calls are answered;
        eight pages at most wait for that.

        Args:
            pages: messages of one topic, and the function that takes their result.
            deadline: no call begins after this time (seconds since 1970).
            subscription: send to this one only.
            timeout: seconds that one call may take, where the subscription does not say less.
        """
        how = How(subscription=subscription, walk=True)
        for page in pages:
            stream = PageStream(
                page, pages, partial(self._begin, how=how), self._finish, self._flows
            )
            sent = self._sender.send(stream.jobs, deadline, timeout, apart=True, more=stream.more)
            stream.end(sent.outcomes)

    def _flows(self, delivery: Delivery) -> bool:
        """Whether neither a circuit nor a rate says how many messages may be sent."""
        return all(
            s.rate is None and s.name not in self.gate.next_probes(topic)
            for topic in delivery.topics.values()
            if topic is not None
            for s in topic.subscriptions
            if s.name == delivery.how.subscription
        )

    def _begin(self, messages: Sequence[StoredMessage], how: How) -> Delivery:
        """Return the delivery of messages, with the jobs that circuits and rates admit."""
        topics = {
            n: self.tables.topic_cache.get(n) for n in dict.fromkeys(m.ref.topic for m in messages)
        }
        pushed = [(m, t) for m in messages if (t := topics[m.ref.topic]) and t.subscriptions]
        jobs = self._jobs(pushed, how.order, OVERDUE_MS if how.walk else 0)

        # asked once for each subscription, not for each message
        if how.from_stream:
            subscriptions = dict.fromkeys(job.subscription for job in jobs)
            allowed = set(filter(self._sender.allowed_in_stream, subscriptions))
            jobs = [job for job in jobs if job.subscription in allowed]
        if how.subscription:
            jobs = [job for job in jobs if job.subscription.name == how.subscription]

        # before the gate admits: a job that is handed over must take no token, and be no probe
        slow: set[Subscription] = set()
        if how.shared:
            slow = set(filter(self._sender.apart, {job.subscription for job in jobs}))
        apart = [job for job in jobs if job.subscription in slow]
        jobs = [job for job in jobs if job.subscription not in slow]

        result = DeliveryResult()
        admitted = self._admit(jobs, result)
        result.paced = admitted.paced
        return Delivery(how, topics, pushed, jobs, apart, admitted, result)

    def _finish(self, delivery: Delivery, handed_over: Sequence[Job] = ()) -> None:
        """Write the outcomes of a delivery, and enqueue visits of the messages that stay."""
        how, topics, pushed = delivery.how, delivery.topics, delivery.pushed
        admitted, result = delivery.admitted, delivery.result
        # asked again, since the answers of this delivery may have opened circuits
        probes = {t.topic.name: self.gate.next_probes(t) for t in topics.values() if t is not None}

        # before the waits are noted: jobs that are handed over have visits of their own
        if delivery.apart or handed_over:
            self._hand_over([*delivery.apart, *handed_over], probes, admitted, result)
        if how.subscription:  # the others' visits see to them
            others = [(m.ref, t.subscription_names - {how.subscription}) for m, t in pushed]
            admitted.elsewhere |= {(ref, name) for ref, names in others for name in names}
            admitted.waiting |= admitted.elsewhere

        self._note_waits(delivery.jobs, admitted, probes, result)
        self._follow_circuits(topics, result)

        rings = self._conclude(
            pushed,
            admitted,
            probes,
            result,
            order=how.order,
            from_stream=how.from_stream,
            kept=how.kept,
            walk=how.walk,
        )

        if how.subscription:
            rings = [replace(bell, subscription=how.subscription) for bell in rings]
        self._ring(rings, result)

    def relayed(self, stored: StoredMessage, topic: TopicState) -> bool:
        """Whether the relay sends such a message, or would send it to a subscription."""
        lacking = stored.lacking(topic.subscription_names)
        return topic.topic.ordering == "none" and any(
            s.name in lacking and self._sender.allowed_in_stream(s) for s in topic.subscriptions
        )

    def _jobs(
        self,
        messages: Sequence[tuple[StoredMessage, TopicState]],
        order: SendOrder | None,
        patience: int,
    ) -> list[Job]:
        now = milliseconds(self.clock)
        jobs = []
        for stored, topic in messages:
            lacking = stored.lacking(topic.subscription_names)
            for subscription in topic.subscriptions:
                name = subscription.name
                if name not in lacking:
                    continue
                # a message under retry has its own doorbell, to which a walk leaves it at first
                due = stored.due(name) + (patience if stored.state(name).attempts else 0)
                if due <= now if order is None else order.admits(stored, name, now):
                    in_order = topic.topic.ordering == "key"
                    jobs.append(Job(subscription, stored, in_order, topic.topic))

        return jobs

    def _admit(self, jobs: Sequence[Job], result: DeliveryResult) -> Admitted:
        """Return the jobs that circuits and rates admit; none if the tables cannot be read."""
        try:
            return self.gate.admit(jobs)
        except FairboxError as error:
            result.metrics.errors.append(str(error))
            return Admitted()

    def _hand_over(
        self,
        jobs: Sequence[Job],
        probes: Mapping[str, Mapping[str, int]],
        admitted: Admitted,
        result: DeliveryResult,
    ) -> None:
        """Note the jobs for visits apart, where the subscription may be called or probed now."""
        now = milliseconds(self.clock)
        for job in jobs:
            name, ref = job.subscription.name, job.stored.ref
            admitted.waiting.add((ref, name))
            probe = probes[ref.topic].get(name)
            if probe is None or 0 < probe <= now:
                admitted.elsewhere.add((ref, name))
                result.apart.setdefault((ref.topic, name), []).append(ref)

    def _note_waits(
        self,
        jobs: Sequence[Job],
        admitted: Admitted,
        probes: Mapping[str, Mapping[str, int]],
        result: DeliveryResult,
    ) -> None:
        """Note when to come back to subscriptions that do not take everything now."""
        for job in jobs:
            name, ref = job.subscription.name, job.stored.ref
            outcome = result.outcomes.get((ref, name))
            # a refused message has a retry of its own, which says when
            settled = outcome is not None and outcome.verdict in ("taken", "refused")
            if settled or name in result.waits:
                continue

            now = milliseconds(self.clock)
            probe = probes[ref.topic].get(name)
            if probe is not None:
                # a minute late, because whoever probes or resumes it enqueues visits before
                result.waits[name] = max(probe, now) + _UNRUNG_MS
                result.quiet.add(name)
            elif (ref, name) in admitted.waiting:
                wait = now + _AGAIN_MS
                # a turn of the shard's own, so that all shards get a part of the rate
                if name in admitted.paced:
                    served = name in result.served
                    shards = ref.shard + 1 if job.topic is None else job.topic.shards
                    turn = self.gate.turn(job.subscription, ref.shard, shards, served=served)
                    wait = max(turn, wait)
                result.waits[name] = wait

    def _follow_circuits(
        self, topics: Mapping[str, TopicState | None], result: DeliveryResult
    ) -> None:
        """Report changes of circuits, and enqueue visits for probes and for messages that waited.

        A failure to enqueue them is reported: the sweep comes within ten minutes after a quiet
        period, and repair finds messages under retry.
        """
        events, errors = self.gate.drain()
        result.metrics.circuits += events
        result.metrics.errors += errors
        if events:
            self._ring(follow_up_bells(events, topics, milliseconds(self.clock), self.rng), result)

    def _conclude(
        self,
        messages: Sequence[tuple[StoredMessage, TopicState]],
        admitted: Admitted,
        probes: Mapping[str, Mapping[str, int]],
        result: DeliveryResult,
        *,
        order: SendOrder | None,
        from_stream: bool,
        kept: bool,
        walk: bool,
    ) -> list[Doorbell]:
        """Write the outcomes; return the doorbells of messages that stay."""
        writer = OutcomeWriter(self.tables, self.clock, self.rng, result, order)
        settled = []
        for stored, topic in messages:
            ref, not_ready = stored.ref, probes[stored.ref.topic]
            outcomes = {
                s.name: result.outcomes[ref, s.name]
                for s in topic.subscriptions
                if (ref, s.name) in result.outcomes
            }
            waits = _waits(stored, topic, admitted, not_ready, outcomes)
            refused = {name for name, o in outcomes.items() if o.verdict == "refused"}
            if walk:  # others have doorbells, or are noted in the position
                waits |= dict.fromkeys(topic.subscription_names - refused)
            due = writer.settle(stored, topic, outcomes, waits)
            settled.append((stored, topic, outcomes, refused, due))

        # before the doorbells: a message that could not be deleted stays, and needs one
        writer.delete_delivered()

        rings: dict[tuple[Shard, int, str, bool], list[MessageRef]] = defaultdict(list)
        # on an ordered shard the visit itself enqueues what follows, from the entries of its row
        for stored, topic, outcomes, refused, due in settled if order is None else ():
            ref, not_ready = stored.ref, probes[stored.ref.topic]
            after = stored if ref in result.unsettled else result.after.get(ref)
            if after is None or after.gone:
                continue

            if due is None:  # one doorbell at most, or they would multiply
                unsent = topic.subscription_names if not walk else refused
                back = self._back(ref, unsent, not_ready, admitted, result)
                retries = dict(self._retries(after, topic, admitted, back, kept=kept))
                if retries:
                    name = next(iter(retries)) if len(retries) == 1 else ""
                    rings[ref.place, -(-min(retries.values()) // 1000), name, True].append(ref)
                continue

            if from_stream and self._left_out(stored, topic, not_ready, outcomes):
                result.left.append(ref)
            else:
                tried = after.tried(topic.subscription_names)
                rings[ref.place, -(-due // 1000), "", kept or tried].append(ref)

        return [
            Doorbell(*shard, tuple(refs), second * 1000, subscription=name, kept=own)
            for (shard, second, name, own), refs in rings.items()
        ]

    def _back(
        self,
        ref: MessageRef,
        names: Iterable[str],
        not_ready: Mapping[str, int],
        admitted: Admitted,
        result: DeliveryResult,
    ) -> dict[str, int]:
        """Return when to try a message again at subscriptions, should they lack it (ms)."""
        now = milliseconds(self.clock)
        back = {}
        for name in names:
            if name in not_ready:
                back[name] = (not_ready[name] or now + _PAUSED_MS) + _AFTER_PROBE_MS
            elif (ref, name) in admitted.waiting:
                back[name] = result.waits.get(name) or now + _AGAIN_MS
            else:  # it could not be reached, or what became of it could not be written
                back[name] = now + OVERDUE_MS
        return back

    def _retries(
        self,
        stored: StoredMessage,
        topic: TopicState,
        admitted: Admitted,
        back: Mapping[str, int],
        *,
        kept: bool,
    ) -> Iterator[tuple[str, int]]:
        """Yield subscriptions that lack a message and when to try it again there (ms).

        Walks do not look for messages under retry. Others that were not tried come first: the
        probe's walk sends them.
        """
        now = milliseconds(self.clock)
        for name in sorted(stored.lacking(topic.subscription_names) & back.keys()):
            if (stored.ref, name) in admitted.elsewhere:
                continue
            if stored.state(name).attempts or kept:
                yield name, max(back[name], now, stored.due(name))

    def _left_out(
        self,
        stored: StoredMessage,
        topic: TopicState,
        not_ready: Mapping[str, int],
        tried: Mapping[str, Outcome],
    ) -> bool:
        """Whether a subscription was not tried because it may not be called from the stream."""
        lacking = stored.lacking(topic.subscription_names) - tried.keys() - not_ready.keys()
        return any(
            s.name in lacking and not self._sender.allowed_in_stream(s) for s in topic.subscriptions
        )

    def _ring(self, doorbells: Sequence[Doorbell], result: DeliveryResult) -> None:
        try:
            if doorbells:
                self.doorbells.ring(doorbells)
        except FairboxError as error:
            result.metrics.errors.append(str(error))


def _waits(
    stored: StoredMessage,
    topic: TopicState,
    admitted: Admitted,
    not_ready: Mapping[str, int],
    outcomes: Mapping[str, Outcome],
) -> dict[str, int | None]:
    """Return by subscription that is not ready when to visit the message (ms); None: not for it."""
    waits: dict[str, int | None] = {}
    for subscription in topic.subscriptions:
        name = subscription.name
        if (stored.ref, name) in admitted.waiting:
            waits[name] = None
        elif (probe := not_ready.get(name)) is not None:
            outcome = outcomes.get(name)
            # messages that were not tried come first: the probe's visit sends them
            tried = probe > 0 and outcome is not None and outcome.verdict != "refused"
            waits[name] = probe + _AFTER_PROBE_MS if tried else None
    return waits


__all__ = ["Dispatcher", "run_concurrently", "run_sequentially"]
