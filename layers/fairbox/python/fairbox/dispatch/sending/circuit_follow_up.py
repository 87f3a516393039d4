"""What follows when circuits open and close: doorbells for the next probe, and for what waited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.dispatch.ports import Doorbell
from fairbox.errors import FairboxError
from fairbox.model.clock import milliseconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.dispatch.delivery_report import Report
    from fairbox.dispatch.ports import Doorbells
    from fairbox.dispatch.sending.circuit_breakers import Event, Gate
    from fairbox.model.clock import Clock
    from fairbox.model.topics import TopicState

KNOWN_MS: Final = 6_000
"""After which everybody knows that a circuit is closed, and leaves nothing lying for it."""
SECOND_MS: Final = 31_000
"""When it is rung again, for what others left lying until they knew: no more the relay's."""


def follow_up(
    gate: Gate,
    topics: Mapping[str, TopicState],
    report: Report,
    clock: Clock,
    doorbells: Doorbells,
) -> None:
    """Report what became of circuits, and ring: for the next probes, and for what waited.

    A failure to ring is reported: the sweep looks after a quiet period, ten minutes at most.
    """
    events, errors = gate.drain()
    report.circuits += events
    report.errors += errors
    now = milliseconds(clock)
    rings: list[Doorbell] = []
    for event in events:
        if event.kind in ("opened", "probed"):
            rings.append(probe_bell(event))
        elif event.kind == "closed" and event.topic in topics:
            rings += waking_bells(topics[event.topic], now)
    try:
        if rings:
            doorbells.ring(rings)
    except FairboxError as error:
        report.errors.append(str(error))


def probe_bell(event: Event) -> Doorbell:
    """Return the doorbell for the next probe: a visit of the shard of the message that failed."""
    second = -(-event.until // 1000) * 1000
    ref = event.ref
    return Doorbell(ref.topic, ref.epoch, ref.shard, (), second, before=second)


def waking_bells(topic: TopicState, now: int) -> list[Doorbell]:
    """Return the doorbells for all that waited in a topic: two for each of its shards.

    The first sends what is surely no longer the relay's, the second what was added until everybody
    knew. A visit of a shard in which nothing waited costs 1 RRU.
    """
    name = topic.topic.name
    rings = [(0, now), (-(-(now + SECOND_MS) // 1000) * 1000, now + KNOWN_MS)]
    return [
        Doorbell(name, epoch, shard, (), not_before, before=before)
        for not_before, before in rings
        for epoch, shard in topic.shards()
    ]
