"""What becomes of a message after its destinations have answered: pure, no call is made here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fairbox.model.ids import time_of
from fairbox.model.stored_messages import Failure, SubscriptionState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from fairbox.dispatch.ports import Outcome
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.model.topics import TopicState

MAX_HISTORY: Final = 10
_ERROR_CHARACTERS: Final = 200
_NOT_READY_SECONDS: Final = 5.0
_YOUNG_MS: Final = 120_000


@dataclass(frozen=True, slots=True)
class Decision:
    """What a message comes to.

    Attributes:
        after: the message as it shall be.
        died: the subscriptions that it has just died for.
        left: those that still lack it.
    """

    after: StoredMessage
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
    """Return what a message comes to by these outcomes (by subscription) at `now` (ms)."""
    lacking = before.lacking(topic.subscription_names)
    if not lacking:
        reason = "its subscriptions were removed"
        return Decision(replace(before, gone="purged", reason=reason), frozenset(), frozenset())
    taken = frozenset(name for name, outcome in outcomes.items() if outcome.taken) & lacking
    states = dict(before.states)
    died: set[str] = set()
    for subscription in topic.subscriptions:
        name, outcome = subscription.name, outcomes.get(subscription.name)
        if outcome is None or outcome.verdict != "refused" or name not in lacking:
            continue
        state = before.state(name)
        attempt = state.attempts + 1
        dead = attempt >= (subscription.max_attempts or topic.topic.retry.max_attempts)
        wait = outcome.retry_after or topic.topic.retry.delay(attempt, rng)
        failure = Failure(attempt, now, outcome.error[:_ERROR_CHARACTERS])
        history = (*state.history, failure)[-MAX_HISTORY:]
        states[name] = SubscriptionState(attempt, now + round(wait * 1000), history, dead)
        if dead:
            died.add(name)
    left = lacking - taken - died
    pending = before.pending
    if taken or died:
        pending = left or frozenset(died)
    after = replace(before, pending=pending, states=states)
    if died:
        # what was said when others' dead letters were purged is not why it dies
        after = replace(after, gone=after.gone if left else "dead", reason="")
    return Decision(after, frozenset(died), left)


def next_due(
    decision: Decision,
    outcomes: Mapping[str, Outcome],
    waits: Mapping[str, int | None],
    *,
    now: int,
    rng: Random,
) -> int | None:
    """Return when to ring for what is left of a message, in milliseconds since 1970 UTC.

    For who is in `waits` it is not before the time there (ms); None: not at all, the sweep or who
    closes its circuit rings. What else waits for its destination to be ready is rung for while it
    is young; then the sweep has it, whose visits come ever less often while nothing can be sent.
    """
    after = decision.after
    young = now - time_of(after.ref.id) <= _YOUNG_MS
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
