"""Delivery by hand: messages marked as delivered, cancelled, or left to a visit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fairbox.client.outbox_context import OutboxPart
from fairbox.client.reading import age_ms, check_limit
from fairbox.dispatch.ports import FROM_HEAD, Doorbell
from fairbox.errors import (
    MessagesClaimed,
    MessagesNotFound,
    MessagesNotWritten,
    NotConfigured,
    UnknownTopic,
    Unreadable,
)
from fairbox.model.ids import sent_at
from fairbox.model.messages import check_text
from fairbox.settings import DOORBELL_QUEUE_URL
from fairbox.tables.keys import PK, SK, message_key
from fairbox.tables.message_edits import Edits
from fairbox.tables.parallel_scan import parallel_scan
from fairbox.tables.stored_messages import STATES, StoredMessage, read_message

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from fairbox.model.messages import MessageRef
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.message_edits import Found


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of a sweep by hand: overdue messages, their shards, doorbells rung."""

    overdue: int
    shards: int
    rung: int


class ManualDelivery(OutboxPart):
    """Does the work of the functions by hand: delivers, cancels, sweeps."""

    def mark_delivered(self, refs: Iterable[MessageRef]) -> None:
        """Remove messages from the outbox as delivered, 25 a call; absent ones are ignored.

        Raises:
            MessagesNotWritten: some were not deleted after all retries; it names them.
        """
        wanted = list(dict.fromkeys(refs))
        # a delete without a mark means delivered: the stream does all the rest
        left = self.tables.lanes.delete([message_key(r) for r in wanted])
        if left:
            keys = [{PK: k[PK], SK: k[SK]} for k in left]
            raise MessagesNotWritten([r for r in wanted if message_key(r) in keys])

    def cancel(self, refs: Iterable[MessageRef], *, reason: str = "") -> None:
        """Remove messages from the outbox undelivered (2 WRU each; ordered pulled topics 5).

        Raises:
            InvalidInput: the reason is over 256 bytes; nothing is cancelled.
            MessagesNotFound: some were not outstanding; `.missing` names them. The others are
                cancelled.
            MessagesClaimed: consumers hold some; `.claimed` names them. The others are cancelled.
        """
        check_text("reason", reason)
        wanted = list(dict.fromkeys(refs))
        found = {ref: self._cancel(ref, reason) for ref in wanted}

        # every reader of a marked message finishes the work, so that messages that are left
        # unprocessed here are cancelled too
        self.tables.lanes.delete([message_key(r) for r in wanted if found[r] is None])
        for stored in found.values():
            if isinstance(stored, StoredMessage):
                self.tables.lanes.delete_marked(stored)  # maybe deleted, or redriven, by now

        missing = [r for r in wanted if found[r] == "absent"]
        claimed = [r for r in wanted if found[r] == "claimed"]
        if missing:
            raise MessagesNotFound(missing)
        if claimed:
            raise MessagesClaimed(claimed)

    def _cancel(self, ref: MessageRef, reason: str) -> Found | StoredMessage | None:
        """Mark a message; return it when it is partly dead, or the reason not to delete it."""
        try:
            state: TopicState | None = self._context.topics.get(ref.topic)
        except UnknownTopic:
            # messages of a deleted topic may still lie in the table
            state = None

        if state is None or state.pushed:
            item = self.tables.lanes.mark_gone(ref, "cancelled", reason)
            if item is None:
                return "absent"
            if STATES in item and read_message(item).any_dead:
                return replace(read_message(item), gone="cancelled")
            return None

        ordered = state.topic.ordering == "key"
        now = self._context.now
        return Edits(self.tables).cancel(ref, reason, now, ordered=ordered)

    def sweep(self, *, older_than: float | timedelta = 60, limit: int | None = None) -> SweepResult:
        """Enqueue visits of overdue messages, which a scan of the table finds: it needs no index.

        Args:
            older_than: minimum time since a message was due, in seconds or as a timedelta.
            limit: maximum number of messages.

        Raises:
            NotConfigured: there is no doorbell queue.
        """
        if self._context.doorbells is None:
            raise NotConfigured(DOORBELL_QUEUE_URL)
        check_limit(limit)

        now = self._context.now
        bound = now - age_ms(older_than)
        overdue = 0
        shards: set[tuple[str, int, int]] = set()
        # the messages of the others wait for consumers, not for visits
        pushed = {state.topic.name for state in self.tables.topics.all() if state.pushed}
        arguments = self.tables.lanes.scan_arguments

        for item in parallel_scan(self.tables.calls, arguments, concurrency=1):
            if limit is not None and overdue >= limit:
                break
            try:
                ref = read_message(item).ref
            except Unreadable:
                continue
            if ref.topic in pushed and max(sent_at(ref.id, now), ref.due or 0) <= bound:
                overdue += 1
                shards.add((ref.topic, ref.epoch, ref.shard))

        # from the head: the position of a walk is a hint, and may be wrong after a crash
        self._context.doorbells.ring(
            [Doorbell(*shard, after=FROM_HEAD) for shard in sorted(shards)]
        )
        return SweepResult(overdue, len(shards), len(shards))
