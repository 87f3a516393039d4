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
from fairbox.dispatch.delivery import (
    PLAIN,
    Admitted,
    Delivery,
    DeliveryResult,
    How,
    Job,
    PageStream,
)
from fairbox.dispatch.ports import OVERDUE_MS, Destinations, Doorbell, Doorbells, Outcome
from fairbox.dispatch.sending.circuit_breakers import Gate
from fairbox.dispatch.sending.circuit_follow_up import follow_up_bells
from fairbox.dispatch.sending.sender import FanOut, Sender, run_concurrently, run_sequentially
from fairbox.errors import FairboxError
from fairbox.model.clock import Clock, milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from random import Random

    from fairbox.dispatch.delivery import Page
    from fairbox.dispatch.sending.lines import Readiness
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
        how: How = PLAIN,
        *,
        deadline: float,
        timeout: float = 14.0,
    ) -> DeliveryResult:
        """Send messages that are due to the subscriptions that lack them, and write the outcomes.

        Args:
            messages: outstanding messages of pushed topics, in the order to send them.
            how: by default to all subscriptions at once.
            deadline: no call begins after this time (seconds since 1970).
            timeout: seconds that one call may take, where the subscription does not say less.

        Returns:
            The result; nothing is raised for a destination's failure.
        """
        delivery = self._begin(messages, how)
        sent = self._sender.send(delivery.admitted.jobs, deadline, timeout, how)
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
            sent = self._sender.send(stream.jobs, deadline, timeout, how, stream.more)
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
        jobs = self._jobs(pushed, how)

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
        alone, topics, admitted = delivery.how.subscription, delivery.topics, delivery.admitted
        # asked again, since the answers of this delivery may have opened circuits
        delivery.probes = {
            t.topic.name: self.gate.next_probes(t) for t in topics.values() if t is not None
        }

        # before the waits are noted: jobs that are handed over have visits of their own
        self._hand_over(delivery, [*delivery.apart, *handed_over])
        if alone:  # the others' visits see to them
            others = [(m.ref, t.subscription_names - {alone}) for m, t in delivery.pushed]
            admitted.elsewhere |= {(ref, name) for ref, names in others for name in names}
            admitted.waiting |= admitted.elsewhere

        self._note_waits(delivery)
        self._follow_circuits(topics, delivery.result)
        rings = self._conclude(delivery)
        if alone:
            rings = [replace(bell, subscription=alone) for bell in rings]
        self._ring(rings, delivery.result)

    def relayed(self, stored: StoredMessage, topic: TopicState) -> bool:
        """Whether the relay sends such a message, or would send it to a subscription."""
        lacking = stored.lacking(topic.subscription_names)
        return topic.topic.ordering == "none" and any(
            s.name in lacking and self._sender.allowed_in_stream(s) for s in topic.subscriptions
        )

    def _jobs(self, messages: Sequence[tuple[StoredMessage, TopicState]], how: How) -> list[Job]:
        now, order = milliseconds(self.clock), how.order
        patience = OVERDUE_MS if how.walk else 0
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

    def _hand_over(self, delivery: Delivery, jobs: Sequence[Job]) -> None:
        """Note the jobs for visits apart, where the subscription may be called or probed now."""
        now = milliseconds(self.clock)
        for job in jobs:
            name, ref = job.subscription.name, job.stored.ref
            delivery.admitted.waiting.add((ref, name))
            probe = delivery.probes[ref.topic].get(name)
            if probe is None or 0 < probe <= now:
                delivery.admitted.elsewhere.add((ref, name))
                delivery.result.apart.setdefault((ref.topic, name), []).append(ref)

    def _note_waits(self, delivery: Delivery) -> None:
        """Note when to come back to subscriptions that do not take everything now."""
        admitted, result = delivery.admitted, delivery.result
        for job in delivery.jobs:
            name, ref = job.subscription.name, job.stored.ref
            outcome = result.outcomes.get((ref, name))
            # a refused message has a retry of its own, which says when
            settled = outcome is not None and outcome.verdict in ("taken", "refused")
            if settled or name in result.waits:
                continue

            now = milliseconds(self.clock)
            probe = delivery.probes[ref.topic].get(name)
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

    def _conclude(self, delivery: Delivery) -> list[Doorbell]:
        """Write the outcomes; return the doorbells of messages that stay."""
        how, result = delivery.how, delivery.result
        writer = OutcomeWriter(self.tables, self.clock, self.rng, result, how.order)
        settled = []
        for stored, topic in delivery.pushed:
            outcomes = {
                s.name: result.outcomes[stored.ref, s.name]
                for s in topic.subscriptions
                if (stored.ref, s.name) in result.outcomes
            }
            waits = _waits(delivery, stored, topic, outcomes)
            refused = frozenset(n for n, o in outcomes.items() if o.verdict == "refused")
            if how.walk:  # others have doorbells, or are noted in the position
                waits |= dict.fromkeys(topic.subscription_names - refused)
            due = writer.settle(stored, topic, outcomes, waits)
            settled.append((stored, topic, outcomes, refused, due))

        # before the doorbells: a message that could not be deleted stays, and needs one
        writer.delete_delivered()

        rings: dict[tuple[Shard, int, str, bool], list[MessageRef]] = defaultdict(list)
        # on an ordered shard the visit itself enqueues what follows, from the entries of its row
        for stored, topic, outcomes, refused, due in settled if how.order is None else ():
            ref = stored.ref
            after = stored if ref in result.unsettled else result.after.get(ref)
            if after is None or after.gone:
                continue

            if due is None:  # one doorbell at most, or they would multiply
                unsent = refused if how.walk else topic.subscription_names
                retries = self._retries(delivery, after, unsent)
                if retries:
                    name = next(iter(retries)) if len(retries) == 1 else ""
                    rings[ref.place, -(-min(retries.values()) // 1000), name, True].append(ref)
            elif how.from_stream and self._left_out(delivery, stored, topic, outcomes):
                result.left.append(ref)
            else:
                tried = after.tried(topic.subscription_names)
                rings[ref.place, -(-due // 1000), "", how.kept or tried].append(ref)

        return [
            Doorbell(*shard, tuple(refs), second * 1000, subscription=name, kept=own)
            for (shard, second, name, own), refs in rings.items()
        ]

    def _retries(
        self, delivery: Delivery, stored: StoredMessage, names: frozenset[str]
    ) -> dict[str, int]:
        """Return when to try a message again (ms) at those of these subscriptions that lack it.

        Walks do not look for messages under retry. Others that were not tried come first: the
        probe's walk sends them.
        """
        now, ref, admitted = milliseconds(self.clock), stored.ref, delivery.admitted
        not_ready, times = delivery.probes[ref.topic], {}
        for name in sorted(stored.lacking(names)):
            under_retry = stored.state(name).attempts or delivery.how.kept
            if (ref, name) in admitted.elsewhere or not under_retry:
                continue
            if name in not_ready:
                back = (not_ready[name] or now + _PAUSED_MS) + _AFTER_PROBE_MS
            elif (ref, name) in admitted.waiting:
                back = delivery.result.waits.get(name) or now + _AGAIN_MS
            else:  # it could not be reached, or what became of it could not be written
                back = now + OVERDUE_MS
            times[name] = max(back, now, stored.due(name))

        return times

    def _left_out(
        self,
        delivery: Delivery,
        stored: StoredMessage,
        topic: TopicState,
        tried: Mapping[str, Outcome],
    ) -> bool:
        """Whether a subscription was not tried because it may not be called from the stream."""
        not_ready = delivery.probes[stored.ref.topic]
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
    delivery: Delivery, stored: StoredMessage, topic: TopicState, outcomes: Mapping[str, Outcome]
) -> dict[str, int | None]:
    """Return by subscription that is not ready when to visit the message (ms); None: not for it."""
    waits: dict[str, int | None] = {}
    for subscription in topic.subscriptions:
        name = subscription.name
        if (stored.ref, name) in delivery.admitted.waiting:
            waits[name] = None
        elif (probe := delivery.probes[stored.ref.topic].get(name)) is not None:
            outcome = outcomes.get(name)
            # messages that were not tried come first: the probe's visit sends them
            tried = probe > 0 and outcome is not None and outcome.verdict != "refused"
            waits[name] = probe + _AFTER_PROBE_MS if tried else None
    return waits


__all__ = ["Dispatcher", "run_concurrently", "run_sequentially"]
