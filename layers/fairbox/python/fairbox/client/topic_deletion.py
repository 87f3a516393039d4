"""Deletion of topics: announced, then carried out, so that no producer loses a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.client.outbox_context import OutboxPart
from fairbox.errors import TopicConflict, UnknownTopic
from fairbox.tables.hints import hint_keys
from fairbox.tables.topic_rows import PRODUCER_COPY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.messages import OpenLane
    from fairbox.model.topic_states import TopicState

DELETE_SECONDS: Final = 2 * PRODUCER_COPY_SECONDS  # two lifetimes, as a resize is announced
_OWN: Final = "fairbox."  # names of topics that the library itself publishes to


class TopicDeletion(OutboxPart):
    """Deletes empty topics."""

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
        state = self.tables.topics.load(name)
        if state is None:
            raise UnknownTopic(name)
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
        fed = {s.destination: s for state in self.tables.topics.all() for s in state.subscriptions}
        for state in states:
            name = state.topic.name
            if state.pushed:
                raise TopicConflict(name, "it has subscriptions")
            by = fed.get(f"topic:{name}")
            if by is not None:
                detail = f"it is the destination of subscription {by.name!r} of topic {by.topic!r}"
                raise TopicConflict(name, detail)
            self._check_lanes(state)

    def _check_lanes(self, state: TopicState) -> None:
        name = state.topic.name
        lanes: tuple[OpenLane, ...] = ("ready", "later")
        for epoch, shard in state.shards():
            if any(self.tables.lanes.count(lane, name, epoch, shard, limit=1) for lane in lanes):
                raise TopicConflict(name, "it holds messages")
            if next(self.tables.dead.walk(name, epoch, shard, page=1), None) is not None:
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
