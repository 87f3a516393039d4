"""Doorbells after a circuit has changed: for the next probe, and for the messages that waited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.dispatch.ports import Doorbell

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    from fairbox.model.topic_states import CircuitEvent, TopicState

KNOWN_MS: Final = 6_000
"""Time after which everybody knows that a circuit is closed, and leaves no message lying for it."""
SECOND_MS: Final = 31_000
"""Time until the second visit, for messages that others left until they knew of the change."""
IN_FLIGHT_MS: Final = 60_000
"""Time before a circuit opened from which messages may have been on their way."""


PROBED_SHARDS: Final = 8
"""Shards that look for the next probe, so that it is not always the one whose message failed."""


def follow_up_bells(
    events: Iterable[CircuitEvent], topics: Mapping[str, TopicState | None], now: int, rng: Random
) -> list[Doorbell]:
    """Return the doorbells that follow changes of circuits at `now` (ms)."""
    bells: list[Doorbell] = []
    for event in events:
        topic = topics.get(event.topic)
        if topic is None:
            continue
        if event.kind in ("opened", "probed"):
            bells += probe_bells(event, topic, rng)
        elif event.kind == "closed":
            bells += waking_bells(topic, event.subscription, event.since, now)
    return bells


def probe_bells(event: CircuitEvent, topic: TopicState, rng: Random) -> list[Doorbell]:
    """Return the doorbells for the next probe, in the order of chance: its first visit sends it.

    They visit the shard of the message that failed, which has one to send, and seven others.
    """
    second = -(-event.until // 1000) * 1000
    failed = (event.ref.epoch, event.ref.shard)
    others = [shard for shard in topic.shards() if shard != failed]
    chosen = [failed, *rng.sample(others, min(PROBED_SHARDS - 1, len(others)))]
    rng.shuffle(chosen)
    alone = topic.topic.ordering != "key"

    return [
        Doorbell(
            event.topic,
            epoch,
            shard,
            not_before=second,
            before=second,
            subscription=event.subscription if alone else "",
            since=max(0, event.since - IN_FLIGHT_MS) if alone else 0,
        )
        for epoch, shard in chosen
    ]


def waking_bells(topic: TopicState, subscription: str, since: int, now: int) -> list[Doorbell]:
    """Return the doorbells for the messages that waited for a subscription: two for each shard.

    The first visit sends the messages that are surely no longer the relay's, the second those added
    until everybody knew. A visit of a shard in which nothing waited costs 1 RRU.

    Args:
        topic: its topic.
        subscription: its name.
        since: when it began to take nothing (ms).
        now: the time (ms).
    """
    name = topic.topic.name
    rings = [(0, now, since), (-(-(now + SECOND_MS) // 1000) * 1000, now + KNOWN_MS, now)]

    # an ordered topic has no visits apart: its doorbells name no subscription
    if topic.topic.ordering == "key":
        return [
            Doorbell(name, epoch, shard, (), not_before, before=before)
            for not_before, before, _ in rings
            for epoch, shard in topic.shards()
        ]

    return [
        Doorbell(
            name,
            epoch,
            shard,
            not_before=not_before,
            before=max(not_before, now),
            subscription=subscription,
            since=max(1, first - IN_FLIGHT_MS),
        )
        for not_before, _, first in rings
        for epoch, shard in topic.shards()
    ]
