"""Events of a message, read from a change of its item."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.model.bodies import ARCHIVED_UP_TO
from fairbox.model.ids import sent_at, time_of
from fairbox.model.redaction import redacted_address
from fairbox.model.topics import PULL
from fairbox.tables.ledger import Delivery

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.model.topic_states import TopicState
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.stream_records import Change

EventKind = Literal[
    "added", "failed", "delivered", "dead", "redriven", "cancelled", "purged", "expired"
]
_LONGEST_TEXT: Final = 900_000
_LEAVING: Final[dict[str, EventKind]] = {
    "cancelled": "cancelled",
    "purged": "purged",
    "expired": "expired",
}


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the archive.

    Attributes:
        kind: of the event.
        at: when it happened, in milliseconds since 1970 UTC.
        event_id: the same whenever the event is read again.
        stored: the message.
        subscription, attempt, reason: as in the archive's table.
        exact: whether `at` is exact to the millisecond; else it is the stream's whole second.
    """

    kind: EventKind
    at: int
    event_id: str
    stored: StoredMessage
    subscription: str = ""
    attempt: int = 0
    reason: str = ""
    exact: bool = False

    @property
    def delivery(self) -> Delivery:
        """The event as a row of the ledger."""
        ref = self.stored.ref
        return Delivery(
            ref.topic,
            ref.epoch,
            ref.shard,
            ref.id,
            self.subscription,
            self.at,
            self.attempt,
            self.stored.size,
        )


def events_of(change: Change, topic: TopicState | None) -> list[Event]:
    """Return the events that a change stands for.

    A delete without `gone` means delivered: to `pending`, or to all of the topic's subscriptions.

    Args:
        change: of a message's item.
        topic: the topic as it stands; None when it is gone.
    """
    if change.kind == "INSERT" and change.new is not None:
        return list(_inserted(change, change.new))
    if change.kind == "MODIFY" and change.new is not None and change.old is not None:
        return list(_modified(change, change.old, change.new, topic))
    if change.kind == "REMOVE" and change.old is not None:
        return list(_removed(change, change.old, topic))
    return []


def _inserted(change: Change, new: StoredMessage) -> Iterator[Event]:
    if new.moved or new.gone is not None:  # the mark of a purged dead letter: its removal counts
        return
    if new.redriven:
        yield Event("redriven", change.at, f"{change.event_id}:redriven", new)
        return
    # the id has milliseconds, the stream has seconds; an id of another clock is not believed
    sent = sent_at(new.ref.id, change.at)
    event_id = f"{change.event_id}:added"
    yield Event("added", sent or change.at, event_id, new, exact=bool(sent))


def _modified(
    change: Change, old: StoredMessage, new: StoredMessage, topic: TopicState | None
) -> Iterator[Event]:
    if new.redriven > old.redriven:  # put back into a message that others still lack
        yield Event("redriven", change.at, f"{change.event_id}:redriven", new)
        return

    if old.any_dead and not new.any_dead:
        yield Event("purged", change.at, f"{change.event_id}:purged", new, reason=new.reason)

    for name, state in sorted(new.states.items()):
        before = old.state(name)
        for failure in state.history:
            # the history repeats earlier failures, which had events of their own
            if failure.attempt > before.attempts:
                yield Event(
                    "failed",
                    failure.at,
                    f"{change.event_id}:failed:{name}:{failure.attempt}",
                    new,
                    name,
                    failure.attempt,
                    failure.error,
                    exact=True,
                )
        if state.dead and not before.dead:
            reason = state.history[-1].error if state.history else ""
            yield Event(
                "dead",
                change.at,
                f"{change.event_id}:dead:{name}",
                new,
                name,
                state.attempts,
                f"max_attempts: {reason}",
            )

    yield from _skipped(change, old, new)
    if new.pending is not None and new.gone != "purged":
        # who left `pending` without a skip has taken the message
        for name in sorted(_wanting(change, old, topic) - new.pending - new.skipped.keys()):
            if not new.state(name).dead:
                yield _delivered(change, new, name)


def _skipped(change: Change, old: StoredMessage, new: StoredMessage) -> Iterator[Event]:
    """Yield a cancellation for each subscription that an operator has skipped."""
    for name in sorted(new.skipped.keys() - old.skipped.keys()):
        event_id = f"{change.event_id}:cancelled:{name}"
        yield Event("cancelled", change.at, event_id, new, name, reason=new.skipped[name])


def _removed(change: Change, old: StoredMessage, topic: TopicState | None) -> Iterator[Event]:
    if old.gone is None:
        for name in sorted(_wanting(change, old, topic)):
            yield _delivered(change, old, name)
    elif old.gone == "moved" and old.reason:  # to another shard, as a new message
        yield Event("cancelled", change.at, f"{change.event_id}:cancelled", old, reason=old.reason)
    elif (
        old.gone in _LEAVING
        and not (old.any_dead and _skipped_last(old))
        and not (taken_before_skip(old, topic))
    ):
        kind = _LEAVING[old.gone]
        yield Event(kind, change.at, f"{change.event_id}:{kind}", old, reason=old.reason)


def taken_before_skip(old: StoredMessage, topic: TopicState | None) -> bool:
    """Whether a message left because its last subscription was skipped, and another had taken it.

    It is delivered then: the same as if the skip had come first. If the topic does not know a
    subscription any more, nobody can say who took the message, and it is cancelled.
    """
    if topic is None or old.pending is None or not _skipped_last(old) or old.any_dead:
        return False
    return bool(topic.subscribed_at(time_of(old.ref.id)) - old.pending - old.skipped.keys())


def _skipped_last(old: StoredMessage) -> bool:
    """Whether a skip took a message out of the outbox."""
    return old.gone == "cancelled" and old.pending is not None and old.pending <= old.skipped.keys()


def _wanting(change: Change, stored: StoredMessage, topic: TopicState | None) -> frozenset[str]:
    """Return the receivers of a message before a change: `pending`, all subscriptions, or a puller.

    A subscription that was added after the change had no part in it.
    """
    if stored.pending is not None:
        names = stored.pending
    else:
        # the stream stamps whole seconds
        names = topic.subscribed_at(change.at + 999) if topic is not None else frozenset()
    return frozenset(n for n in names if not stored.state(n).dead) or frozenset({PULL})


def _delivered(change: Change, stored: StoredMessage, subscription: str) -> Event:
    return Event(
        "delivered",
        # never before it was added, for all that its second was rounded down
        max(change.at, sent_at(stored.ref.id, change.at)),
        f"{change.event_id}:delivered:{subscription}",
        stored,
        subscription,
        stored.state(subscription).attempts + 1,
    )


def archive_line(event: Event, topic: TopicState | None, *, bodies: bool = True) -> bytes:
    """Return the event as a line of the archive: a JSON object without line break.

    Args:
        event: the event.
        topic: the topic as it stands; None when it is gone.
        bodies: whether the body of a message is a part of its `added`.
    """
    ref = event.stored.ref
    line: dict[str, Any] = {
        "event": event.kind,
        "at": event.at,
        "topic": ref.topic,
        "epoch": ref.epoch,
        "shard": ref.shard,
        "id": ref.id,
        "event_id": event.event_id,
    }

    # the stream stamps whole seconds
    if not event.exact:
        line["precision"] = "s"

    if event.kind == "added":
        line |= _content(event.stored, topic, bodies=bodies)
    if event.kind in ("failed", "delivered", "dead"):
        line["subscription"] = event.subscription
        line["destination"] = _destination(topic, event.subscription)
        line["attempt"] = event.attempt
    if event.kind == "cancelled" and event.subscription:
        line["subscription"] = event.subscription
    if event.kind in ("failed", "dead", "cancelled", "purged"):
        line["reason"] = event.reason

    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode()


def _content(stored: StoredMessage, topic: TopicState | None, *, bodies: bool) -> dict[str, Any]:
    message = stored.message
    content: dict[str, Any] = {
        "partition_key": message.partition_key,
        "content_type": message.content_type,
        "headers": dict(message.headers),
        "size": stored.size,
        "batch_item": message.batch_item,
        "ordering": topic.topic.ordering if topic is not None else "none",
    }
    if stored.ref.due is not None:
        content["due"] = stored.ref.due

    if stored.offloaded is not None:
        return content | {"body": None, "body_encoding": None, "body_uri": stored.offloaded.uri}
    # a long one is from a producer without a bucket for bodies
    if not bodies or len(message.body) > ARCHIVED_UP_TO:
        return content | {"body": None, "body_encoding": None}

    try:
        text = message.body.decode()
    except UnicodeDecodeError:
        text = None
    # control characters take six bytes each in JSON
    if text is not None and len(json.dumps(text, ensure_ascii=False).encode()) <= _LONGEST_TEXT:
        return content | {"body": text, "body_encoding": "utf-8"}
    text = base64.b64encode(message.body).decode()
    return content | {"body": text, "body_encoding": "base64"}


def _destination(topic: TopicState | None, subscription: str) -> str:
    for known in topic.subscriptions if topic is not None else ():
        if known.name == subscription:
            return redacted_address(known.destination)
    return subscription
