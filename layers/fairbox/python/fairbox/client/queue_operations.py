"""What operators do to queues: messages edited, made due, cancelled; topics purged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from fairbox.client.reading import check_limit
from fairbox.codec.messages import read_message
from fairbox.dispatch.relay import RECEIVES_LOOK_MS
from fairbox.dispatch.tombstones import finish_marked
from fairbox.dynamodb.message_edits import Edits
from fairbox.errors import (
    InvalidInput,
    MessagesClaimed,
    MessagesNotFound,
    TopicIsPushed,
    Unavailable,
    UnknownTopic,
)
from fairbox.model.clock import milliseconds
from fairbox.model.ids import bound_of
from fairbox.model.stored_messages import Claim
from fairbox.queue.models import check_delay, check_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fairbox.client.outbox import Outbox
    from fairbox.codec.keys import Item
    from fairbox.dynamodb.queue_store import DynamoQueueStore
    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.model.topics import TopicState
    from fairbox.queue.hint_cache import HintCopies
    from fairbox.queue.ports import Shard

_CAS_TRIES: Final = 8
_PAGE: Final = 100
_SOON_MS: Final = 2_000  # due so soon, a delayed message may be on its way to a subscription


class Operating:
    """Changes what waits in queues."""

    outbox: Outbox
    _clock: Clock
    _store: DynamoQueueStore
    _edits: Edits
    _copies: HintCopies

    def _begin_operating(self) -> None:
        self._edits = Edits(self.outbox.tables, self.outbox.bodies)

    def edit(
        self,
        ref: MessageRef,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> None:
        """Change the content of a message that nobody holds (1 WRU a KB, ordered topics 4).

        Args:
            ref: the message; on a pushed topic only while it is delayed.
            body: in place of the one that is there; None: as it is.
            headers: the same of the headers, all of them.
            content_type: the same of the media type.

        Raises:
            InvalidInput, BodyTooLarge: a field is not what it takes.
            MessagesNotFound: it is not outstanding.
            MessagesClaimed: a consumer holds it.
            TopicIsPushed: it may be on its way to a subscription.
        """
        for _ in range(_CAS_TRIES):
            topic, item, version = self._changeable(ref)
            before = self._store.fetch_body(read_message(item)).message
            message = replace(
                before,
                body=before.body if body is None else body,
                headers=before.headers if headers is None else headers,
                content_type=before.content_type if content_type is None else content_type,
            )
            if self._edits.put(item, message, version, ordered=_in_row(topic)):
                return
        raise Unavailable("put_item", "the message is being changed by others")

    def reschedule(self, ref: MessageRef, delay: float = 0) -> MessageRef:
        """Make a message that nobody holds due now, or later.

        A delayed message changes its place, and so its ref (5 WRU); another stays (1 or 2 WRU).

        Args:
            ref: the message; on a pushed topic only while it is delayed.
            delay: seconds from now, up to 366 days; on ordered topics 0 alone, which ends the
                wait of what was given back.

        Returns:
            The ref that the message has now.

        Raises:
            As `edit` does.
        """
        wait = check_delay(delay)
        for _ in range(_CAS_TRIES):
            topic, item, _ = self._changeable(ref)
            stored = read_message(item)
            due = milliseconds(self._clock) + wait
            if stored.lane == "later":
                to = replace(ref, due=due if wait else None)
                moved = to == ref or self._edits.move(item, to)
                if moved:
                    self._find_again(to, due)
                    return to
            elif topic.topic.ordering == "key":
                self._end_wait(ref, topic, wait)
                return ref
            elif self._wait(stored, due, wait):
                self._find_again(ref, due)
                return ref
        raise Unavailable("update_item", "the message is being changed by others")

    def _wait(self, stored: StoredMessage, due: int, wait: int) -> bool:
        if stored.held_until(milliseconds(self._clock)) is None and not wait:
            return True
        count = 0 if stored.claim is None else stored.claim.count
        after = replace(stored, claim=Claim(count, due))
        return self._store.save_claimed(after, stored) == "saved"

    def _end_wait(self, ref: MessageRef, topic: TopicState, wait: int) -> None:
        if wait:
            raise InvalidInput("delay", f"none: topic {topic.topic.name!r} is ordered")
        shard = (ref.topic, ref.epoch, ref.shard)
        row = self._store.held(shard)
        for _ in range(_CAS_TRIES):
            entry = row.entry(ref.id)
            if entry is None or entry.state != "waiting":
                return
            now = milliseconds(self._clock)
            entries = tuple(replace(e, until=now) if e == entry else e for e in row.entries)
            other = self._store.write_held(shard, replace(row, entries=entries), row.version)
            if other is None:
                return
            row = other
        raise Unavailable("update_item", "the shard is being changed by others")

    def _find_again(self, ref: MessageRef, due: int) -> None:
        """Let receives find what they may have passed by."""
        now = milliseconds(self._clock)
        self._copies.forget((ref.topic, ref.epoch, ref.shard))
        if ref.due is None and due <= now:
            self._store.wake_receives([ref], ordered=False)
        elif due < now + RECEIVES_LOOK_MS:
            self._store.lower_looks(ref.topic, ref.epoch, {ref.shard: due})

    def _changeable(self, ref: MessageRef) -> tuple[TopicState, Item, int]:
        topic = self._topic(ref.topic)
        now = milliseconds(self._clock)
        if topic.pushed and (ref.due is None or ref.due <= now + _SOON_MS):
            raise TopicIsPushed(ref.topic)
        found = self._edits.find(ref, now, ordered=_in_row(topic))
        if found == "absent":
            raise MessagesNotFound([ref])
        if found == "claimed":
            raise MessagesClaimed([ref])
        item, version = found
        return topic, item, version

    def _topic(self, name: str) -> TopicState:
        self._store.refresh()
        topic = self._store.topic(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    def cancel(self, refs: Iterable[MessageRef], *, reason: str = "") -> None:
        """Take messages that nobody holds out of the outbox, undelivered; see `Outbox.cancel`.

        Raises:
            MessagesNotFound: some are not outstanding; the rest is cancelled.
            MessagesClaimed: consumers hold some; the rest is cancelled.
        """
        self.outbox.cancel(refs, reason=reason)

    def purge(
        self,
        topic: str,
        *,
        reason: str = "",
        limit: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Delete every message of a topic, held ones too (2 WRU each); dead letters stay.

        What is sent while it runs stays. It may be repeated, and goes on where one was cut off.

        Args:
            topic: whose.
            reason: kept in the archive with each message.
            limit: at most so many, to be called again until fewer are gone.
            progress: is told, page by page, how many are gone.

        Returns:
            How many messages were purged.

        Raises:
            UnknownTopic: there is no such topic.
            Throttled, Unavailable: some messages are left; call again.
        """
        check_limit(limit)
        state = self._topic(topic)
        kept = check_reason(reason)
        start = bound_of(milliseconds(self._clock) + 1)
        purged = 0
        for epoch, number in state.shards():
            for found in self._purgeable((topic, epoch, number), start):
                if purged == limit:
                    return purged
                chosen = found if limit is None else found[: limit - purged]
                self._edits.purge(chosen, kept)
                purged += len(chosen)
                if progress is not None:
                    progress(purged)
                if len(chosen) < len(found):
                    return purged
            if _in_row(state):
                self._edits.forget_held((topic, epoch, number), start)
        return purged

    def _purgeable(self, shard: Shard, start: str) -> Iterator[list[StoredMessage]]:
        """Yield pages of a shard's messages below an id; bury or finish what is to be."""
        lanes: tuple[Literal["ready", "later"], ...] = ("ready", "later")
        for lane in lanes:
            after: str | None = None
            while True:
                page = self._store.read_lane(lane, *shard, limit=_PAGE, after=after)
                for item in page.unreadable:
                    self._store.bury_raw(item, "unreadable")
                finish_marked(self._store, [m for m in page.messages if m.gone])
                yield [m for m in page.messages if m.gone is None and m.ref.id < start]
                after = page.last
                last = page.messages[-1].ref.id if page.messages else ""
                if after is None or (lane == "ready" and last >= start):
                    break


def _in_row(topic: TopicState) -> bool:
    """Whether claims of the topic lie in its shards' rows."""
    return topic.topic.ordering == "key" and not topic.pushed
