"""A consumer's counts as metrics: what happened since the last line, by topic and partition."""

from __future__ import annotations

import io
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Dead, Message, PartitionedQueue, Retry, Throttled, Topic
from fairbox.consumer import consumer as consumer_module
from fairbox.consumer.consumer import Consumer
from fairbox.consumer.counts import ConsumerMetrics, Counts
from fairbox.observability.metrics import Metrics
from fairbox.testing import ManualClock
from fairbox.testing.application import MemoryApplication

from tests.support.scripted_queue import ScriptedQueue

if TYPE_CHECKING:
    from fairbox.model.topic_states import TopicState

PATIENCE = 60.0
NAMES = ("Received", "Acked", "GivenBack", "Dead", "LostReceipts")


class Lines(io.StringIO):
    """Standard output as CloudWatch reads it."""

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]

    def figures(self, **dimensions: str) -> list[tuple[float, ...]]:
        """Return the figures of the lines with exactly these dimensions."""
        found = []
        for line in self.lines():
            (written,) = line["_aws"]["CloudWatchMetrics"]
            if ["service", *dimensions] in written["Dimensions"] and all(
                line[name] == value for name, value in dimensions.items()
            ):
                found.append(tuple(line[name] for name in NAMES))
        return found


def handler(received: Any) -> None:
    body = received.message.body
    if body == b"dead":
        raise Dead("no use")
    if body == b"again":
        raise Retry(3600)
    if body == b"fails":
        raise ValueError("no luck")


@pytest.fixture
def app() -> MemoryApplication:
    return MemoryApplication()


@pytest.fixture
def out() -> Lines:
    return Lines()


def test_what_became_of_messages_is_written_by_topic_and_in_all(
    app: MemoryApplication, out: Lines
) -> None:
    app.outbox.create_topic(Topic("jobs", shards=1))
    bodies = (b"", b"", b"dead", b"again", b"fails")
    app.queue.send_many(Message(topic="jobs", body=b, id=app.ids.next()) for b in bodies)
    metrics = Metrics(app.clock, out)
    Consumer(app.queue, "jobs", handler, metrics=metrics).run_until_empty(limit=5)
    assert out.figures(topic="jobs") == [(5, 2, 2, 1, 0)]
    assert out.figures() == [(5, 2, 2, 1, 0)]
    assert not any("queue" in line for line in out.lines())


def test_the_logical_name_and_the_partition_come_from_the_registration(
    app: MemoryApplication, out: Lines
) -> None:
    emails = PartitionedQueue("email", 2)
    emails.create(app.outbox, shards=1)
    app.queue.send(Message(topic="email__p1", body=b"", id=app.ids.next()))
    Consumer(app.queue, "email__p1", handler, metrics=Metrics(app.clock, out)).run_until_empty()
    assert out.figures(queue="email", partition="1") == [(1, 1, 0, 0, 0)]
    assert out.figures(topic="email__p1") == [(1, 1, 0, 0, 0)]
    assert out.figures() == [(1, 1, 0, 0, 0)]


class Unreadable(ScriptedQueue):
    """A queue whose topics cannot be read."""

    def topic(self, name: str) -> TopicState:
        raise Throttled("GetItem")


def measuring(queue: ScriptedQueue, counts: Counts, out: Lines) -> ConsumerMetrics:
    return ConsumerMetrics(queue, "jobs", counts, Metrics(ManualClock(), out))


def test_each_line_tells_what_happened_since_the_last(out: Lines) -> None:
    counts = Counts()
    measured = measuring(ScriptedQueue(lambda: 0.0), counts, out)
    measured.write()
    counts.add("received", 3)
    counts.add("acked", 2)
    measured.write()
    counts.add("lost")
    counts.add("released")
    measured.write()
    measured.write()
    assert out.figures(topic="jobs") == [(3, 2, 0, 0, 0), (0, 0, 1, 0, 1)]


def test_nothing_is_lost_when_the_registration_cannot_be_read_for_a_while(out: Lines) -> None:
    counts = Counts()
    measured = measuring(Unreadable(lambda: 0.0), counts, out)
    counts.add("received")
    measured.write()
    assert out.lines() == []
    counts.add("acked")
    measured.write(last=True)
    assert out.figures(topic="jobs") == [(1, 1, 0, 0, 0)]


def test_a_consumer_that_runs_writes_now_and_then_and_at_its_end(
    out: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "PROGRESS_SECONDS", 0.01)
    queue = ScriptedQueue(time.monotonic)
    consumer = Consumer(queue, "jobs", handler, metrics=Metrics(out=out))
    runs = threading.Thread(target=consumer.run, daemon=True)
    runs.start()
    queue.send(b"", b"")
    deadline = time.monotonic() + PATIENCE
    while sum(acked for _, acked, *_ in out.figures(topic="jobs")) < 2:
        assert time.monotonic() < deadline, "it never wrote"
        time.sleep(0.005)
    monkeypatch.setattr(consumer_module, "PROGRESS_SECONDS", PATIENCE)
    queue.send(b"dead")
    while not queue.dead:
        assert time.monotonic() < deadline, "it was never buried"
        time.sleep(0.005)
    consumer.stop()
    runs.join(PATIENCE)
    figures = out.figures(topic="jobs")
    assert [sum(column) for column in zip(*figures, strict=True)] == [3, 2, 0, 1, 0]


def test_a_consumer_that_got_no_metrics_writes_nothing(
    app: MemoryApplication, capsys: pytest.CaptureFixture[str]
) -> None:
    app.outbox.create_topic(Topic("jobs", shards=1))
    app.queue.send(Message(topic="jobs", body=b"", id=app.ids.next()))
    assert Consumer(app.queue, "jobs", handler).run_until_empty().acked == 1
    assert capsys.readouterr().out == ""
