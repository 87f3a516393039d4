"""Feeds as destinations: a message goes to the topic that its partition key names."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from fairbox.destinations.outcomes import refused, throttled, too_large, unreachable
from fairbox.dispatch.ports import TAKEN, Limits, Outcome
from fairbox.errors import (
    BodyTooLarge,
    FairboxError,
    FeedFull,
    InvalidInput,
    MessagesNotWritten,
    NotAllowed,
    NotConfigured,
    Throttled,
    Unavailable,
    UnknownFeed,
)
from fairbox.model.feed_types import BUNDLE_MESSAGES, MAX_BODY
from fairbox.model.messages import MessageRef, check_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fairbox.tables.stored_messages import StoredMessage

    PublishMany = Callable[[str, str, Iterable[bytes], str, Iterable[str]], object]


class PublishedFeed:
    """A feed that clients follow: messages of one partition key are a topic's, in their order.

    Args:
        publish: publishes bodies to a feed's topic, as `Feeds.publish_many`.

    Raises:
        InvalidInput: the name is not that of a feed.
    """

    limits = Limits(BUNDLE_MESSAGES, MAX_BODY)
    quick = True

    def __init__(self, name: str, publish: PublishMany) -> None:
        self._name = check_topic(name, field_name="feed")
        self._publish = publish

    def size(self, message: StoredMessage) -> int:
        """Return the bytes of the body."""
        return message.size

    def send(self, messages: Sequence[StoredMessage], timeout: float) -> list[Outcome]:  # noqa: ARG002 - the callable's clients bound it
        """Publish the messages under their own ids, those of a key together."""
        ready = [m for m in messages if m.offloaded is None or m.message.body]
        ready.sort(key=_key)  # stable: the order of a key stays

        outcomes: dict[MessageRef, Outcome] = {}
        failed: Outcome | None = None  # what is throttled takes 20 s, and so would each other key
        for (key, content_type), alike in groupby(ready, _key_and_type):
            some = list(alike)
            done = {m.ref: failed for m in some} if failed else self._send(key, content_type, some)
            outcomes |= done
            not_taken = (o for o in done.values() if not o.taken)
            failed = next((o for o in not_taken if o.blames == "destination"), failed)

        away = refused("its body is not in place", fault="message")
        return [outcomes.get(m.ref, away) for m in messages]

    def _send(
        self, key: str, content_type: str, messages: Sequence[StoredMessage]
    ) -> dict[MessageRef, Outcome]:
        # the message's own id: published again after a lost answer, clients get it once
        bodies, ids = [m.message.body for m in messages], [m.message.id for m in messages]
        try:
            self._publish(self._name, key, bodies, content_type, ids)
        except MessagesNotWritten as error:
            # the cause says why the rest was not written
            left = _outcome(error.__cause__)
            return {m.ref: left if m.message.id in error.missing else TAKEN for m in messages}
        except FairboxError as error:
            if isinstance(error, InvalidInput) and len(messages) > 1:  # one stops no other
                alone = [self._send(key, content_type, [m]) for m in messages]
                return {ref: outcome for one in alone for ref, outcome in one.items()}
            return {m.ref: _outcome(error) for m in messages}
        return {m.ref: TAKEN for m in messages}


def _key(stored: StoredMessage) -> str:
    return stored.message.partition_key or ""


def _key_and_type(stored: StoredMessage) -> tuple[str, str]:
    return _key(stored), stored.message.content_type


def _outcome(error: BaseException | None) -> Outcome:
    """Return the outcome of a message that was not published."""
    text = str(error)
    match error:
        case BodyTooLarge():
            return too_large(error.size, error.limit)
        case InvalidInput():
            return replace(refused(text, fault="message"), final=True)
        case FeedFull():  # not throttled: that would open the circuit, and stop all other topics
            return refused(text, fault="message")
        case Throttled():
            return throttled(text)
        case NotConfigured() | NotAllowed() | Unavailable():
            return unreachable(text)
    return refused(text, fault="destination" if isinstance(error, UnknownFeed) else "unknown")
