"""Topics and subscriptions, as operators change them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox.clock import milliseconds
from fairbox.deleting import Deleting
from fairbox.dynamodb.topics import IN_FORCE_SECONDS
from fairbox.errors import TopicIsPushed, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairbox.topics import Subscription, Topic, TopicState


class Administration(Deleting):
    """Creates and deletes topics, adds and removes subscriptions."""

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
        """
        self.add_subscriptions([subscription])

    def add_subscriptions(self, subscriptions: Iterable[Subscription]) -> None:
        """Add or replace several; all are in force when this returns, 2 s after the last.

        Raises:
            UnknownTopic: there is no such topic; those before it in the order are added.
        """
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
