"""Messages that carry a batch item: what leaves as delivered acks it, and nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from fairbox import NotConfigured, Unavailable
from fairbox.aws.sqs_queues import SqsAcks
from fairbox.batches.ack_messages import pack, parse
from fairbox.dispatch.ports import TAKEN
from fairbox.dispatch.stream.marking import Marking

from tests.support.application import REFUSED, THROTTLED, App
from tests.support.dead_letters import opened

if TYPE_CHECKING:
    from collections.abc import Sequence


def queued(app: App) -> list[str]:
    """Read everything that was relayed and visited so far, and return what waits to be acked."""
    while app.relay() or app.mark() or app.visit():
        pass
    return [item for body in app.acks.bodies for item in parse(body)]


def test_a_delivered_message_acks_its_item_and_the_last_one_completes_the_batch() -> None:
    app = App("a", "b")
    batch, items = opened(app, 30)
    for item in items:
        app.add(batch_item=item)
    app.run()
    assert app.batches.progress(batch).complete
    assert app.batches.progress(batch).acked == 30
    app.run()
    completed = list(app.outbox.outstanding("fairbox.batches.completed"))
    assert [m.partition_key for m in completed] == [batch]


def test_an_item_waits_for_every_subscription_of_its_message() -> None:
    app = App("a", "b")
    _, (item,) = opened(app)
    app.at("b").answer = lambda _: THROTTLED
    app.add(batch_item=item)
    assert queued(app) == []
    app.at("b").answer = lambda _: TAKEN
    app.clock.advance(100)
    app.sweep()
    assert queued(app) == [item]


def test_a_message_that_the_caller_marks_as_delivered_acks_its_item() -> None:
    app = App()
    _, (item,) = opened(app)
    app.outbox.mark_delivered(app.add(batch_item=item))
    assert queued(app) == [item]


def test_neither_a_death_nor_a_delivery_to_the_rest_acks_an_item() -> None:
    app = App("a", "b")
    _, items = opened(app, 2)
    app.at("a").answer = lambda _: REFUSED
    for item in items:
        app.add(batch_item=item)
    app.at("b").answer = lambda m: REFUSED if m.message.batch_item == items[0] else TAKEN
    for _ in range(30):
        assert queued(app) == []
        app.clock.advance(20)
        app.sweep()
    assert app.lying() == []
    assert len(app.dead()) == 2


def test_what_is_cancelled_or_purged_acks_nothing() -> None:
    app = App("a", "b")
    app.at("b").answer = lambda _: REFUSED
    _, items = opened(app, 2)
    (cancelled,) = app.add(batch_item=items[0])
    app.add(batch_item=items[1])
    assert queued(app) == []
    app.outbox.cancel([cancelled])
    app.outbox.remove_subscription("orders", "b")
    app.clock.advance(70)
    app.sweep()
    assert queued(app) == []
    assert app.lying() == []
    assert len(app.events("cancelled")) == len(app.events("purged")) == 1


def test_an_item_that_several_messages_carry_is_put_into_the_queue_once_an_invocation() -> None:
    app = App("a")
    _, (item,) = opened(app)
    app.add(5, batch_item=item)
    assert queued(app) == [item]
    assert app.acks.calls == 1


def test_messages_without_an_item_cost_the_queue_no_call_and_the_tables_no_unit_more() -> None:
    costs = []
    for carried in (False, True):
        app = App("a")
        _, items = opened(app, 20)
        for item in items:
            app.add(batch_item=item if carried else None)
        app.relay()
        app.meter.reset()
        app.mark()
        reading = app.meter.reading()
        costs.append((dict(reading.calls), reading.wru, reading.rru))
        assert app.acks.calls == int(carried)
    assert costs[0] == costs[1]


class Broken:
    """An ack queue that refuses its first calls."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.bodies: list[str] = []

    def put(self, bodies: Sequence[str]) -> None:
        if self.failures:
            self.failures -= 1
            raise Unavailable("send_message_batch", "no")
        self.bodies += bodies


def test_when_the_queue_fails_all_the_records_come_again() -> None:
    app = App("a")
    _, (item,) = opened(app)
    app.add(batch_item=item)
    app.relay()
    queue = Broken(1)
    marking = Marking(app.tables_of(app.clock), app.archive, app.clock, queue)
    with pytest.raises(Unavailable):
        marking.handle(app.records())
    report = marking.handle(app.records())
    assert (report.acks, [parse(b) for b in queue.bodies]) == (1, [[item]])
    assert len(app.events("delivered")) == 1


def test_without_a_queue_a_delivered_item_is_refused_by_the_settings_name() -> None:
    app = App("a")
    _, (item,) = opened(app)
    marking = Marking(app.tables_of(app.clock), app.archive, app.clock)
    app.add()
    app.relay()
    assert marking.handle(app.records()).acks == 0
    app.add(batch_item=item)
    app.relay()
    with pytest.raises(NotConfigured) as caught:
        marking.handle(app.records())
    assert caught.value.setting == "FAIRBOX_ACK_QUEUE_URL"


class Sqs:
    """SQS as far as acks see it; the positions named fail once, then calls raise so often."""

    def __init__(self, failing: Sequence[int] = (), raising: int = 0) -> None:
        self.failing = list(failing)
        self.raising = raising
        self.sent: list[str] = []
        self.calls: list[int] = []

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - the SDK's
        assert QueueUrl == "acks"
        self.calls.append(len(Entries))
        if self.raising:
            self.raising -= 1
            raise ClientError({"Error": {"Code": "ServiceUnavailable"}}, "SendMessageBatch")
        failed, self.failing = self.failing, []
        self.sent += [e["MessageBody"] for n, e in enumerate(Entries) if n not in failed]
        return {"Failed": [{"Id": Entries[n]["Id"]} for n in failed]}


def test_acks_go_ten_messages_a_call_and_refused_ones_again() -> None:
    sqs = Sqs(failing=[3, 7], raising=1)
    items = [f"0198f7a2-7d7e-7abc-8def-0123456789ab:{n}:{n % 7168}" for n in range(16_000)]
    bodies = pack(items)
    assert len(bodies) > 10
    SqsAcks(sqs, "acks").put(bodies)
    assert sqs.calls == [10, 10, 2, len(bodies) - 10]
    assert sorted(sqs.sent) == sorted(bodies)
    assert all(len(body) <= 64 * 1024 for body in bodies)


def test_acks_that_are_refused_to_the_last_try_are_reported() -> None:
    with pytest.raises(Unavailable):
        SqsAcks(Sqs(raising=3), "acks").put(pack(["x"]))
