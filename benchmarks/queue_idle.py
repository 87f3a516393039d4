"""Cost of a receiver that waits on an empty topic, and the time from send to receipt.

All is in virtual time: a call takes 5 ms, and one receiver waits with `wait=20` for messages that
come one by one. The relay runs over the table's stream, 0.2 to 1 s behind it; figures that end with
`without_relay` are of a deployment whose relay is of an older release, or none.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Final

from fairbox import Message, Topic

from benchmarks.figures import Figure
from benchmarks.latency import percentile
from benchmarks.queue_timeline import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.topics import Ordering

TOPIC: Final = "jobs"
SHARDS: Final = (1, 8, 64, 300)
_KINDS: Final[tuple[tuple[str, Ordering, bool], ...]] = (
    ("unordered", "none", True),
    ("ordered", "key", True),
    ("unordered.without_relay", "none", False),
    ("ordered.without_relay", "key", False),
)
_BODY: Final = random.Random(7).randbytes(800)
_WAIT: Final = 20.0
_SETTLED_SECONDS: Final = 120.0
_PAUSES: Final = (5.0, 40.0)


def figures(
    *, shards: Sequence[int] = SHARDS, minutes: int = 5, messages: int = 50
) -> tuple[list[Figure], list[str]]:
    """Return idle cost and latency by number of shards; no figure has faults of its own."""
    found: list[Figure] = []
    for name, ordering, relay in _KINDS:
        for count in shards:
            place = f"{count}_shards.{name}"
            rru, calls = idle(count, ordering, minutes=minutes, relay=relay)
            times, empty = latencies(count, ordering, messages=messages, relay=relay)
            found += [
                Figure(f"queue.idle.rru_per_minute.{place}", "RRU", rru),
                Figure(f"queue.idle.calls_per_minute.{place}", "calls", calls),
                Figure(f"queue.wait.p50_ms.{place}", "ms", 1000 * percentile(times, 0.5)),
                Figure(f"queue.wait.p99_ms.{place}", "ms", 1000 * percentile(times, 0.99)),
                Figure(f"queue.wait.empty_beside_a_message.{place}", "receives", empty),
            ]
    return found, []


def idle(
    shards: int, ordering: Ordering, *, minutes: int, relay: bool = True
) -> tuple[float, float]:
    """Return read units and calls a minute of a receiver that finds nothing."""
    stage = _stage(shards, ordering, relay=relay)
    stage.reset()
    began = stage.clock.now()
    while stage.clock.now() < began + 60 * minutes:
        stage.queue.receive(TOPIC, wait=_WAIT)
    past = (stage.clock.now() - began) / 60
    return stage.rru / past, stage.calls / past


def latencies(
    shards: int, ordering: Ordering, *, messages: int, relay: bool = True
) -> tuple[list[float], int]:
    """Return seconds from send to receipt, and empty receives that began after a send."""
    stage = _stage(shards, ordering, relay=relay)
    clock, application = stage.clock, stage.application
    sent: dict[str, float] = {}

    def send(number: int) -> None:
        made = Message(
            topic=TOPIC, body=_BODY, id=application.ids.next(), partition_key=f"k{number}"
        )
        sent[made.id] = clock.now()
        application.queue.send(made)

    at = clock.now()
    for number in range(messages):
        at += stage.rng.uniform(*_PAUSES)
        clock.at(at, partial(send, number))
    times: list[float] = []
    empty = 0
    while len(times) < messages:
        waiting = len(sent) - len(times)
        received = stage.queue.receive(TOPIC, wait=_WAIT)
        times += [clock.now() - sent[one.message.id] for one in received]
        empty += bool(waiting and not received)
        stage.queue.ack([one.receipt for one in received])
    return times, empty


def _stage(shards: int, ordering: Ordering, *, relay: bool) -> Stage:
    """Return a stage whose receiver has waited for some time."""
    stage = Stage()
    if relay:
        stage.relay()
    stage.application.outbox.create_topic(Topic(TOPIC, shards=shards, ordering=ordering))
    began = stage.clock.now()
    while stage.clock.now() < began + _SETTLED_SECONDS:
        stage.queue.receive(TOPIC, wait=_WAIT)
    return stage
