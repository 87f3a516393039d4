"""Feeds: skew, spread, delay, and what a message and a frame cost, beside a plain broadcast.

Time is simulated and request units are counted, so that the figures are exact. The broadcast scans
the connections for each message and posts it to each.
"""

from __future__ import annotations

import random
from heapq import heappop, heappush
from math import inf
from typing import Final

from fairbox.aws.feed_sockets import FeedSockets
from fairbox.feeds.frames import POSTS, Posting
from fairbox.testing.application import FEEDS

from benchmarks.feed_audience import POST_SECONDS, Audience, DueClock, Lanes, parsed
from benchmarks.figures import Figure
from benchmarks.latency import percentile

CLIENTS: Final = 250
KEYS: Final = tuple(f"k{number}" for number in range(10))
MESSAGES: Final = 400
EACH_SECONDS: Final = 0.05
UNIT_SECONDS: Final = 1e-4
WRITE_UNITS: Final = 5
DEPTHS: Final = (1, 20, 64)
SKEW_CLIENTS: Final = 100
STUCK: Final = 25
OVERLOAD_RATE: Final = 12.5
_GREEDY: Final = "all of a client at once"
_PLAIN: Final = "plain broadcast"


def figures(*, messages: int = MESSAGES) -> list[Figure]:
    """Return the figures; `messages` of ten topics, twenty a second, for 250 clients."""
    skews = [
        Figure(
            f"feeds.skew_units.{depth}_deep",
            "units of the first rule",
            skew_units(depth),
            (SKEW_CLIENTS - 1) * (3 * depth + WRITE_UNITS),
            _GREEDY,
        )
        for depth in DEPTHS
    ]
    return [*skews, *_beside_broadcast(messages), *_under_load(messages), *_costs()]


def skew_units(depth: int) -> float:
    """Return the units between the first and the last of 100 clients that get a message.

    Three topics have `depth` bundles each. A bundle of a frame takes a unit, and a post five.
    """
    audience = Audience(
        SKEW_CLIENTS,
        KEYS[:3],
        lanes=1,
        seconds=lambda data: (len(parsed(data)["t"]) + WRITE_UNITS) * UNIT_SECONDS,
    )
    for _ in range(depth):
        for key in KEYS[:3]:
            audience.publish(key, *"0123456789abcdef")
    audience.visit()
    return round(audience.spread() / UNIT_SECONDS, 3)


def _beside_broadcast(messages: int) -> list[Figure]:
    audience = Audience(CLIENTS, KEYS)
    audience.publish_each(EACH_SECONDS, messages, KEYS)
    ours, spread = audience.delays(), audience.spread()
    plain, plain_spread = broadcast(messages)
    return [
        _milliseconds("feeds.spread_ms", spread, plain_spread),
        *(
            _milliseconds(
                f"feeds.delay_p{p}_ms", percentile(ours, p / 100), percentile(plain, p / 100)
            )
            for p in (50, 99)
        ),
        Figure(
            "feeds.frames_per_message",
            "frames to 250 clients",
            audience.counts["frames"] / messages,
            CLIENTS,
            _PLAIN,
        ),
    ]


def _milliseconds(name: str, value: float, baseline: float) -> Figure:
    return Figure(name, "ms", value * 1000, baseline * 1000, _PLAIN)


def broadcast(messages: int) -> tuple[list[float], float]:
    """Return the delays and the largest spread of a plain broadcast, one message at a time."""
    rng, delays, spreads, end = random.Random(1), [], [], 0.0
    for number in range(messages):
        published = number * EACH_SECONDS
        lanes = [max(published, end)] * POSTS
        times = []
        for _ in range(CLIENTS):
            times.append(heappop(lanes) + rng.uniform(*POST_SECONDS))
            heappush(lanes, times[-1])
        end = max(times)
        delays += [time - published for time in times]
        spreads.append(end - min(times))
    return sorted(delays), max(spreads)


def _under_load(messages: int) -> list[Figure]:
    stuck = Audience(CLIENTS, KEYS[:1], stuck=STUCK)
    stuck.publish_each(0.25, messages, KEYS[:1])
    delays = stuck.delays()
    late = {p: percentile(delays, p / 100) * 1000 for p in (50, 99)}
    busy = Audience(CLIENTS, KEYS[:1], rate=OVERLOAD_RATE)
    busy.publish_each(1.0, messages, KEYS[:1])
    in_order = messages * (CLIENTS / OVERLOAD_RATE - 1)
    return [
        *(Figure(f"feeds.delay_p{p}_ms.{STUCK}_stuck", "ms", value) for p, value in late.items()),
        Figure("feeds.oldest_s.overload", "s", busy.delays()[-1], in_order, "played in order"),
        Figure("feeds.spread_ms.40_shards", "ms", spread_of_shards(40, 40) * 1000),
    ]


def spread_of_shards(shards: int, frames: int) -> float:
    """Return the most seconds from the first client that gets a frame to the last, over shards.

    They have 5 to 250 clients, and begin within 0.3 s.
    """
    rng = random.Random(1)
    first, last = dict[bytes, float](), dict[bytes, float]()
    texts = [str(number).encode() for number in range(frames)]

    def took(text: bytes, time: float) -> None:
        first[text] = min(first.get(text, time), time)
        last[text] = max(last.get(text, time), time)

    for _ in range(shards):
        lanes = Lanes(DueClock(), rng)
        lanes.clock.advance(rng.uniform(0, 0.3))
        lanes.took = lambda _, text, time: took(text, time)
        posting = Posting(FeedSockets(lanes), lanes.clock, rng, inf, lanes.run)
        clients = map(str, range(rng.randint(5, CLIENTS)))
        posting.send(dict.fromkeys(clients, texts), inf)
    return max(last[text] - first[text] for text in texts)


def _costs() -> list[Figure]:
    audience = Audience(CLIENTS, KEYS)
    audience.publish(KEYS[0], "a process reads the feed each 30 s")
    audience.visit()
    audience.units()
    bodies = [audience.rng.randbytes(100).hex() for _ in range(10)]
    audience.publish(KEYS[0], bodies[0])
    single = audience.units()
    audience.publish(KEYS[0], *bodies)  # files what is there, and that is smaller
    audience.units()
    audience.publish(KEYS[0], *bodies)
    ten = audience.units()
    audience.visit()
    read, written = audience.units()
    audience.app.client.scan(TableName=FEEDS)
    scanned, _ = audience.units()
    return [
        Figure("feeds.wru_per_message", "WRU", single[1]),
        Figure("feeds.rru_per_message", "RRU", single[0], scanned, _PLAIN),
        Figure("feeds.wru_per_message.in_tens", "WRU", ten[1] / 10),
        Figure("feeds.rru_per_message.in_tens", "RRU", ten[0] / 10, scanned, _PLAIN),
        Figure("feeds.wru_per_frame", "WRU", written / CLIENTS),
        Figure("feeds.rru_per_frame", "RRU", read / CLIENTS, scanned / CLIENTS, _PLAIN),
    ]
