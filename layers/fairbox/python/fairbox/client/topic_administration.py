"""Administration of topics and subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fairbox.client.outbox_context import OutboxPart
from fairbox.dispatch.sending.circuit_follow_up import waking_bells
from fairbox.errors import (
    InvalidInput,
    NotConfigured,
    TopicConflict,
    TopicIsPushed,
    UnknownSubscription,
)
from fairbox.model.messages import OpenLane, check_text, check_topic
from fairbox.model.redaction import MASK, has_user, is_redacted
from fairbox.model.regions import check_reachable
from fairbox.model.swap import swap
from fairbox.model.topics import AWS_SCHEMES, Subscription, Topic
from fairbox.tables.hints import hint_keys
from fairbox.tables.topic_cache import PRODUCER_COPY_SECONDS
from fairbox.tables.topic_rows import IN_FORCE_SECONDS, check_stays, check_subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fairbox.model.topic_states import SubscriptionStatus, TopicState

MAX_PAUSE_REASON: Final = 200
DELETE_SECONDS: Final = 2 * PRODUCER_COPY_SECONDS  # two lifetimes, as a resize is announced
_OWN: Final = "fairbox."  # names of topics that the library itself publishes to


class TopicAdministration(OutboxPart):
    """Creates and deletes topics; adds, pauses, resumes and removes subscriptions."""

    def create_topic(self, topic: Topic) -> TopicState:
        """Create a topic; an existing topic takes the given fields and keeps the rest.

        Its retry policy is one field, as are the weights of its tenants. With `replace` of a topic
        that was read, all fields are given.

        A new or shorter `message_retention` makes the next sweep look at each shard that holds
        messages (1 RRU and 3 WRU each).

        Raises:
            TopicConflict: it exists with another ordering or shard count, and the error says which;
                or it has subscriptions and is to have a `message_retention`.
        """
        if topic.message_retention is None:  # the sweep has nothing new to look for
            return self._context.create_topic(topic)
        there = self.tables.topics.load(topic.name)
        state = self._context.create_topic(topic)
        before = None if there is None else there.kept_ms
        if there is not None and (before is None or (state.kept_ms or before) < before):
            self._check_now(state)
        return state

    def topic(self, name: str) -> TopicState:
        """Return a topic's current state.

        Raises:
            UnknownTopic: there is none of this name.
        """
        return self._context.topic(name)

    def topics(self) -> list[TopicState]:
        """Return every topic, by name."""
        return self.tables.topics.all()

    def topics_behind(self, name: str | None = None, *, limit: int) -> list[TopicState]:
        """Return at most `limit` topics after `name`, by name; None: from the first."""
        return self.tables.topics.behind(name, limit)

    def pause_topic(self, name: str, *, wait: bool = True) -> None:
        """Pause a pulled topic: receives return nothing; in force when this returns, 2 s later.

        Consumers may settle messages that they hold, and messages may be added. Pausing a paused
        topic changes nothing.

        Args:
            name: the topic's name.
            wait: False: return at once; call `wait_until_in_force` after several topics.

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
        """Resume a topic: receives return messages again, within 2 s.

        Raises:
            UnknownTopic: there is no such topic.
        """
        self.tables.topics.pause(name, paused=False)
        self._context.topics.forget(name)

    def add_subscription(self, subscription: Subscription) -> None:
        """Add or replace a subscription; it is in force when this returns, 2 s later.

        Raises:
            UnknownTopic: there is no such topic.
            TopicConflict: it has 100 subscriptions or a `message_retention`, or is being deleted,
                as may be the topic that is its destination.
            InvalidInput: the address is none of its kind, is the topic itself or a topic that does
                not exist, contains a user, a masked query instead of the real one, or a region that
                is none or cannot be called from that of the outbox.
        """
        self.add_subscriptions([subscription])

    def add_subscriptions(self, subscriptions: Iterable[Subscription]) -> None:
        """Add or replace several; all are in force when this returns, 2 s after the last.

        Raises:
            UnknownTopic: there is no such topic; nothing is added.
            TopicConflict: a topic would have more than 100 subscriptions, or has a
                `message_retention`; nothing is added. Or it is being deleted.
            InvalidInput: as by `add_subscription`; nothing is added.
        """
        subscriptions = list(subscriptions)
        # all are checked before the first is written
        for subscription in subscriptions:
            if subscription.destination == f"topic:{subscription.topic}":
                raise InvalidInput("destination", "another topic than the subscription's own")
            check_address(subscription.destination, self.tables.calls.region)

        for name in dict.fromkeys(s.topic for s in subscriptions):
            check_subscriptions(
                self.topic(name), [s.name for s in subscriptions if s.topic == name]
            )
        self._check_targets(subscriptions)

        topics: dict[str, TopicState] = {}
        for subscription in subscriptions:
            before = self.tables.topics.add_subscription(subscription)
            # as it was before the first of its new ones
            topics.setdefault(subscription.topic, before)
        self.wait_until_in_force(*topics)

        for name, before in topics.items():
            new = {s.name for s in subscriptions if s.topic == name} - before.subscription_names
            if new:  # it lacks what nobody has taken yet
                self._check_now(before)

    def _check_targets(self, subscriptions: Iterable[Subscription]) -> None:
        """Refuse to send to a topic that is not there or is being deleted: messages would die."""
        for subscription in subscriptions:
            scheme, _, name = subscription.destination.partition(":")
            if scheme == "topic":
                there = self.tables.topics.load(name)
                if there is None:
                    raise InvalidInput("destination", f"a topic that exists, not {name!r}")
                check_stays(there)

    def _check_now(self, state: TopicState) -> None:
        """Make the next sweep look at a topic's shards.

        A walk for other subscriptions than the last walk's reads them from their heads.
        """
        name = state.topic.name
        shards = [(name, *shard) for shard in state.shards()]
        for row in self.tables.rows.get_many(shards):
            if row.may_hold:
                self.tables.rows.postpone(row, self._context.now, 0)

    def pause_subscription(self, topic: str, name: str, *, reason: str = "") -> None:
        """Send nothing to a subscription until it is resumed; in force when this returns (2 s).

        Its messages wait in their shards until then: no attempt is counted, and the topic's other
        subscriptions continue. Pausing a paused subscription changes only the reason.

        Args:
            topic: the topic's name.
            name: the subscription's name.
            reason: shown with the subscription; at most 200 bytes.

        Raises:
            InvalidInput: the reason is too long.
            UnknownTopic, UnknownSubscription: there is none of this name.
            TopicConflict: other processes change the subscription too often.
        """
        check_text("reason", reason, limit=MAX_PAUSE_REASON)
        now = self._context.now
        self._change_status(
            topic,
            name,
            lambda s: s.paused_by(now if s.paused_at is None else s.paused_at, reason),
        )
        self.wait_until_in_force(topic)

    def resume_subscription(self, topic: str, name: str) -> None:
        """Send to a subscription again, starting with the waiting messages; close its circuit.

        Visits of its shards are enqueued at once, and again after half a minute for messages that
        were added in the meantime. Without a doorbell queue the next sweep enqueues them, within a
        minute.

        Raises:
            UnknownTopic, UnknownSubscription: there is none of this name.
            TopicConflict: other processes change the subscription too often.
            Unavailable: no visit could be enqueued; the subscription is resumed all the same.
        """
        before = self.topic(topic).status(name)
        self._change_status(topic, name, lambda s: s if s.ready else s.resumed())
        self.wait_until_in_force(topic)

        state = self.topic(topic)
        now = self._context.now
        # messages have waited since the pause or the opening, whichever came first
        times = [at for at in (before.since, before.paused_at) if at]
        bells = waking_bells(state, name, min(times, default=now), now)

        try:
            if self._context.doorbells is not None:
                self._context.doorbells.ring(bells)
                return
        except NotConfigured:
            pass  # there is no queue for later
        self._check_now(state)

    def _change_status(
        self, topic: str, name: str, change: Callable[[SubscriptionStatus], SubscriptionStatus]
    ) -> None:
        """Change the status of a subscription, and announce it (4 WRU)."""
        state = self.topic(topic)
        if name not in state.subscription_names:
            raise UnknownSubscription(topic, name)

        def write(
            after: SubscriptionStatus, before: SubscriptionStatus
        ) -> SubscriptionStatus | None:
            there = self.tables.circuits.write(topic, name, after, before, announce=True)
            if there is None:
                raise UnknownSubscription(topic, name)
            return None if there == after else there

        if swap(state.status(name), change, write) is None:
            detail = f"subscription {name!r} is being changed by others: try again"
            raise TopicConflict(topic, detail)

    def remove_subscription(self, topic: str, name: str) -> None:
        """Remove a subscription; it is in force when this returns, 2 s later.

        Raises:
            UnknownSubscription: there is none of this name.
        """
        self.tables.topics.remove_subscription(topic, name)
        self.wait_until_in_force(topic)
        state = self.topic(topic)
        if state.pushed:  # what lacked only the removed one need not stay
            self._check_now(state)

    def wait_until_in_force(self, *topics: str) -> None:
        """Wait until every process knows the changes of these topics: 2 s."""
        for topic in topics:
            self._context.topics.forget(topic)
        self._context.clock.sleep(IN_FORCE_SECONDS)

    def delete_topic(self, name: str, *, whole: bool = False, wait: bool = True) -> float:
        """Delete an empty topic without subscriptions.

        The call first marks the topic, which then takes no message and no subscription. Producers'
        copies of a topic are at most 30 s old, so that after 60 s no producer uses a copy without
        the mark. The call then reads every lane again. If a message came in, it removes the mark,
        and the topic is as before. If the call is cut off, call again: it continues.

        A producer's own transaction may still commit messages later, with actions from
        `transact_items` that are over half a minute old. They stay in the table, each run of repair
        names them (`orphans`), and a new topic of that name with as many shards has them again.
        Deduplication rows stay until the end of their window, ledger rows until the end of their
        retention.

        It reads 1.5 RRU a shard, twice, and writes 1 WRU a shard.

        Args:
            name: the topic's name; with `whole`, a partitioned queue's logical name.
            whole: delete every partition of the queue.
            wait: False: return after the mark; the call must then be repeated.

        Returns:
            Seconds after which to call again; 0: the topic is deleted.

        Raises:
            UnknownTopic: there is no such topic.
            TopicConflict: it holds messages or dead letters, has subscriptions or is another
                topic's destination, is a partition of a queue (without `whole`), or is Fairbox's
                own; nothing has changed.
            Throttled, Unavailable: it may be marked, and is not deleted; call again.
        """
        states = self._to_delete(name, whole=whole)
        self._check(states)

        # the latest mark counts: a call that was cut off may have marked only some
        since = max(self.tables.topics.mark_deleting(s.topic.name) for s in states)
        for state in states:
            self._context.topics.forget(state.topic.name)

        left = max(0.0, DELETE_SECONDS - (self._context.now - since) / 1000)
        if left and not wait:
            return left
        if left:
            self._context.clock.sleep(left)

        # producers without the mark may have added messages during the wait
        marked = [there for s in states if (there := self.tables.topics.load(s.topic.name))]
        self._check(marked)

        for place, state in reversed([*enumerate(marked)]):
            # the logical name last: by it the others are found
            if not self.tables.topics.remove(state):
                for kept in marked[: place + 1]:
                    self.keep_topic(kept.topic.name)
                raise TopicConflict(state.topic.name, "it was changed by others: try again")
            self._remove_rows(state)
        return 0.0

    def _to_delete(self, name: str, *, whole: bool) -> list[TopicState]:
        """Return the topics to delete; a queue's partition 0 first."""
        state = self.topic(name)
        if name.startswith(_OWN):
            raise TopicConflict(name, "it is Fairbox's own")

        part = state.topic.partition
        if part is None:
            if whole:
                raise TopicConflict(name, "it is not the logical name of a partitioned queue")
            return [state]

        others = [
            other
            for other in self.tables.topics.all()
            if other.topic.partition is not None
            and other.topic.partition.queue == name
            and other.topic.partition.number
        ]

        if part.number or (others and not whole):
            detail = f"it is partition {part.number} of {part.count} of queue {part.queue!r}"
            raise TopicConflict(name, f"{detail}, which is deleted whole, by that name")

        return [state, *others]

    def _check_empty(self, states: Sequence[TopicState]) -> None:
        lanes: tuple[OpenLane, ...] = ("ready", "later")
        fed = {s.destination: s for state in self.tables.topics.all() for s in state.subscriptions}
        for state in states:
            name = state.topic.name
            if state.pushed:
                raise TopicConflict(name, "it has subscriptions")
            by = fed.get(f"topic:{name}")
            if by is not None:
                detail = f"it is the destination of subscription {by.name!r} of topic {by.topic!r}"
                raise TopicConflict(name, detail)

            for shard in state.shards():
                if any(self.tables.lanes.count(lane, name, *shard, limit=1) for lane in lanes):
                    raise TopicConflict(name, "it holds messages")
                if next(self.tables.dead.walk(name, *shard, page=1), None) is not None:
                    raise TopicConflict(name, "it holds dead letters")

    def _check(self, states: Sequence[TopicState]) -> None:
        """Refuse topics that are in use, and undo the marks of this call or an earlier one."""
        try:
            self._check_empty(states)
        except TopicConflict:
            for state in states:
                if state.deleting is not None:
                    self.keep_topic(state.topic.name)
            raise

    def keep_topic(self, name: str) -> None:
        """End the deletion of a topic that was announced: the topic is as before.

        The call of `delete_topic` that announced it is refused.

        Raises:
            TopicConflict: other processes change the topic too often.
        """
        self.tables.topics.unmark_deleting(name)
        self._context.topics.forget(name)

    def _remove_rows(self, state: TopicState) -> None:
        """Delete the shard rows and hint rows of a topic whose own row is gone."""
        name = state.topic.name
        rows = self.tables.rows.get_many([(name, *shard) for shard in state.shards()])
        # a row with a count lags behind the stream, or is wrong: repair deletes it
        self.tables.rows.delete([row for row in rows if row.zero])
        self.tables.lanes.delete(
            [key for epoch in state.epochs for key in hint_keys(name, epoch.number, epoch.shards)]
        )
        self._context.topics.forget(name)


def check_address(destination: str, region: str | None) -> None:
    """Refuse an address that cannot be a subscription's.

    Raises:
        InvalidInput: it has a user, is masked, is none of its kind, or names a region that cannot
            be called from here.
    """
    if has_user(destination):
        raise InvalidInput("destination", "an address without user, fragment or zone")
    if is_redacted(destination):
        raise InvalidInput("destination", f"the address itself, not as it is shown, with {MASK}")
    scheme, _, address = destination.partition(":")
    if scheme in AWS_SCHEMES:
        check_reachable(address, region)
        # imported where it is used: no producer pays for it
        from fairbox.destinations.factory import check_aws_address  # noqa: PLC0415

        check_aws_address(scheme, address)
    elif scheme in ("topic", "feed"):
        check_topic(address, field_name="destination")
    elif not _has_host(destination):
        raise InvalidInput("destination", "an address with a host, such as https://example.com/in")


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False
