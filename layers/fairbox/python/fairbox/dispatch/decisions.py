"""Decisions about a message after its destinations have answered, and writing them.

`decide` and `next_due` are pure; the `OutcomeWriter` makes the calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.burials import Burials
from fairbox.errors import BatchBusy, FairboxError
from fairbox.model.clock import Clock, milliseconds
from fairbox.model.ids import sent_at, time_of
from fairbox.tables.message_states import bare, fitted
from fairbox.tables.stored_messages import Failure, Saved, StoredMessage, SubscriptionState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from fairbox.dispatch.delivery import DeliveryResult, SendOrder
    from fairbox.dispatch.ports import Outcome
    from fairbox.model.topic_states import TopicState
    from fairbox.observability.delivery_metrics import DeliveryMetrics
    from fairbox.tables.tables import Tables

_ERROR_CHARACTERS: Final = 200
_NO_ROOM: Final = "the attempts of its subscriptions do not fit its item"
_NOT_READY_SECONDS: Final = 5.0
_YOUNG_MS: Final = 120_000
_CAS_TRIES: Final = 8
_BUSY_MS: Final = 1000  # until a message is visited whose item's group others kept changing


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about one message.

    Attributes:
        after: the message as it is to be, its failures cut to fit its item.
        letter: the same for a dead letter: the errors that it has just died of are whole.
        died: the subscriptions that it has just died for.
        left: the subscriptions that still lack it.
    """

    after: StoredMessage
    letter: StoredMessage
    died: frozenset[str]
    left: frozenset[str]

    @property
    def delivered(self) -> bool:
        """Whether it leaves the outbox as delivered."""
        return not self.left and not self.died and not self.after.gone


def decide(
    before: StoredMessage,
    topic: TopicState,
    outcomes: Mapping[str, Outcome],
    *,
    now: int,
    rng: Random,
) -> Decision:
    """Return the decision about a message with these outcomes (by subscription) at `now` (ms).

    Subscriptions that fail at the same attempt wait for the same time, so that their next attempts
    are one visit and one write too.
    """
    lacking = before.lacking(topic.subscription_names)
    if not lacking:
        reason = "its subscriptions were removed"
        purged = replace(before, gone="purged", reason=reason)
        return Decision(purged, purged, frozenset(), frozenset())

    # a late answer to a subscription that already has the message changes nothing
    taken = lacking & {name for name, outcome in outcomes.items() if outcome.verdict == "taken"}
    states = dict(before.states)
    died: set[str] = set()
    waits: dict[int, float] = {}
    for subscription in topic.subscriptions:
        name, outcome = subscription.name, outcomes.get(subscription.name)
        if outcome is None or outcome.verdict != "refused" or name not in lacking:
            continue
        state = before.state(name)
        attempt = state.attempts + 1
        # the subscription's own limit goes before the topic's
        most = subscription.max_attempts or topic.topic.retry.max_attempts
        dead = outcome.final or attempt >= most
        if attempt not in waits:
            waits[attempt] = topic.topic.retry.delay(attempt, rng)
        wait = outcome.retry_after or waits[attempt]
        failure = Failure(attempt, now, outcome.error[:_ERROR_CHARACTERS])
        history = (*state.history, failure)
        states[name] = SubscriptionState(attempt, now + round(wait * 1000), history, dead)
        if dead:
            died.add(name)

    left = lacking - taken - died
    pending = before.pending
    if taken or died:
        # a dead message keeps the names for which it died: a redrive sends it to them alone
        pending = left or frozenset(died)
    after = replace(before, pending=pending, states=states)
    if died:
        # it does not die for the reason that was given when others' dead letters were purged
        after = replace(after, gone=after.gone if left else "dead", reason="")

    # nothing failed, so its history is as long as it was
    if states == before.states:
        return Decision(after, after, frozenset(), left)
    return Decision(fitted(after), fitted(after, whole=died), frozenset(died), left)


def hopeless(before: StoredMessage, topic: TopicState, *, now: int) -> Decision:
    """Return the death of a message whose state does not fit its item even without a history.

    It dies for all subscriptions that lack it. Its item keeps one state: that it died.
    """
    lacking = before.lacking(topic.subscription_names)
    name = min(lacking)
    attempts = before.state(name).attempts
    last = Failure(attempts, now, _NO_ROOM)
    states = {name: SubscriptionState(attempts, 0, (last,), dead=True)}
    after = replace(before, pending=None, states=states, gone="dead", reason=_NO_ROOM)
    return Decision(after, after, lacking, frozenset())


def next_due(
    decision: Decision,
    outcomes: Mapping[str, Outcome],
    waits: Mapping[str, int | None],
    *,
    now: int,
    rng: Random,
) -> int | None:
    """Return when to enqueue a visit of a message that stays, in milliseconds since 1970 UTC.

    `waits` has the earliest time (ms) for some subscriptions. None there means no visit for them:
    the sweep or the process that closes the circuit enqueues one. A message that waits for its
    destination to be ready gets a visit while it is young. Then it is left to the sweep, whose
    visits become less and less frequent while nothing can be sent.
    """
    after = decision.after
    young = now - sent_at(after.ref.id, now) <= _YOUNG_MS
    times = []
    for name in decision.left:
        outcome = outcomes.get(name)
        wait_for = waits.get(name, 0)
        if wait_for is None:
            continue
        if (outcome is not None and outcome.verdict == "refused") or after.due(name) > now:
            times.append(max(after.due(name), wait_for))
        elif wait_for:
            times.append(wait_for)
        elif young:
            asked = outcome.retry_after if outcome else None
            wait = asked or _NOT_READY_SECONDS * (1 + rng.random())
            times.append(now + round(wait * 1000))

    return min(times, default=None)


class OutcomeWriter:
    """Writes the outcomes of one delivery: deletes, retries and deaths.

    Args:
        result: the delivery's result, which is filled.
        order: of an ordered shard, its order.
    """

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        rng: Random,
        result: DeliveryResult,
        order: SendOrder | None,
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._rng = rng
        self._result = result
        self._order = order
        self._delivered: list[StoredMessage] = []

    def settle(
        self,
        stored: StoredMessage,
        topic: TopicState,
        outcomes: Mapping[str, Outcome],
        waits: Mapping[str, int | None],
    ) -> int | None:
        """Write one message's outcomes, or keep it for `delete_delivered`.

        Args:
            stored: the message.
            topic: its topic.
            outcomes: by subscription.
            waits: see `next_due`.

        Returns:
            When to enqueue a visit of the message (ms); None: not at all.
        """
        now = milliseconds(self._clock)
        _count_sent(self._result.metrics, stored, outcomes, now)
        try:
            return self._write(stored, topic, outcomes, waits, now)
        except FairboxError as error:
            self._result.metrics.errors.append(str(error))
            self._result.unsettled.add(stored.ref)
            if isinstance(error, BatchBusy):
                return milliseconds(self._clock) + _BUSY_MS
            return None

    def delete_delivered(self) -> None:
        """Delete the messages that every subscription has taken, 25 a call."""
        try:
            if self._delivered:
                self._tables.lanes.delete_messages(self._delivered)
                self._result.removed += len(self._delivered)
        except FairboxError as error:
            self._result.metrics.errors.append(str(error))
            self._result.unsettled.update(stored.ref for stored in self._delivered)

    def _write(
        self,
        stored: StoredMessage,
        topic: TopicState,
        outcomes: Mapping[str, Outcome],
        waits: Mapping[str, int | None],
        now: int,
    ) -> int | None:
        before, result = stored, self._result
        for _ in range(_CAS_TRIES):
            decision = decide(before, topic, outcomes, now=now, rng=self._rng)
            after, died = decision.after, decision.died
            # not deleted here: the deletes of a page go together, 25 a call
            if decision.delivered and not before.any_dead:
                self._delivered.append(before)
                return None

            # its key cannot be blocked now, so others would pass it: this attempt does not count
            if died and self._order is not None and not self._order.may_die(before, died):
                outcomes = {n: o for n, o in outcomes.items() if n not in died}
                now = milliseconds(self._clock)
                continue

            decision, saved = self._save_what_fits(before, decision, topic, now)
            after, died = decision.after, decision.died
            # another process has written it meanwhile: decide anew from what lies there now
            if isinstance(saved, StoredMessage) and not saved.gone:
                before = saved
                now = milliseconds(self._clock)
                continue

            if saved != "saved":
                return None  # it has left, or another process marked it and finishes it
            if decision.delivered:
                result.removed += 1
                return None

            _count_failed(result.metrics, stored, outcomes, died)
            result.after[stored.ref] = after
            if after.gone:
                self._remove(decision)
                return None
            return next_due(decision, outcomes, waits, now=now, rng=self._rng)

        # others kept changing it: whether it was sent is not written, so a visit comes again soon
        result.unsettled.add(stored.ref)
        return milliseconds(self._clock) + _BUSY_MS

    def _save_what_fits(
        self, before: StoredMessage, decision: Decision, topic: TopicState, now: int
    ) -> tuple[Decision, Saved]:
        """Write a decision: if too large, without its history; if still too large, as a death.

        The limit of subscriptions keeps every state far below the size limit of an item. This is
        for items from elsewhere: no message may be tried again and again because nothing can be
        written.
        """
        saved = self._save(before, decision)
        if saved == "too large":
            without = replace(decision, after=bare(decision.after), letter=bare(decision.letter))
            decision, saved = without, self._save(before, without)
        if saved == "too large":
            decision = hopeless(before, topic, now=now)
            if self._order is not None and not self._order.may_die(before, decision.died):
                return decision, before  # the order was changed by others: again
            saved = self._save(before, decision)

        return decision, saved

    def _save(self, before: StoredMessage, decision: Decision) -> Saved:
        after, died = decision.after, decision.died
        if decision.delivered:
            # not to be deleted with the others: a redrive may have put it back for the dead
            return self._tables.lanes.delete_unchanged(before)
        if after == before:
            return "saved"
        if died and decision.left:
            return Burials(self._tables).bury_partly(after, before, died, decision.letter)
        return self._tables.lanes.save_state(after, before)

    def _remove(self, decision: Decision) -> None:
        """Take a message that was just marked out of the outbox."""
        if decision.died:
            Burials(self._tables).bury(decision.letter, decision.died)
        else:
            self._tables.lanes.delete_marked(decision.after)
        self._result.removed += 1


def _count_sent(
    metrics: DeliveryMetrics, stored: StoredMessage, outcomes: Mapping[str, Outcome], now: int
) -> None:
    """Count at `now` (ms) the subscriptions that took a message, and those tried again."""
    for name, outcome in outcomes.items():
        key = (stored.ref.topic, name)
        if stored.states:
            metrics.retried[key] += stored.state(name).attempts > 0
        if outcome.verdict == "taken":
            metrics.sent[key] += 1
            metrics.bytes[key] += stored.size
            due = max(time_of(stored.ref.id), stored.ref.due or 0)
            metrics.delay[key] = max(metrics.delay.get(key, 0), (now - due) / 1000)


def _count_failed(
    metrics: DeliveryMetrics,
    stored: StoredMessage,
    outcomes: Mapping[str, Outcome],
    died: frozenset[str],
) -> None:
    """Count the subscriptions that refused a message, and those it died for."""
    for name, outcome in outcomes.items():
        metrics.failed[stored.ref.topic, name] += outcome.verdict == "refused"
    for name in died:
        metrics.dead[stored.ref.topic, name] += 1
