"""Changes of batches: open, add, seal, settle, cancel, with their callbacks and announcements."""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from fairbox.batches.additions import NO_CALLBACKS
from fairbox.client.batch_context import BatchPart
from fairbox.client.batch_reads import known_id
from fairbox.client.publishing import place
from fairbox.client.topic_administration import check_address
from fairbox.errors import (
    BatchEnded,
    InvalidInput,
    MalformedItems,
    TopicConflict,
    UnknownItems,
    UnknownTopic,
)
from fairbox.model.messages import Message, check_topic
from fairbox.model.topics import SCHEMES, Subscription, Topic
from fairbox.tables.batch_values import COMPLETED_TOPIC, MAX_GROUP_SIZE, ORPHANED_TOPIC, Callbacks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairbox.batches.item_settlement import Verb
    from fairbox.batches.results import AckResult, Batch, Group, Progress
    from fairbox.client.outbox import Outbox
    from fairbox.tables.batch_values import Announcement, Root

NOBODY: Final = "nobody has subscribed"
"""The archive's reason for a completion that expired."""
_TRIES: Final = 3
CALLBACK_PREFIX: Final = "fairbox.batches.to."
"""Of the topics that stand before the destinations of callbacks; a hash of the address follows."""
RETRY_HOURS: Final = 24
"""The time for retries of a batch with `on_success`, unless `open` gives another."""
MAX_RETRY_HOURS: Final = 7 * 24
_OURS: Final = "fairbox.batches."
_EXPECTED: Final = f"the name of a topic, or a destination ({':, '.join(SCHEMES)}:)"


def resolve_callbacks(outbox: Outbox, given: Mapping[str, str | None]) -> Callbacks:
    """Return the topics of callbacks; a destination's topic is created if it is missing.

    All addresses are checked before anything is created.

    Raises:
        InvalidInput: an address is no topic that exists and no destination; it names the field.
    """
    found: dict[str, Subscription | str | None] = {}
    for field, address in given.items():
        found[field] = None if address is None else _checked(outbox, field, address)
    return Callbacks(**{field: _topic(outbox, field, target) for field, target in found.items()})


def check_retry_hours(hours: int | None, on_success: str | None) -> int:
    """Return the hours for retries, 0 to 168, else InvalidInput; a day if success is asked for."""
    if hours is None:
        return 0 if on_success is None else RETRY_HOURS
    if isinstance(hours, bool) or not isinstance(hours, int) or not 0 <= hours <= MAX_RETRY_HOURS:
        raise InvalidInput("retry_hours", f"a whole number from 0 to {MAX_RETRY_HOURS}")
    return hours


class BatchChanges(BatchPart):
    """Opens batches, adds and settles items, seals and cancels batches."""

    def open(
        self,
        user_key: str = "",
        metadata: Mapping[str, object] | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the surface's name
        parent_item: str | None = None,
        on_complete: str | None = None,
        on_success: str | None = None,
        on_cancel: str | None = None,
        on_death: str | None = None,
        retry_hours: int | None = None,
    ) -> Batch:
        """Open a batch (2 WRU; a nested one 5 WRU and 3 RRU).

        Args:
            user_key: the caller's own name for it, up to 256 bytes.
            metadata: a JSON object of at most 4 KB, carried into the completion message.
            id: a UUID of the caller; a repeated call with it returns the existing batch.
            parent_item: a pending item of another batch; it is settled when this batch ends. An
                item has one nested batch at a time.
            on_complete: a topic, or a destination such as `sqs:<queue url>`, that gets a message of
                its own when this batch completes.
            on_success: the same, when it completes without failures.
            on_cancel: the same, when it is cancelled; the cancel then reads the progress, 1 RRU an
                unfinished group.
            on_death: the same, when the first of its items fails, once, while the others go on; the
                batches' stream brings it within seconds, at the same cost.
            retry_hours: hours, up to 168, for which the batch stays open for `retry` when nothing
                is pending and items have failed; then it completes, at the next hour. By default
                24 with `on_success`, else 0. The first batch with a destination takes 2 s longer.

        Raises:
            InvalidInput: a field is invalid, as is a callback that is no topic and no destination.
            UnknownItems: the parent item is not pending.
            ParentItemTaken: it has another nested batch; give the same `id` to get that one.
        """
        hours = check_retry_hours(retry_hours, on_success)
        given = {"on_complete": on_complete, "on_success": on_success}
        given |= {"on_cancel": on_cancel, "on_death": on_death}
        called = any(address is not None for address in given.values())
        callbacks = self._context.callbacks(given) if called else NO_CALLBACKS
        return self._context.additions.open(
            user_key, metadata or {}, id, parent_item, callbacks=callbacks, retry_hours=hours
        )

    def add(
        self, batch: str, count: int, *, request_id: str, group_size: int = MAX_GROUP_SIZE
    ) -> list[Group]:
        """Add items in groups of `group_size`, the last one smaller: all of them or none.

        Args:
            batch: its id.
            count: number of items, from 1.
            request_id: names this add; a repeated call with it returns the same groups and adds
                nothing.
            group_size: items of a group, 1 to 7,168.

        Raises:
            InvalidInput: a field is invalid.
            UnknownBatch, BatchSealed, BatchEnded: the batch takes no items.
            RequestConflict: the request id was used with another count or group size.
            BatchBusy: other processes kept changing the batch; call again.
        """
        return self._context.additions.add(batch, count, request_id, group_size)

    def seal(self, batch: str) -> Progress:
        """Declare that all items are added; complete the batch if none is pending.

        A repeated call returns the same. The progress is exact up to 1,000 unfinished groups, and
        an estimate beyond.

        Raises:
            UnknownBatch: there is none of this id.
            BatchEnded: it was cancelled or reaped.
        """
        root = self._context.lifecycle.seal(known_id(batch))
        return self._context.progress.sealed_progress(root)

    def ack(self, item_ids: Iterable[str]) -> AckResult:
        """Ack items, of any batches and groups (1 RRU and 1 WRU a group touched).

        The first outcome of an item counts: an ack of a failed item changes nothing.

        Raises:
            MalformedItems (an UnknownItems): some ids are malformed.
            UnknownItems: some ids were never issued; it names every id that cannot be settled,
                and nothing has changed.
            BatchEnded: some belong to batches that were cancelled or reaped; it names them all.
            BatchBusy: other processes kept changing some groups; ack `.left` again. `.changed` and
                `.completed` tell the changes of this call, as its result does.
        """
        return self._settle("ack", item_ids)

    def fail(self, item_ids: Iterable[str], reason: str = "") -> AckResult:
        """Fail items; failed items do not keep a batch from completing.

        Args:
            item_ids: as for `ack`.
            reason: the reason; 120 bytes of it are kept, for the eight newest failures of a group.

        Raises:
            As `ack` does.
        """
        if not isinstance(reason, str):
            raise InvalidInput("reason", "text")
        return self._settle("fail", item_ids, reason)

    def retry(self, item_ids: Iterable[str]) -> AckResult:
        """Make failed items pending again, under the same ids; other items do not change.

        Raises:
            As `ack` does; BatchEnded also if the batch is complete.
        """
        return self._settle("retry", item_ids)

    def _settle(self, verb: Verb, item_ids: Iterable[str], reason: str = "") -> AckResult:
        # a list: after a refusal the ids are read a second time
        items = item_ids if isinstance(item_ids, str) else list(item_ids)
        try:
            return self._context.settlement.settle(verb, items, reason)
        except MalformedItems as error:
            # a refusal names ids of one kind: the caller is told all that are wrong
            raise MalformedItems(error.malformed, self._bad(items)) from None
        except UnknownItems as error:
            raise UnknownItems(self._bad(items) or error.items) from None
        except BatchEnded as error:
            bad = self._bad(items) or error.items
            raise BatchEnded(
                error.batch, error.state, bad, changed=error.changed, completed=error.completed
            ) from None

    def _bad(self, items: Iterable[str]) -> list[str]:
        """Return every id that cannot be settled; a refusal names only those of one kind."""
        given = list(items)
        texts = all(isinstance(item, str) for item in given)
        return self._context.settlement.split_known(given)[1] if texts else []

    def cancel(self, batch: str) -> Batch:
        """Cancel a batch: it will not complete, and every later ack raises `BatchEnded`.

        The transaction that cancels it writes the message of its `on_cancel`, where it has one.
        It returns when all groups are erased (2 WRU each, a second for some 1,500 groups). After a
        crash the batches' stream erases the rest, and a repeated call goes on where it ended.

        Raises:
            UnknownBatch: there is none of this id.
            BatchEnded: it is complete, or was reaped.
            Throttled, Unavailable: the batch may be cancelled, with groups left; call again.
        """
        return self._context.lifecycle.cancel(known_id(batch))


class OutboxAnnouncer:
    """Makes completion messages part of a transaction, over the outbox that has their topics."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._context = outbox._context  # noqa: SLF001 - a part over the same context

    def actions(self, announcement: Announcement) -> list[dict[str, Any]]:
        """Return the actions that publish the message."""
        message = Message(
            topic=announcement.topic,
            body=json.dumps(_body(announcement), ensure_ascii=False).encode(),
            partition_key=announcement.root.batch,
            content_type="application/json",
            id=announcement.id,
        )

        for _ in range(_TRIES):
            try:
                return self._placed(message)
            except TopicConflict:
                # it is being deleted: the batch completes, and the deletion is refused
                self._outbox.keep_topic(announcement.topic)
            except UnknownTopic:
                self._outbox.create_topic(Topic(announcement.topic))
        return self._placed(message)

    def _placed(self, message: Message) -> list[dict[str, Any]]:
        """Return the message's actions; no `max_outstanding` refuses it, for nobody sends again."""
        return self._context.inserts.actions([place(message, self._context)])

    def expire(self, root: Root) -> None:
        """Mark the completion message of a batch as expired where nobody has subscribed.

        Repair deletes it within the hour, and the archive keeps the event.
        """
        with contextlib.suppress(UnknownTopic):
            state = self._outbox.topic(COMPLETED_TOPIC)
            if root.message is not None and not state.pushed:
                # without its body: topic, key and id decide where the message lies
                message = Message(
                    topic=COMPLETED_TOPIC, body=b"", partition_key=root.batch, id=root.message
                )
                self._outbox.tables.lanes.mark_gone(state.ref(message), "expired", NOBODY)


def _checked(outbox: Outbox, field: str, address: str) -> Subscription | str:
    """Return a topic's name, or the subscription that brings messages to a destination."""
    if not isinstance(address, str):
        raise InvalidInput(field, _EXPECTED)

    scheme, colon, rest = address.partition(":")
    name = rest if scheme == "topic" else address
    try:
        # no name of a topic has a colon
        if colon and scheme != "topic":
            # an address may be longer than a topic's name, and has characters that no name may have
            digest = hashlib.sha256(address.encode()).hexdigest()[:16]
            subscription = Subscription(CALLBACK_PREFIX + digest, "callback", address)
            check_address(address, outbox.tables.calls.region)
            _check_host(scheme, address)
            return subscription
        check_topic(name)
        stays = outbox.topic(name).deleting is None
    except InvalidInput as error:
        raise InvalidInput(field, error.expected if colon else _EXPECTED) from None
    except UnknownTopic:
        raise InvalidInput(field, f"a topic that exists; there is no {name!r}") from None

    if not stays:
        raise InvalidInput(field, f"a topic that stays; {name!r} is being deleted")
    if name.startswith(_OURS):
        raise InvalidInput(field, f"another topic than those of {_OURS}*")
    return name


def _check_host(scheme: str, address: str) -> None:
    if scheme in ("http", "https") and not urlsplit(address).hostname:
        raise InvalidInput("destination", "a URL with a host")


def _topic(outbox: Outbox, field: str, target: Subscription | str | None) -> str | None:
    """Return the topic of a callback; a destination's topic is created if it is missing."""
    if not isinstance(target, Subscription):
        return target
    try:
        there = outbox.topic(target.topic)
    except UnknownTopic:
        there = outbox.create_topic(Topic(target.topic, shards=1))

    # an earlier call may have been cut off between the topic and its subscription
    if target.name not in there.subscription_names:
        try:
            outbox.add_subscription(target)
        except InvalidInput as error:
            raise InvalidInput(field, error.expected) from None
    return target.topic


def _body(announcement: Announcement) -> dict[str, object]:
    root = announcement.root
    body: dict[str, object] = {
        "id": root.batch,
        "user_key": root.user_key,
        "metadata": dict(announcement.metadata),
        "total": root.total,
        "acked": announcement.acked,
        "failed": root.failed,
        "opened_at": root.opened,
    }

    if announcement.callback is not None:
        body["callback"] = announcement.callback

    if announcement.topic == ORPHANED_TOPIC:
        return body | {"pending": announcement.pending, "reaped_at": announcement.at}
    if announcement.callback == "cancel":
        return body | {"pending": announcement.pending, "cancelled_at": announcement.at}
    if announcement.callback == "death":
        return body | {"pending": announcement.pending, "died_at": announcement.at}
    return body | {"completed_at": announcement.at}
