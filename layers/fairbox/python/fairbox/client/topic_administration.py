"""Topics and subscriptions, as operators change them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.client.topic_deletion import Deleting
from fairbox.dispatch.sending.circuit_follow_up import waking_bells
from fairbox.dynamodb.topics import IN_FORCE_SECONDS
from fairbox.errors import (
    InvalidInput,
    NotConfigured,
    TopicConflict,
    TopicIsPushed,
    UnknownSubscription,
    UnknownTopic,
)
from fairbox.model.clock import milliseconds
from fairbox.model.messages import check_text
from fairbox.model.redaction import MASK, has_user, is_masked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fairbox.model.subscription_status import Standing
    from fairbox.model.topics import Subscription, Topic, TopicState

MAX_PAUSE_REASON: Final = 200
_TRIES: Final = 8


class Administration(Deleting):
    """Creates and deletes topics; adds, pauses, resumes and removes subscriptions."""

    def create_topic(self, topic: Topic) -> TopicState:
        """Create a topic; again with other retry, window, weights, `on_dead`...: these change.

        Raises:
            TopicConflict: it is there with another ordering or shard count.
        """
        state = self.tables.topics.create(topic)
        self._topics.forget(topic.name)
        return state

    def topic(self, name: str) -> TopicState:
        """Return a topic as it stands now.

        Raises:
            UnknownTopic: there is none of this name.
        """
        state = self.tables.topics.load(name)
        if state is None:
            raise UnknownTopic(name)
        return state

    def topics(self) -> list[TopicState]:
        """Return every topic, by name."""
        return self.tables.topics.all()

    def topics_behind(self, name: str | None = None, *, limit: int) -> list[TopicState]:
        """Return at most `limit` topics that sort behind `name`, by name; None: from the first."""
        return self.tables.topics.behind(name, limit)

    def pause_topic(self, name: str, *, wait: bool = True) -> None:
        """Let receiving from a pulled topic give nothing; in force when this returns, 2 s later.

        What is held may be settled, and messages may be added. Again: nothing changes.

        Args:
            name: the topic's.
            wait: False: return at once, for `wait_until_in_force` after several.

        Raises:
            UnknownTopic: there is no such topic.
            TopicIsPushed: the topic has subscriptions, so nobody receives from it.
        """
        if self.topic(name).pushed:
            raise TopicIsPushed(name)
        self.tables.topics.pause(name, paused=True)
        if wait:
            self.wait_until_in_force(name)

    def resume_topic(self, name: str) -> None:
        """Let receiving from a topic give messages again, within 2 s.

        Raises:
            UnknownTopic: there is no such topic.
        """
        self.tables.topics.pause(name, paused=False)
        self._topics.forget(name)

    def add_subscription(self, subscription: Subscription) -> None:
        """Add or replace a subscription; it is in force when this returns, 2 s later.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidInput: the address has a user in it, or its query as it is shown, not as it is.
        """
        self.add_subscriptions([subscription])

    def add_subscriptions(self, subscriptions: Iterable[Subscription]) -> None:
        """Add or replace several; all are in force when this returns, 2 s after the last.

        Raises:
            UnknownTopic: there is no such topic; those before it in the order are added.
            InvalidInput: an address has a user in it, or its query as it is shown, not as it is;
                nothing is added.
        """
        subscriptions = list(subscriptions)
        for subscription in subscriptions:
            _check_address(subscription.destination)
        topics: dict[str, TopicState] = {}
        for subscription in subscriptions:
            before = self.tables.topics.add_subscription(subscription)
            topics.setdefault(subscription.topic, before)
        self.wait_until_in_force(*topics)
        for state in topics.values():
            if not state.pushed:
                self._look_now(state)

    def _look_now(self, state: TopicState) -> None:
        """Let the next sweep look at the backlog of a topic that has just become pushed."""
        name = state.topic.name
        for row in self.tables.rows.get_many([(name, *shard) for shard in state.shards()]):
            if row.outstanding > 0:
                self.tables.rows.look_again(row, milliseconds(self._clock), 0)

    def pause_subscription(self, topic: str, name: str, *, reason: str = "") -> None:
        """Send nothing to a subscription until it is resumed; in force when this returns (2 s).

        Its messages wait where they are, for as long as it takes: no attempt is counted, and the
        topic's other subscriptions go on. Again: only the reason changes.

        Args:
            topic: whose.
            name: the subscription's.
            reason: shown wherever the subscription is; at most 200 bytes.

        Raises:
            InvalidInput: the reason is too long.
            UnknownTopic, UnknownSubscription: there is none of this name.
            TopicConflict: it changes too often.
        """
        check_text("reason", reason, limit=MAX_PAUSE_REASON)
        now = milliseconds(self._clock)
        self._stand(
            topic,
            name,
            lambda s: s.paused_by(now if s.paused_at is None else s.paused_at, reason),
        )
        self.wait_until_in_force(topic)

    def resume_subscription(self, topic: str, name: str) -> None:
        """Send to a subscription again, what waited first; its circuit is closed.

        What waited is rung for at once, and once more after half a minute for what was added just
        now. Without a doorbell queue the next sweep does, within a minute.

        Raises:
            UnknownTopic, UnknownSubscription: there is none of this name.
            TopicConflict: it changes too often.
            Unavailable: it could not be rung; it is resumed all the same.
        """
        self._stand(topic, name, lambda s: s if s.ready else s.resumed())
        self.wait_until_in_force(topic)
        state = self.topic(topic)
        bells = waking_bells(state, milliseconds(self._clock))
        try:
            if self._doorbells is not None:
                self._doorbells.ring(bells)
                return
        except NotConfigured:
            pass  # there is no queue for later
        self._look_now(state)

    def _stand(self, topic: str, name: str, change: Callable[[Standing], Standing]) -> None:
        """Change how a subscription stands, and announce it (4 WRU)."""
        for _ in range(_TRIES):
            state = self.topic(topic)
            if name not in state.subscription_names:
                raise UnknownSubscription(topic, name)
            before = state.standing(name)
            after = change(before)
            if after == before:
                return
            write = self.tables.circuits.write
            if write(topic, name, after, before, announce=True) == after:
                return
        raise TopicConflict(topic, f"subscription {name!r} is being changed by others: try again")

    def remove_subscription(self, topic: str, name: str) -> None:
        """Remove a subscription; it is in force when this returns, 2 s later.

        Raises:
            UnknownSubscription: there is none of this name.
        """
        self.tables.topics.remove_subscription(topic, name)
        self.wait_until_in_force(topic)

    def wait_until_in_force(self, *topics: str) -> None:
        """Wait until everybody knows what was changed of topics: 2 s."""
        for topic in topics:
            self._topics.forget(topic)
        self._clock.sleep(IN_FORCE_SECONDS)


def _check_address(address: str) -> None:
    if has_user(address):
        raise InvalidInput("destination", "an address without user, fragment or zone")
    if is_masked(address):
        raise InvalidInput("destination", f"the address itself, not as it is shown, with {MASK}")
