"""Return of a crashed consumer's message beside others that are in flight, in virtual time.

A consumer polls all the time. "Late" is the time from the end of the crashed consumer's claim to
the receive of its message, and the read units are those of this time.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from fairbox import Message, Topic
from fairbox.testing import CostMeter, ManualClock, MemoryDynamoDB

from benchmarks.baseline_001 import NAME, TABLE, SeedQueue, definition
from benchmarks.figures import Figure
from benchmarks.queue_timeline import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox import Received

TOPIC: Final = "jobs"
IN_FLIGHT: Final = (20, 300, 1_000, 10_000)
SHARDS: Final = (1, 8)
_BODY: Final = random.Random(7).randbytes(800)
_LONG: Final = 3600.0
_VISIBILITY: Final = 30.0
_AT_A_CALL: Final = 100
_POLL_SECONDS: Final = 20.0
GIVEN_UP_SECONDS: Final = 300.0


def figures(
    *, in_flight: Sequence[int] = IN_FLIGHT, shards: Sequence[int] = SHARDS
) -> tuple[list[Figure], list[str]]:
    """Return how late the message comes and what that reads; and where it does not come at all."""
    found: list[Figure] = []
    faults: list[str] = []
    for held in in_flight:
        seed_late, seed_rru = seed_return(held)
        for count in shards:
            late, rru = message_return(held, shards=count)
            name = f"queue.return.{{}}.{held}_in_flight.{count}_shards"
            found += [
                Figure(name.format("late_seconds"), "s", late, seed_late, NAME),
                Figure(name.format("rru"), "RRU", rru, seed_rru, NAME),
            ]
            if late >= GIVEN_UP_SECONDS:
                faults.append(f"{held} in flight on {count} shards: not within {late:.0f} s")
    return found, faults


def message_return(held: int, *, shards: int) -> tuple[float, float]:
    """Return by how many seconds a message comes late, and the read units of that time."""
    stage = Stage()
    application, queue, clock = stage.application, stage.queue, stage.clock
    application.outbox.create_topic(Topic(TOPIC, shards=shards))
    made = [Message(topic=TOPIC, body=_BODY, id=application.ids.next()) for _ in range(held + 1)]
    for start in range(0, len(made), 25):
        application.queue.send_many(made[start : start + 25])
        clock.advance(0.02)
    clock.advance(1)
    taken = 0
    while taken < held // 2:
        taken += len(application.queue.receive(TOPIC, min(_AT_A_CALL, held // 2 - taken), _LONG))
    crashed: list[Received] = []
    while not crashed:
        crashed = application.queue.receive(TOPIC, 1, _VISIBILITY + held / 100)
    while taken < held:
        taken += len(application.queue.receive(TOPIC, min(_AT_A_CALL, held - taken), _LONG))
    ends = crashed[0].visible_at / 1000
    if clock.now() >= ends:
        raise RuntimeError("the claim ended before the others were made")
    clock.at(ends, stage.reset)
    while clock.now() < ends + GIVEN_UP_SECONDS:
        if queue.receive(TOPIC, 10, _LONG, wait=_POLL_SECONDS):
            break
    return clock.now() - ends, stage.rru


def seed_return(held: int) -> tuple[float, float]:
    """Return the same of source 001's pattern, whose consumer asks once a second."""
    clock = ManualClock()
    meter = CostMeter(MemoryDynamoDB(clock))
    meter.create_table(**definition())
    queue = SeedQueue(meter, clock=clock)
    ends = clock.now() + 60
    for number in range(held + 1):
        crashed = number == held // 2
        moment = datetime.fromtimestamp(ends if crashed else ends + _LONG, UTC)
        times = dict.fromkeys(("created_at", "updated_at", "sent_at"), _sent(clock, number))
        meter.put_item(
            TableName=TABLE,
            Item={
                "id": {"S": f"{number:08d}-0000-4000-8000-000000000000"},
                "data": {"B": _BODY},
                "receive_count": {"N": "1"},
                "queue_type": {"S": "STANDARD"},
                "version": {"N": "2"},
                "invisible_until_at": {"S": moment.isoformat(timespec="microseconds")},
                **{name: {"S": text} for name, text in times.items()},
            },
        )
    clock.set(ends - 0.5)
    queue.receive()
    meter.reset()
    while clock.now() < ends + GIVEN_UP_SECONDS:
        clock.advance(1)
        if queue.receive() is not None:
            break
    return clock.now() - ends, meter.reading().rru


def _sent(clock: ManualClock, number: int) -> str:
    sent = datetime.fromtimestamp(clock.now() + number / 1000, UTC)
    return sent.isoformat(timespec="microseconds")
