"""What the queue costs: request units and calls of real code, exact, on a manual clock."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, Outbox, Queue, Topic
from fairbox.clock import SystemClock
from fairbox.testing import CostMeter
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox import Received
    from fairbox.testing import Reading
    from fairbox.topics import Ordering

TOPIC: Final = "jobs"
_BODY: Final = random.Random(7).randbytes(800)  # does not compress: an item of nearly 1 KB
_AT_A_CALL: Final = 10
_SENT_AT_ONCE: Final = 50
_IN_FLIGHT: Final = 300
_LONG: Final = 3600.0
_SETTLED_SECONDS: Final = 3.0
_BETWEEN_SECONDS: Final = 0.05


def figures(
    *,
    messages: int = 1000,
    backlogs: Sequence[int] = (1, 1_000, 100_000),
    consumers: int = 16,
    contended: int = 4000,
) -> list[Figure]:
    """Return the figures of the queue.

    Args:
        messages: for the costs of one: sent 25 a call, received and acknowledged ten a call.
        backlogs: how many messages wait where one receive is measured.
        consumers: at once, where the share of claims lost to others is measured.
        contended: messages that they share.
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
    found.append(Figure("queue.receive_rru_300_in_flight", "RRU", in_flight))
    lost = Contention(consumers, contended).share()
    found.append(Figure(f"queue.claims_lost_share.{consumers}_consumers", "ratio", lost))
    return found


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
        """What messages cost: sent 25 a call, received and acknowledged ten a call."""
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
        """What a receive reads where there is nothing, between two looks."""
        self._receive()
        self._meter.reset()
        self._receive()
        return self._meter.reading().rru

    def behind(self, backlog: int) -> float:
        """What a receive reads that takes the first of so many messages."""
        self._send(backlog)
        self._app.clock.advance(_SETTLED_SECONDS)
        self._meter.reset()
        if not self._receive():
            raise AssertionError("there was something to receive")
        return self._meter.reading().rru

    def in_flight(self, count: int) -> float:
        """What receives read until they find the one message beside so many that are held."""
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


class Contention:
    """Consumers that race for one topic's messages, in threads over the engine in memory."""

    def __init__(self, consumers: int, messages: int) -> None:
        self._app = MemoryApplication()
        self._consumers = consumers
        self._messages = messages
        self._lock = threading.Lock()
        self._tried = self._lost = self._done = 0
        self._app.outbox.create_topic(Topic(TOPIC, shards=8))
        self._app.queue.send_many(_message(self._app.ids.next()) for _ in range(messages))

    def share(self) -> float:
        """Return the share of claims that were lost to another consumer."""
        threads = [threading.Thread(target=self._consume) for _ in range(self._consumers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._done != self._messages:
            raise AssertionError(f"{self._done} of {self._messages} were acknowledged")
        return self._lost / self._tried

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app.engine, name)

    def batch_execute_statement(self, **request: Any) -> Any:
        """Make the call, and count the claims in it."""
        answer = self._app.engine.batch_execute_statement(**request)
        claims = [
            "Error" in part
            for entry, part in zip(request["Statements"], answer["Responses"], strict=True)
            if entry["Statement"].startswith("UPDATE") and not _of_hint(entry["Parameters"])
        ]
        with self._lock:
            self._tried += len(claims)
            self._lost += sum(claims)
        return answer

    def _consume(self) -> None:
        outbox = Outbox(self, table=OUTBOX, deliveries_table=DELIVERIES, clock=SystemClock())
        queue = Queue.over(outbox)
        while self._done < self._messages:
            received = queue.receive(TOPIC, _AT_A_CALL, _LONG)
            queue.ack(r.receipt for r in received)
            with self._lock:
                self._done += len(received)


def _of_hint(parameters: Sequence[dict[str, Any]]) -> bool:
    return any(value.get("S", "").startswith("hint#") for value in parameters)


def _message(message_id: str) -> Message:
    return Message(topic=TOPIC, body=_BODY, id=message_id)
