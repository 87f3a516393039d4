"""Delivery by hand: messages marked as delivered, cancelled, skipped, or left to a visit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from fairbox.client.outbox_context import OutboxPart
from fairbox.client.reading import age_ms, check_limit
from fairbox.dispatch.ports import FROM_HEAD, Doorbell
from fairbox.errors import (
    InvalidInput,
    MessagesClaimed,
    MessagesNotFound,
    MessagesNotWritten,
    NotConfigured,
    NothingToSkip,
    Unavailable,
    UnknownSubscription,
    UnknownTopic,
    Unreadable,
)
from fairbox.model.ids import sent_at, time_of
from fairbox.model.messages import MessageRef, OpenLane, check_text
from fairbox.model.swap import swap
from fairbox.settings import DOORBELL_QUEUE_URL
from fairbox.tables.deferred_keys import DeferredKeys, name_digest
from fairbox.tables.keys import PK, SK, message_key, message_sk
from fairbox.tables.message_edits import Edits, Found
from fairbox.tables.parallel_scan import parallel_scan
from fairbox.tables.stored_messages import STATES, StoredMessage, read_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import timedelta

    from fairbox.model.topic_states import TopicState

_LANES: Final[tuple[OpenLane, ...]] = ("later", "ready")
_PAGE: Final = 100
_DEAD: Final = "let it die: redrive or purge its dead letter"
_TAKEN: Final = "has taken it, or never had a part in it"


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of a sweep by hand: overdue messages, their shards, doorbells rung."""

    overdue: int
    shards: int
    rung: int


@dataclass(frozen=True, slots=True)
class SkipResult:
    """The result of skipping a subscription's messages; of a dry run, the expected result.

    Attributes:
        count: messages skipped.
        after: where to go on, for the argument of this name; empty: that was all.
    """

    count: int
    after: str = ""


class ManualDelivery(OutboxPart):
    """Does the work of the functions by hand: delivers, cancels, skips, sweeps."""

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

    def skip(self, ref: MessageRef, *, subscription: str, reason: str = "") -> None:
        """Skip a message for one subscription; its other subscriptions still get it.

        If no other subscription lacks the message, it leaves the outbox: as delivered if another
        had taken it, else as cancelled. On an ordered topic the key's next message goes at once.
        1 RRU and 1 WRU a KB; 1 WRU more when the message leaves, and 1 RRU and 1 WRU on an ordered
        topic. It may be repeated.

        Args:
            ref: the message.
            subscription: the name of the subscription.
            reason: at most 256 bytes; the archive keeps it.

        Raises:
            UnknownTopic: there is no such topic.
            UnknownSubscription: the topic has none of this name; a pulled topic has none at all.
            MessagesNotFound: the message is not outstanding.
            NothingToSkip: the subscription has taken the message, or the message died for it.
        """
        check_text("reason", reason)
        topic = self._subscribed(ref.topic, subscription)
        self._skip(ref, topic, subscription, reason)

    def skip_outstanding(
        self,
        topic: str,
        subscription: str,
        *,
        older_than: float | timedelta = 0,
        limit: int | None = None,
        after: str = "",
        reason: str = "",
        dry_run: bool = False,
        progress: Callable[[int], object] = lambda _: None,
    ) -> SkipResult:
        """Skip all messages that wait for a subscription.

        It reads the topic's outstanding messages, 1 RRU for 4 KB, and writes as much as `skip` for
        each skipped one. After a crash or an error call it again: it skips no message twice.

        Args:
            topic: the topic's name.
            subscription: the subscription's.
            older_than: minimum age of the messages, in seconds or as a timedelta.
            limit: maximum number of messages skipped; None: all.
            after: `SkipResult.after` of the call before.
            reason: at most 256 bytes; the archive keeps it.
            dry_run: count them, and skip none.
            progress: told how many were skipped, after each.

        Raises:
            As `skip` does.
        """
        check_text("reason", reason)
        check_limit(limit)
        state = self._subscribed(topic, subscription)
        until = self._context.now - age_ms(older_than)

        count = 0
        for place, stored in self._lacked(state, subscription, after):
            if time_of(stored.ref.id) > until:
                continue
            if limit is not None and count >= limit:
                return SkipResult(count, after)

            if not dry_run:
                try:
                    self._skip(stored.ref, state, subscription, reason, stored)
                except (MessagesNotFound, NothingToSkip):
                    continue  # it was delivered, or died, in the meantime
            count, after = count + 1, place
            progress(count)

        return SkipResult(count)

    def lacking_count(self, topic: str, subscription: str, *, limit: int | None = None) -> int:
        """Count the messages that wait for a subscription; `limit` + 1 if there are more.

        It reads the topic's outstanding messages up to then, 1 RRU for 4 KB.

        Raises:
            As `skip` does.
        """
        check_limit(limit)
        lacked = self._lacked(self._subscribed(topic, subscription), subscription, "")
        return sum(1 for _ in islice(lacked, None if limit is None else limit + 1))

    def _subscribed(self, topic: str, subscription: str) -> TopicState:
        state = self._context.topic(topic)
        if subscription not in state.subscription_names:
            raise UnknownSubscription(topic, subscription)
        return state

    def _lacked(
        self, topic: TopicState, subscription: str, after: str
    ) -> Iterator[tuple[str, StoredMessage]]:
        """Yield the messages that a subscription lacks, each with its place, behind a place."""
        name = topic.topic.name
        shards = [(e.number, n) for e in topic.epochs for n in range(e.shards)]
        places = [(lane, *shard) for shard in shards for lane in _LANES]

        first, lower = _parsed(after)
        if first is not None and first not in places:
            raise InvalidInput("after", "`after` of a result for this topic")

        for place in places[places.index(first) if first else 0 :]:
            walk = partial(self.tables.lanes.walk, place[0], name, *place[1:], page=_PAGE)
            # the space lets the walk begin behind the place, not at it
            for stored in walk(lower=f"{lower} ") if place == first else walk():
                if subscription in stored.lacking(topic.subscription_names):
                    key = message_sk(stored.ref.id, stored.ref.due, place[0])
                    yield "/".join((*map(str, place), key)), stored

    def _skip(
        self,
        ref: MessageRef,
        topic: TopicState,
        subscription: str,
        reason: str,
        before: StoredMessage | None = None,
    ) -> None:
        def skipped(there: StoredMessage) -> StoredMessage:
            if subscription in there.skipped:
                return there  # by an earlier try, or call: what is left of it is done
            return _without(there, topic, subscription, reason)

        def write(after: StoredMessage, there: StoredMessage) -> StoredMessage | None:
            saved = self.tables.lanes.save_state(after, there)
            return None if saved == "saved" else self._outstanding(ref, subscription)

        after = swap(before or self._outstanding(ref, subscription), skipped, write)
        if after is None:
            raise Unavailable("update_item", "the message is being changed by others")

        if after.gone is not None:
            self.tables.lanes.delete_marked(after)

        if topic.topic.ordering == "key":
            self._release(ref, subscription)
            self._context.visit(ref)

    def _outstanding(self, ref: MessageRef, subscription: str) -> StoredMessage:
        item = self.tables.lanes.get(ref)
        stored = None if item is None else read_message(item)
        # marked, and skipped for this one: an earlier call was cut off before the delete
        if stored is not None and (stored.gone is None or subscription in stored.skipped):
            return stored
        letter = self.tables.dead.find(ref)
        if letter is not None and subscription in (letter.pending or ()):
            raise NothingToSkip(ref, subscription, _DEAD)
        raise MessagesNotFound([ref])

    def _release(self, ref: MessageRef, subscription: str) -> None:
        """Release a key's next messages that waited for this one (1 RRU, 1 WRU a KB)."""
        table = self.tables.deferred_keys
        shard, digest = (ref.topic, ref.epoch, ref.shard), name_digest(subscription)
        _, deferred = table.get(shard)

        def opened(row: DeferredKeys) -> DeferredKeys:
            entries = [
                replace(e, due=self._context.now, state="open")
                if (e.subscription, e.id, e.state) == (digest, ref.id, "waiting") and not e.whole
                else e
                for e in row.entries
            ]
            return replace(row, entries=tuple(entries))

        # if others change it all the time, it is due when it was
        swap(deferred, opened, lambda new, old: table.write(shard, new, old.version))


def _without(
    before: StoredMessage, topic: TopicState, subscription: str, reason: str
) -> StoredMessage:
    """Return the message that a subscription lacks as it is to be without that."""
    if before.state(subscription).dead:
        raise NothingToSkip(before.ref, subscription, _DEAD)

    lacking = before.lacking(topic.subscription_names)
    if subscription not in lacking:
        raise NothingToSkip(before.ref, subscription, _TAKEN)

    left = lacking - {subscription}
    after = replace(
        before,
        pending=left or lacking,  # no attribute is an empty set
        states={name: s for name, s in before.states.items() if name != subscription},
        skipped={**before.skipped, subscription: reason},
    )

    if left:
        return after
    because = f": {reason}" if reason else ""
    return replace(after, gone="cancelled", reason=f"skipped for {subscription}{because}")


def _parsed(after: str) -> tuple[tuple[OpenLane, int, int] | None, str]:
    """Return the lane, epoch and shard of a place, and the sort key in it."""
    if not after:
        return None, ""
    lane, _, rest = after.partition("/")
    epoch, _, rest = rest.partition("/")
    shard, _, key = rest.partition("/")
    if lane not in _LANES or not epoch.isdecimal() or not shard.isdecimal() or not key:
        raise InvalidInput("after", "`after` of a result")
    return (lane, int(epoch), int(shard)), key
