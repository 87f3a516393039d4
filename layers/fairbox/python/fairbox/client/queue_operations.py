"""Operations on queues: messages edited, made due, cancelled; topics purged; figures."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from fairbox.client.queue_context import QueuePart, given_back, leaving
from fairbox.client.reading import check_limit
from fairbox.dispatch.burials import Burials, finish_marked
from fairbox.errors import (
    InvalidInput,
    MessagesClaimed,
    MessagesNotFound,
    TopicIsPushed,
    Unavailable,
)
from fairbox.model.ids import bound_of
from fairbox.observability.metrics import Metrics, MetricsDetail
from fairbox.queue.models import QueueStats, check_delay, check_reason
from fairbox.settings import Settings
from fairbox.tables.segments import segment_of
from fairbox.tables.stored_messages import Claim, StoredMessage, fetch_body, read_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fairbox.model.messages import MessageRef, Shard
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.key_claims import KeyClaim
    from fairbox.tables.keys import Item

_CAS_TRIES: Final = 8
_PAGE: Final = 100
_PURGE_INSTEAD: Final = (
    "cancel its messages, skip what a subscription lacks, or remove the subscriptions first"
)
_SOON_MS: Final = 2_000  # due so soon, a delayed message may be on its way to a subscription


class QueueOperations(QueuePart):
    """Changes the messages that wait in queues, and shows figures."""

    def metrics(self, settings: Settings | None = None) -> Metrics:
        """Return an output for consumers' metrics, by topic as `FAIRBOX_METRICS_DETAIL` says.

        The list of the busiest topics comes with the row that each receive compares: it costs no
        read. Figures of other topics are properties of the lines.

        Args:
            settings: the environment; this process's by default.

        Raises:
            InvalidInput: the setting is invalid.

        Example:
            ```python
            Consumer(queue, "jobs", handler, metrics=queue.metrics()).run()
            ```
        """
        cache = self._context.tables.topic_cache
        settings = settings or Settings.from_env()
        detail = MetricsDetail(settings.metrics_level, lambda: cache.busiest.names)
        return Metrics(self._context.clock, detail=detail, settings=settings)

    def edit(
        self,
        ref: MessageRef,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> None:
        """Change the content of a message that no consumer holds (1 WRU a KB, ordered topics 4).

        Args:
            ref: the message; on a pushed topic only while it is delayed.
            body: a new body; None: unchanged.
            headers: new headers, which replace all old ones; None: unchanged.
            content_type: a new media type; None: unchanged.

        Raises:
            InvalidInput, BodyTooLarge: a field is invalid.
            MessagesNotFound: it is not outstanding.
            MessagesClaimed: a consumer holds it.
            TopicIsPushed: it may be on its way to a subscription.
        """
        for _ in range(_CAS_TRIES):
            topic, item, version = self._changeable(ref)
            before = fetch_body(self._context.tables.bodies, read_message(item)).message
            message = before.with_content(body=body, headers=headers, content_type=content_type)
            if self._context.edits.put(item, message, version, ordered=_in_row(topic)):
                return
        raise Unavailable("put_item", "the message is being changed by others")

    def reschedule(self, ref: MessageRef, delay: float = 0) -> MessageRef:
        """Make a message that no consumer holds due now, or later.

        A delayed message moves, and so gets a new ref (5 WRU); others stay (1 or 2 WRU).

        Args:
            ref: the message; on a pushed topic only while it is delayed.
            delay: seconds from now, up to 366 days. On ordered topics only 0, which ends the wait
                of a message that was given back.

        Returns:
            The new ref of the message.

        Raises:
            As `edit` does.
        """
        wait = check_delay(delay)
        for _ in range(_CAS_TRIES):
            topic, item, _ = self._changeable(ref)
            stored = read_message(item)
            due = self._context.now + wait

            if stored.lane == "later":
                to = replace(ref, due=due if wait else None)
                moved = to == ref or self._context.edits.move(item, to)
                if moved:
                    self._find_again(to, due)
                    return to
            elif topic.topic.ordering == "key":
                if wait:
                    # on an ordered topic, a delay would stop the whole key
                    expected = f"0, which ends its wait: topic {topic.topic.name!r} is ordered"
                    raise InvalidInput("delay", expected)
                self._context.by_ref.settle(ref, _due)
                return ref
            elif self._wait(stored, due, wait):
                self._find_again(ref, due)
                return ref
        raise Unavailable("update_item", "the message is being changed by others")

    def _wait(self, stored: StoredMessage, due: int, wait: int) -> bool:
        # it may be received as it is: at most, receives have passed it
        if stored.claimed_until(self._context.now) is None and not wait:
            return True
        count = 0 if stored.claim is None else stored.claim.count
        # without a token: nobody holds it, and its receives still count
        after = replace(stored, claim=Claim(count, due))
        return self._context.tables.claims.save(after, stored) == "saved"

    def _find_again(self, ref: MessageRef, due: int) -> None:
        """Let receives find a message that they may have passed."""
        shard = ref.topic, ref.epoch, ref.shard
        if ref.due is None:
            self._context.hints.forget(shard)
            # receives begin behind it: without a segment only the scan of each minute would find it
            self._context.tables.hints.come_back(shard, [segment_of(ref, due)])
        else:
            self._context.announce([(*shard, due)])

    def _changeable(self, ref: MessageRef) -> tuple[TopicState, Item, int]:
        topic = self._context.topic(ref.topic)
        now = self._context.now
        if topic.pushed and (ref.due is None or ref.due <= now + _SOON_MS):
            raise TopicIsPushed(ref.topic)

        found = self._context.edits.find(ref, now, ordered=_in_row(topic))
        if found == "absent":
            raise MessagesNotFound([ref])
        if found == "claimed":
            raise MessagesClaimed([ref])
        item, version = found
        return topic, item, version

    def cancel(self, refs: Iterable[MessageRef], *, reason: str = "") -> None:
        """Remove messages that no consumer holds, undelivered; see `Outbox.cancel`.

        Raises:
            MessagesNotFound: some are not outstanding; the others are cancelled.
            MessagesClaimed: consumers hold some; the others are cancelled.
        """
        self.outbox.cancel(refs, reason=reason)

    def reset(self, refs: MessageRef | Iterable[MessageRef]) -> None:
        """Give messages back as `release` does, and count none of their receives so far.

        It costs 1 RRU and 3 WRU each; on ordered topics 2 RRU and 1 WRU a KB of a shard's row.

        Raises:
            UnknownTopic: there is no such topic; nothing was changed.
            TopicIsPushed: a topic has subscriptions; nothing was changed.
            MessagesNotFound: some are not outstanding; the others are settled.
            Throttled, Unavailable: some may not be settled; call again with all.
        """
        self._context.by_ref.settle(refs, partial(given_back, reset=True))

    def delete(self, refs: MessageRef | Iterable[MessageRef], *, reason: str = "") -> None:
        """Remove messages undelivered as `cancel` does, held ones too (2 WRU each, ordered 5).

        Until its time-out, the holder's `ack` counts as done: the message is gone.

        Args:
            refs: the messages.
            reason: the reason; the archive keeps 200 characters of it.

        Raises:
            As `reset` does.
        """
        change = partial(leaving, gone="cancelled", reason=check_reason(reason))
        self._context.by_ref.settle(refs, change)

    def topic(self, name: str) -> TopicState:
        """Return the state of a pulled topic, at most 2 s old.

        Raises:
            UnknownTopic: there is no such topic.
            TopicIsPushed: the topic has subscriptions, so the dispatcher delivers it.
        """
        return self._context.pulled(name)

    def stats(self, topic: str, *, count_in_flight: bool = False) -> QueueStats:
        """Return the figures of a topic from its shard rows (1 RRU a shard), not from its backlog.

        Args:
            topic: the topic.
            count_in_flight: count the messages in flight of an unordered topic too, which reads its
                lanes (0.5 RRU for 4 KB). Those of an ordered topic are always counted.

        Raises:
            UnknownTopic: there is no such topic.
        """
        state = self.outbox.topic(topic)
        found = self._context.tables.key_claims.get_many(
            [(topic, *shard) for shard in state.shards()]
        )

        now = self._context.now
        in_flight: int | None = None
        if state.topic.ordering == "key":
            claimed = (e.claimed for _, row in found for e in row.entries if e.active(now))
            in_flight = sum(map(len, claimed))
        elif count_in_flight:
            lanes = self.outbox.tables.lanes
            in_flight = sum(lanes.count_claimed((topic, *shard), now) for shard in state.shards())

        # a count below 0 is in doubt, until repair has recounted the shard
        return QueueStats(
            topic,
            ready=sum(max(0, row.ready) for row, _ in found),
            later=sum(max(0, row.later) for row, _ in found),
            dead=sum(max(0, row.dead) for row, _ in found),
            in_flight=in_flight,
        )

    def purge(
        self,
        topic: str,
        *,
        reason: str = "",
        limit: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Delete every message of a pulled topic, including held ones (2 WRU each).

        Dead letters stay.

        Messages sent while it runs stay. If a call is cut off, call again: it continues.

        Args:
            topic: the topic.
            reason: kept in the archive with each message.
            limit: maximum number; call again until fewer are deleted.
            progress: called after each page with the number deleted so far.

        Returns:
            The number of messages deleted.

        Raises:
            UnknownTopic: there is no such topic.
            TopicIsPushed: the topic has subscriptions, which may be sending its messages.
            Throttled, Unavailable: some messages are left; call again.
        """
        check_limit(limit)
        state = check_purgeable(self._context.topic(topic))
        kept = check_reason(reason)

        start = bound_of(self._context.now + 1)
        purged = 0
        for epoch, number in state.shards():
            for found in self._purgeable((topic, epoch, number), start):
                if purged == limit:
                    return purged
                chosen = found if limit is None else found[: limit - purged]
                self._context.edits.purge(chosen, kept)
                purged += len(chosen)
                if progress is not None:
                    progress(purged)
                # the limit lies in the middle of this page
                if len(chosen) < len(found):
                    return purged

            # the shard's row still lists claims of messages that are gone now
            if _in_row(state):
                self._context.edits.forget_claims((topic, epoch, number), start)
                self._context.ordered.rows.forget((topic, epoch, number))

        return purged

    def _purgeable(self, shard: Shard, start: str) -> Iterator[list[StoredMessage]]:
        """Yield pages of a shard's messages below an id; bury unreadable, finish marked ones."""
        lanes: tuple[Literal["ready", "later"], ...] = ("ready", "later")
        for lane in lanes:
            after: str | None = None
            while True:
                page = self._context.tables.lanes.page(lane, *shard, limit=_PAGE, after=after)
                for item in page.unreadable:
                    Burials(self._context.tables).bury_raw(item, "unreadable")
                finish_marked(self._context.tables, [m for m in page.messages if m.gone])
                yield [m for m in page.messages if m.gone is None and m.ref.id < start]

                after = page.last
                last = page.messages[-1].ref.id if page.messages else ""
                # `ready` is sorted by id, so behind `start` all is newer; `later` by due time
                if after is None or (lane == "ready" and last >= start):
                    break


def _due(stored: StoredMessage, entry: KeyClaim, now: int) -> tuple[StoredMessage, KeyClaim]:
    """End the wait of a message that was given back."""
    return stored, entry.due_at(now) if stored.ref.id in entry.waits else entry


def _in_row(topic: TopicState) -> bool:
    """Whether claims of the topic lie in its shards' rows."""
    return topic.topic.ordering == "key" and not topic.pushed


def check_purgeable(state: TopicState) -> TopicState:
    """Return a topic that may be purged; TopicIsPushed, with the alternative, where it may not."""
    if state.pushed:
        raise TopicIsPushed(state.topic.name, _PURGE_INSTEAD)
    return state
