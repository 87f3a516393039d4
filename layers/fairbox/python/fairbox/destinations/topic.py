"""Pulled topics of Fairbox as destinations: the message goes into one under its own id."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from fairbox.destinations.outcomes import refused, throttled, unreachable
from fairbox.dispatch.ports import TAKEN, Limits, Outcome
from fairbox.errors import (
    FairboxError,
    MessagesNotWritten,
    NotAllowed,
    Throttled,
    TopicFull,
    TopicIsPushed,
    Unavailable,
    UnknownTopic,
)
from fairbox.model.messages import MAX_BODY_BYTES, Message, MessageRef, check_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.model.topic_states import TopicState
    from fairbox.tables.stored_messages import StoredMessage

_OVERHEAD: Final = 32 * 1024


class TopicOutbox(Protocol):
    """The outbox, as a destination uses it."""

    def topic(self, name: str) -> TopicState:
        """Return a topic; raises `UnknownTopic`."""

    def add_many(self, messages: Sequence[Message]) -> list[MessageRef]:
        """Add messages; raises `MessagesNotWritten` with the missing ones."""


class PulledTopic:
    """A topic that consumers receive from.

    Args:
        add_many: adds messages and returns one outcome for each, in order; adding a message again
            while it is outstanding changes nothing.

    Raises:
        InvalidInput: the name is not that of a topic.
    """

    limits = Limits(25, MAX_BODY_BYTES + _OVERHEAD)
    quick = True

    def __init__(self, name: str, add_many: Callable[[Sequence[Message]], list[Outcome]]) -> None:
        self._name = check_topic(name)
        self._add_many = add_many

    def size(self, message: StoredMessage) -> int:
        """Return the bytes of body and headers."""
        headers = message.message.headers.items()
        return message.size + sum(len(n) + len(v.encode()) for n, v in headers)

    def send(self, messages: Sequence[StoredMessage], timeout: float) -> list[Outcome]:  # noqa: ARG002 - the callable's clients bound it
        """Add the messages, each under its own id, due at once."""
        ready = [m for m in messages if m.offloaded is None or m.message.body]
        # the delay is over, and `after` was kept by the id that it has
        published = [replace(m.message, topic=self._name, delay=0, after=None) for m in ready]
        added = dict(zip(map(id, ready), self._add(published), strict=False))
        away = refused("its body is not in place", fault="message")
        unanswered = refused("the topic did not answer for it")
        here = set(map(id, ready))
        return [added.get(id(m), unanswered) if id(m) in here else away for m in messages]

    def _add(self, messages: list[Message]) -> list[Outcome]:
        try:
            return list(self._add_many(messages)) if messages else []
        # a full topic takes messages again when its consumers have caught up: no attempt counts
        except (Throttled, TopicFull) as error:
            return [throttled(str(error))] * len(messages)
        except (Unavailable, NotAllowed) as error:
            return [unreachable(str(error))] * len(messages)
        except FairboxError as error:
            return [refused(str(error))] * len(messages)


def add_to_topic(outbox: TopicOutbox, messages: Sequence[Message]) -> list[Outcome]:
    """Add messages to a pulled topic, as the destination `topic:` does; one outcome each."""
    name = messages[0].topic
    try:
        state = outbox.topic(name)
        if state.deleting is not None:
            # until the deletion is refused, since it has a subscription
            return [throttled("the topic is being deleted")] * len(messages)
        if state.pushed:
            return [refused(str(TopicIsPushed(name)))] * len(messages)
    except UnknownTopic as error:
        return [refused(str(error))] * len(messages)

    # a key without a window would be refused; it was for the topic that the message came from
    if state.topic.dedup_window is None:
        messages = [replace(message, dedup_key=None) for message in messages]

    try:
        outbox.add_many(messages)
    except MessagesNotWritten as error:
        missing = {ref.id for ref in error.missing}
        return [throttled("not written") if m.id in missing else TAKEN for m in messages]
    return [TAKEN] * len(messages)
