"""Doorbells after a circuit has changed: for the next probe, and for the messages that waited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.dispatch.ports import Doorbell

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairbox.model.subscription_status import CircuitEvent
    from fairbox.model.topics import TopicState

KNOWN_MS: Final = 6_000
"""Time after which everybody knows that a circuit is closed, and leaves no message lying for it."""
SECOND_MS: Final = 31_000
"""Time until the second visit, for messages that others left until they knew of the change."""


def follow_up_bells(
    events: Iterable[CircuitEvent], topics: Mapping[str, TopicState | None], now: int
) -> list[Doorbell]:
    """Return the doorbells that follow changes of circuits at `now` (ms)."""
    bells: list[Doorbell] = []
    for event in events:
        if event.kind in ("opened", "probed"):
            bells.append(probe_bell(event))
        elif event.kind == "closed" and (topic := topics.get(event.topic)) is not None:
            bells += waking_bells(topic, now)
    return bells


def probe_bell(event: CircuitEvent) -> Doorbell:
    """Return the doorbell for the next probe: a visit of the shard of the message that failed."""
    second = -(-event.until // 1000) * 1000
    ref = event.ref
    return Doorbell(ref.topic, ref.epoch, ref.shard, (), second, before=second)


def waking_bells(topic: TopicState, now: int) -> list[Doorbell]:
    """Return the doorbells for all messages that waited in a topic: two for each of its shards.

    The first visit sends the messages that are surely no longer the relay's, the second those added
    until everybody knew. A visit of a shard in which nothing waited costs 1 RRU.
    """
    name = topic.topic.name
    rings = [(0, now), (-(-(now + SECOND_MS) // 1000) * 1000, now + KNOWN_MS)]
    return [
        Doorbell(name, epoch, shard, (), not_before, before=before)
        for not_before, before in rings
        for epoch, shard in topic.shards()
    ]
