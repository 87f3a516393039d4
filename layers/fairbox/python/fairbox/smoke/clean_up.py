"""Removal of the messages in the topics of a smoke test, and of the topics themselves."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fairbox.errors import FairboxError, MessagesNotFound, UnknownSubscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fairbox.client.outbox import Outbox
    from fairbox.model.messages import MessageRef


def empty_topics(outbox: Outbox, topics: Iterable[str], refs: Sequence[MessageRef]) -> list[str]:
    """Cancel these messages and purge the dead letters; return the failures, with reasons."""

    def empty(name: str) -> None:
        # delivered ones are gone, as they should be
        with suppress(MessagesNotFound):
            outbox.cancel([ref for ref in refs if ref.topic == name], reason="smoke test")
        outbox.purge_dead(name, reason="smoke test")

    return _each(topics, empty)


def delete_topics(outbox: Outbox, topics: Sequence[str]) -> list[str]:
    """Delete empty topics with their subscriptions, in one wait of a minute for all of them.

    Returns:
        The topics that are still there, and why.
    """
    waits = [0.0]

    def unsubscribe(name: str) -> None:
        for subscription in outbox.topic(name).subscription_names:
            # somebody removed it meanwhile
            with suppress(UnknownSubscription):
                outbox.tables.topics.remove_subscription(name, subscription)

    left = _each(topics, unsubscribe)
    # one wait for all topics, where `Outbox.remove_subscription` waits for each
    outbox.wait_until_in_force(*topics)
    # the first call marks a topic and says how long producers' copies live
    left += _each(topics, lambda name: waits.append(outbox.delete_topic(name, wait=False)))
    outbox.tables.calls.clock.sleep(max(waits))
    # the second call, after the wait, deletes
    return left or _each(topics, lambda name: waits.append(outbox.delete_topic(name, wait=False)))


def _each(topics: Iterable[str], call: Callable[[str], None]) -> list[str]:
    left = []
    for name in topics:
        try:
            call(name)
        except FairboxError as error:
            left.append(f"topic {name}: {error}")
    return left
