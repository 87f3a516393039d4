"""Cost of the queue: request units and calls of real code, exact, on a manual clock."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from fairbox import Message, Topic
from fairbox.testing import CostMeter
from fairbox.testing.application import MemoryApplication

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox import Received
    from fairbox.model.topics import Ordering
    from fairbox.testing import Reading

TOPIC: Final = "jobs"
_BODY: Final = random.Random(7).randbytes(800)  # does not compress: an item of nearly 1 KB
_AT_A_CALL: Final = 10
_SENT_AT_ONCE: Final = 50
_IN_FLIGHT: Final = 300
_LONG: Final = 3600.0
_SETTLED_SECONDS: Final = 3.0
_BETWEEN_SECONDS: Final = 0.05


def figures(*, messages: int = 1000, backlogs: Sequence[int] = (1, 1_000, 100_000)) -> list[Figure]:
    """Return the figures of the queue.

    Args:
        messages: number for the cost per message: sent 25 a call, received and acked ten a call.
        backlogs: sizes of the backlogs at which one receive is measured.
    """
    found: list[Figure] = []
    orderings: tuple[tuple[str, Ordering], ...] = (("unordered", "none"), ("ordered", "key"))
    for name, ordering in orderings:
        reading = _Metered(ordering, shards=8).cycles(messages)
        calls = sum(reading.calls.values())
        found += [
            Figure(f"queue.wru_per_message.{name}", "WRU", reading.wru / messages),
            Figure(f"queue.rru_per_message.{name}", "RRU", reading.rru / messages),
            Figure(f"queue.calls_per_message.{name}", "calls", calls / messages),
        ]
        found.append(
            Figure(f"queue.empty_receive_rru.{name}", "RRU", _Metered(ordering, shards=8).empty())
        )
        found += [
            Figure(
                f"queue.receive_rru.backlog_{backlog}.{name}",
                "RRU",
                _Metered(ordering, shards=1).behind(backlog),
            )
            for backlog in backlogs
        ]
    in_flight = _Metered("none", shards=8).in_flight(_IN_FLIGHT)
    return [*found, Figure("queue.receive_rru_300_in_flight", "RRU", in_flight)]


class _Metered:
    """An application with one pulled topic, its calls metered."""

    def __init__(self, ordering: Ordering, *, shards: int) -> None:
        self._app = MemoryApplication(wrap=CostMeter)
        self._meter: CostMeter = self._app.client
        self._queue = self._app.queue
        self._app.outbox.create_topic(Topic(TOPIC, shards=shards, ordering=ordering))
        self._queue.receive(TOPIC)  # the topic is known, and its shards were looked at

    def _send(self, count: int) -> None:
        made = [_message(self._app.ids.next()) for _ in range(count)]
        for start in range(0, count, 25):
            self._queue.send_many(made[start : start + 25])

    def _receive(self, timeout: float = 30) -> list[Received]:
        return self._queue.receive(TOPIC, _AT_A_CALL, timeout)

    def cycles(self, messages: int) -> Reading:
        """Return the cost of messages: sent 25 a call, received and acknowledged ten a call."""
        self._send(500)  # there is always something to receive
        self._app.clock.advance(_SETTLED_SECONDS)
        self._receive()
        self._meter.reset()
        done = 0
        while done < messages:
            if done % _SENT_AT_ONCE == 0:
                self._send(_SENT_AT_ONCE)
            self._app.clock.advance(_BETWEEN_SECONDS)
            received = self._receive()
            self._queue.ack(r.receipt for r in received)
            done += len(received)
        return self._meter.reading()

    def empty(self) -> float:
        """Return the reads of a receive from an empty topic."""
        self._receive()
        self._meter.reset()
        self._receive()
        return self._meter.reading().rru

    def behind(self, backlog: int) -> float:
        """Return the reads of a receive that takes the first of so many messages."""
        self._send(backlog)
        self._app.clock.advance(_SETTLED_SECONDS)
        self._meter.reset()
        if not self._receive():
            raise AssertionError("there was something to receive")
        return self._meter.reading().rru

    def in_flight(self, count: int) -> float:
        """Return the reads until receives find the one message beside so many claimed ones."""
        self._send(count)
        self._app.clock.advance(_SETTLED_SECONDS)
        held = 0
        while held < count:
            held += len(self._receive(_LONG))
        self._send(1)
        self._app.clock.advance(1)
        self._meter.reset()
        most, before = 0.0, 0.0
        found: list[Received] = []
        while not found:
            found = self._receive(_LONG)
            read = self._meter.reading().rru
            most, before = max(most, read - before), read
        return most


def _message(message_id: str) -> Message:
    return Message(topic=TOPIC, body=_BODY, id=message_id)
