"""Invariants of worlds under load; each breach is a sentence.

The bounds are those of the documents: `tests/guarantees/loaded.py` names the pages.
"""

from __future__ import annotations

from math import inf
from statistics import median
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.sending.rate_limits import BURST_MS, LATE_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox_simulation.load.world import LoadWorld, Subscriber

READY_SECONDS: Final = 180.0
"""Time in which a subscription that is ready gets what it lacks."""
REPAIRED_SECONDS: Final = 7200.0
"""The same where doorbells were lost, hints among them."""
DELAY_SECONDS: Final = 5.0
READS: Final = 2.0
"""RRU for a message that is sent to one subscription."""
BURST_SECONDS: Final = (BURST_MS + LATE_MS) / 1000
"""Seconds whose messages may come at once: those for which a bucket keeps its tokens."""
IDLE_READS: Final = 10.0
"""RRU a minute, whatever waits: sweeps, and copies of topics."""


def late(world: LoadWorld, within: float) -> Iterator[str]:
    """Yield what a subscription got later than it should, or not at all."""
    now = world.clock.now()
    for topic, its in world.subscribers.items():
        for subscriber in its:
            taken = subscriber.destination.taken
            lacking = []
            for message_id, wanted in world.wanted[topic].items():
                at = taken.get(message_id, inf)
                until = subscriber.latest(wanted, within)
                if at > until and (at < inf or now > until):
                    lacking.append((min(at, now) - until, message_id))
            if lacking:
                most, message_id = max(lacking)
                yield (
                    f"late: {len(lacking)} of {topic} for {subscriber.subscription.name}, by "
                    f"{most:.0f} s: {message_id}"
                )


def delayed(world: LoadWorld, delays: dict[str, float]) -> Iterator[str]:
    """Yield delayed messages that came too long after their time, or before it.

    Args:
        world: the world.
        delays: seconds by message id.
    """
    for topic, its in world.subscribers.items():
        for subscriber in its:
            for message_id, at in subscriber.destination.taken.items():
                wanted = world.wanted[topic][message_id]
                ready = subscriber.latest(wanted, DELAY_SECONDS) == wanted + DELAY_SECONDS
                if message_id not in delays or not ready:
                    continue
                if not wanted - 0.001 <= at <= wanted + DELAY_SECONDS + 1:
                    yield (
                        f"delayed too long: {delays[message_id]:.0f} s, {at - wanted:+.1f} s: "
                        f"{topic} {message_id} for {subscriber.subscription.name}"
                    )


def reads(
    world: LoadWorld, minutes: float, most: float = READS, *, before: int = 0, rows: bool = True
) -> Iterator[str]:
    """Yield that functions read too much for what was sent.

    Args:
        world: the world.
        minutes: since its meter was read anew.
        most: RRU a message.
        before: messages that were sent before that.
        rows: whether the rows of shards count, which marking reads once a window.
    """
    reading, sent = world.meter.reading(), world.sent - before
    units = sum(
        c.rru for (call, *_), c in reading.costs.items() if rows or call != "batch_get_item"
    )
    if units > most * sent + IDLE_READS * minutes:
        yield f"too many reads: {units:.0f} RRU for {sent} sent in {minutes:.0f} minutes"


def visits(world: LoadWorld, most: int) -> Iterator[str]:
    """Yield shards with more visits in a second than the documents say."""
    for place, count in world.visits_a_second().items():
        if count > most:
            yield f"too many visits: {count} in a second of {place}"


def held_back(fast: list[float], alone: list[float]) -> Iterator[str]:
    """Yield that a subscription waits for its siblings, by the seconds of messages."""
    beside, usual = median(fast), median(alone)
    if beside > 2 * usual:
        yield f"held back: {beside:.2f} s beside others, {usual:.2f} s alone"


def in_flight(subscriber: Subscriber, *, reached: float = 0.0) -> Iterator[str]:
    """Yield that a limit in flight is not held, or not reached though there was work.

    Args:
        subscriber: with a limit.
        reached: share of the limit that must have been in flight.
    """
    most = subscriber.subscription.max_in_flight
    seen, name = subscriber.destination.most_in_flight, subscriber.subscription.name
    if most is not None and seen > most:
        yield f"over its limit in flight: {name}: {seen} of {most}"
    if most is not None and seen < reached * most:
        yield f"under its limit in flight: {name}: {seen} of {most}"


def paced(subscriber: Subscriber, seconds: float, *, reached: float) -> Iterator[str]:
    """Yield that a rate is not held over ten seconds, or not reached in all.

    Args:
        subscriber: with a rate.
        seconds: for which there was work.
        reached: share of the rate that must have been sent then.
    """
    rate, times = subscriber.subscription.rate, subscriber.destination.times
    if rate is None or not times:
        return
    name = subscriber.subscription.name
    for begin in range(min(times), max(times) + 1):
        sent = sum(times[second] for second in range(begin, begin + 10))
        if sent > (10 + BURST_SECONDS) * rate + 1:
            yield f"over its rate: {name}: {sent} in 10 s at {rate:g} a second"
            break
    if sum(times.values()) < reached * rate * seconds:
        yield f"under its rate: {name}: {sum(times.values())} in {seconds:.0f} s at {rate:g}"
