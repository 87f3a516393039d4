"""Fair dispatch: shares of bytes, gaps against their bound, cost of planning.

No destination is called: the decisions of the core are counted or timed.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.fair import QUANTUM, Cycles, Pending, Work
from fairbox.dispatch.ports import Limits

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KB: Final = 1024
SQS: Final = Limits(10, 1024 * KB)
SEED: Final = 7
TOPICS: Final = 40
WEIGHTS: Final = (0.5, 1.0, 2.0, 3.0, 5.0)
MEGABYTES_A_WEIGHT: Final = 32
IDLE: Final = (10, 1_000, 100_000)
_BY_COUNT: Final = "one message of each topic in turn"


@dataclass(frozen=True, slots=True)
class Stream:
    """A topic that never runs out: the bytes of its messages, which repeat, and its weight."""

    name: str
    sizes: tuple[int, ...]
    weight: float


def figures() -> list[Figure]:
    """Return the figures of shares and planning."""
    return [*shares(), *planning()]


def streams(rng: random.Random) -> list[Stream]:
    """Return topics of messages of 1 to 256 KiB, each topic's around a size of its own."""
    made = []
    for number in range(TOPICS):
        typical = round(2 ** rng.uniform(0, 8) * KB)
        sizes = [rng.randint(max(KB, typical // 2), min(256 * KB, typical * 2)) for _ in range(50)]
        made.append(Stream(f"t{number}", tuple(sizes), rng.choice(WEIGHTS)))
    return made


def shares() -> list[Figure]:
    """Return Jain's index over bytes by weight, and the largest gap against its bound."""
    those = streams(random.Random(SEED))
    bytes_ = round(MEGABYTES_A_WEIGHT * 1024 * KB * sum(s.weight for s in those))
    sent, gaps = _tally(_saturated(those, bytes_))
    by_weight = [sent[s.name] / s.weight for s in those]
    counted, _ = _tally(_by_count(those, bytes_))
    turned = [counted[s.name] / s.weight for s in those]
    worst = max(those, key=lambda s: gaps[s.name] / gap_bound(s, those))
    return [
        Figure("fairness.jain", "index over bytes", jain(by_weight), jain(turned), _BY_COUNT),
        Figure(
            "fairness.largest_gap",
            "MB of other topics",
            gaps[worst.name] / 1e6,
            gap_bound(worst, those) / 1e6,
            "its bound",
        ),
    ]


def jain(values: Sequence[float]) -> float:
    """Return Jain's index: 1 where all are equal, 1/n where one has everything."""
    return sum(values) ** 2 / (len(values) * sum(v * v for v in values))


def gap_bound(of: Stream, those: Sequence[Stream]) -> float:
    """Return the most bytes of others between two messages of a topic (explanation of fairness)."""
    rounds = -(-max(of.sizes) // (QUANTUM * of.weight)) + 1
    return sum(max(s.sizes) + rounds * QUANTUM * s.weight for s in those if s != of)


def _saturated(those: Sequence[Stream], bytes_: int) -> Iterator[tuple[str, int]]:
    """Yield topic and bytes of each message in order; every topic always has two calls' worth."""
    pending: Pending[tuple[str, int]] = Pending()
    added: dict[str, int] = defaultdict(int)

    def add(stream: Stream) -> None:
        size = stream.sizes[added[stream.name] % len(stream.sizes)]
        added[stream.name] += 1
        pending.add(Work((stream.name, size), stream.name, size=size, weight=stream.weight))

    by_name = {s.name: s for s in those}
    for stream in those:
        for _ in range(2 * SQS.messages):
            add(stream)
    sent = 0
    while sent < bytes_:
        for name, size in pending.next_call(SQS):
            sent += size
            yield name, size
            add(by_name[name])


def _by_count(those: Sequence[Stream], bytes_: int) -> Iterator[tuple[str, int]]:
    sent = number = 0
    while sent < bytes_:
        for stream in those:
            size = stream.sizes[number % len(stream.sizes)]
            sent += size
            yield stream.name, size
        number += 1


def _tally(sent: Iterator[tuple[str, int]]) -> tuple[dict[str, int], dict[str, int]]:
    """Return by topic the bytes sent, and the most bytes of others between two messages."""
    total = 0
    sums: dict[str, int] = defaultdict(int)
    gaps: dict[str, int] = defaultdict(int)
    last: dict[str, int] = {}
    for name, size in sent:
        gaps[name] = max(gaps[name], total - last.get(name, 0))
        total += size
        sums[name] += size
        last[name] = total
    return sums, gaps


def planning() -> list[Figure]:
    """Return the planning time per message and per active pair of topic and destination."""
    by_message = {idle: _microseconds_a_message(idle) for idle in IDLE}
    by_pair = {idle: _microseconds_a_pair(idle) for idle in IDLE}
    few = f"{IDLE[0]} idle topics"
    return [
        Figure(f"fairness.planning.{what}.{idle}_idle", "us", found[idle], found[IDLE[0]], few)
        for what, found in (("message", by_message), ("active_pair", by_pair))
        for idle in IDLE
    ]


def _microseconds_a_message(idle: int, active: int = 100, count: int = 20_000) -> float:
    """Time a destination's calls beside topics that had work and have none now."""
    pending: Pending[int] = Pending()
    for number in range(idle):
        pending.add(Work(number, f"idle-{number}", size=KB))
    while len(pending):
        pending.next_call(SQS)

    def drain() -> float:
        began = time.process_time()
        for number in range(count):
            pending.add(Work(number, f"t{number % active}", size=KB))
        while len(pending):
            pending.next_call(SQS)
        return (time.process_time() - began) / count * 1e6

    return min(drain() for _ in range(5))


def _microseconds_a_pair(idle: int, destinations: int = 20, topics: int = 50) -> float:
    """Time cycles over active pairs beside destinations that have nothing to do."""
    cycles: Cycles[str, int] = Cycles(limits=lambda _: SQS, fill=False)
    for number in range(idle):
        cycles.add(f"idle-{number}", Work(0, "t", size=KB))
    for destination, _ in cycles.cycle():
        cycles.answered(destination)

    def run() -> float:
        pairs = 0
        for number in range(destinations):
            for topic in range(topics):
                cycles.add(f"d{number}", Work(0, f"t{topic}", size=KB))
        began = time.process_time()
        while len(cycles):
            for destination, call in cycles.cycle():
                pairs += len(call)
                cycles.answered(destination)
        return (time.process_time() - began) / pairs * 1e6

    return min(run() for _ in range(5))
