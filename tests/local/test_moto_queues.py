"""Queues in moto's place: nothing lost or given twice at once, delays, order, repeated ids."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from moto.sqs import models

from local.engines import moto_queues

if TYPE_CHECKING:
    from collections.abc import Iterator

FIFO: dict[str, Any] = {"FifoQueue": "true", "VisibilityTimeout": "30"}


class Clock:
    """Milliseconds that a test moves on."""

    def __init__(self) -> None:
        self.now = time.time() * 1000

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch, local_queues: None) -> Iterator[models.SQSBackend]:
    backend = models.SQSBackend("us-east-1", "123456789012")
    monkeypatch.setitem(models.sqs_backends["123456789012"], "us-east-1", backend)
    yield backend
    backend.queues.clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(moto_queues, "_now", made)
    monkeypatch.setattr(models, "unix_time_millis", made)
    return made


def send(sqs: models.SQSBackend, queue: str, body: str, **more: Any) -> None:
    sqs.send_message(queue, body, **more)


def receive(sqs: models.SQSBackend, queue: str, count: int = 10, hide: int = 30) -> list[Any]:
    return sqs.receive_message(queue, count, 0, hide)


def bodies(messages: list[Any]) -> list[str]:
    return [message.body for message in messages]


def test_nothing_is_lost_or_given_twice_under_concurrency(sqs: models.SQSBackend) -> None:
    sqs.create_queue("q")
    expected = {f"{sender}-{number}" for sender in range(4) for number in range(250)}

    def work(sender: int) -> list[str]:
        seen: list[str] = []
        for number in range(250):
            send(sqs, "q", f"{sender}-{number}")
            for message in receive(sqs, "q", count=2):
                seen.append(message.body)
                sqs.delete_message("q", str(message.receipt_handle))
        return seen

    with ThreadPoolExecutor(4) as pool:
        seen = [body for found in pool.map(work, range(4)) for body in found]
    seen += bodies(receive(sqs, "q", count=1_000))
    assert len(seen) == len(expected)
    assert set(seen) == expected


def test_a_delayed_message_waits(sqs: models.SQSBackend, clock: Clock) -> None:
    sqs.create_queue("q")
    send(sqs, "q", "later", delay_seconds=5)
    queue = sqs.get_queue("q")
    assert receive(sqs, "q") == []
    assert queue.approximate_number_of_messages_delayed == 1
    clock.now += 5_000
    assert queue.approximate_number_of_messages == 1
    assert bodies(receive(sqs, "q")) == ["later"]
    assert queue.approximate_number_of_messages_not_visible == 1


def test_a_group_is_given_in_order_and_to_one_receiver_at_a_time(
    sqs: models.SQSBackend, clock: Clock
) -> None:
    sqs.create_queue("q.fifo", **FIFO)
    for number in range(4):
        for group in ("a", "b"):
            body = f"{group}{number}"
            send(sqs, "q.fifo", body, group_id=group, deduplication_id=body)
    first = receive(sqs, "q.fifo", count=2)
    assert bodies(first) == ["a0", "a1"]
    assert bodies(receive(sqs, "q.fifo")) == ["b0", "b1", "b2", "b3"]
    assert receive(sqs, "q.fifo") == []
    sqs.delete_message("q.fifo", str(first[0].receipt_handle))
    assert receive(sqs, "q.fifo") == []
    clock.now += 30_000
    assert bodies(receive(sqs, "q.fifo", count=3)) == ["a1", "a2", "a3"]


def test_a_repeated_deduplication_id_is_dropped_for_five_minutes(
    sqs: models.SQSBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = 1000.0  # of the machine's own, 300 s later is sometimes a bit less
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    sqs.create_queue("q.fifo", **FIFO)
    send(sqs, "q.fifo", "a", group_id="g", deduplication_id="x")
    (message,) = receive(sqs, "q.fifo")
    sqs.delete_message("q.fifo", str(message.receipt_handle))
    send(sqs, "q.fifo", "again", group_id="g", deduplication_id="x")
    assert receive(sqs, "q.fifo") == []
    moment += 300
    send(sqs, "q.fifo", "afterwards", group_id="g", deduplication_id="x")
    assert bodies(receive(sqs, "q.fifo")) == ["afterwards"]


def test_receiving_from_a_full_queue_touches_few_messages(sqs: models.SQSBackend) -> None:
    sqs.create_queue("q")
    for number in range(2_000):
        send(sqs, "q", str(number))
    queue = sqs.get_queue("q")
    assert bodies(receive(sqs, "q", count=3)) == ["0", "1", "2"]
    assert isinstance(queue, moto_queues.LocalQueue)
    assert len(queue._due) == 2_000
    assert queue.approximate_number_of_messages == 1_997
