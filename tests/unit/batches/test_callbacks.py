"""Callbacks of single batches: one message each, in the transaction that ends the batch."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from fairbox import InvalidInput, Message, Queue, Topic
from fairbox.errors import UnknownTopic
from fairbox.tables.batch_values import COMPLETED_TOPIC
from fairbox.testing import Fault, FaultyDynamoDB
from fairbox.testing.application import BATCHES, MemoryApplication

HOUR = 3600


@pytest.fixture
def app() -> MemoryApplication:
    app = MemoryApplication()
    for name in ("complete", "success", "cancel", "death"):
        app.outbox.create_topic(Topic(name))
    return app


def told(app: MemoryApplication, topic: str) -> list[Any]:
    try:
        return [json.loads(m.body) for m in app.outbox.outstanding(topic)]
    except UnknownTopic:
        return []


def opened(app: MemoryApplication, count: int = 2, **fields: Any) -> str:
    batch = app.batches.open(on_complete="complete", on_success="success", **fields).id
    app.batches.add(batch, count, request_id="r")
    app.batches.seal(batch)
    return batch


def clean(app: MemoryApplication) -> Any:
    return app.keeper.cleanup.clean(deadline=app.deadline, open_hours=168, sealed_hours=336)


def test_a_batch_without_failures_tells_both_callbacks_once(app: MemoryApplication) -> None:
    batch = opened(app, metadata={"run": 7})
    items = [f"{batch}:0:{n}" for n in range(2)]
    assert app.batches.ack(items).completed == (batch,)
    app.batches.ack(items)
    app.cascade()
    (everybody,) = told(app, COMPLETED_TOPIC)
    for topic, callback in (("complete", "complete"), ("success", "success")):
        (message,) = told(app, topic)
        assert message == everybody | {"callback": callback}
        assert (message["id"], message["failed"], message["metadata"]) == (batch, 0, {"run": 7})


def test_a_batch_of_nothing_is_a_success(app: MemoryApplication) -> None:
    batch = app.batches.open(on_success="success").id
    assert app.batches.seal(batch).complete
    assert [m["id"] for m in told(app, "success")] == [batch]


def test_a_batch_with_failures_waits_for_retries_and_succeeds(app: MemoryApplication) -> None:
    batch = opened(app)
    app.batches.fail([f"{batch}:0:0"], "no")
    app.batches.ack([f"{batch}:0:1"])
    progress = app.batches.progress(batch)
    assert (progress.state, progress.pending, progress.failed) == ("sealed", 0, 1)
    assert told(app, COMPLETED_TOPIC) == []
    app.clock.advance(23 * HOUR)
    assert clean(app).reaped == []
    app.batches.retry([f"{batch}:0:0"])
    assert app.batches.ack([f"{batch}:0:0"]).completed == (batch,)
    assert [len(told(app, t)) for t in (COMPLETED_TOPIC, "complete", "success")] == [1, 1, 1]


def test_a_batch_that_nobody_retries_completes_when_the_time_has_come(
    app: MemoryApplication,
) -> None:
    batch = opened(app, retry_hours=3)
    app.batches.fail([f"{batch}:0:0", f"{batch}:0:1"])
    app.clock.advance(2 * HOUR)
    assert clean(app).looked == 0
    app.clock.advance(1 * HOUR)
    for _ in range(2):
        clean(app)
        app.cascade()
    assert app.batches.progress(batch).complete
    assert [len(told(app, t)) for t in (COMPLETED_TOPIC, "complete", "success")] == [1, 1, 0]


def test_a_retry_lets_the_time_begin_anew(app: MemoryApplication) -> None:
    batch = opened(app, retry_hours=3)
    app.batches.fail([f"{batch}:0:0", f"{batch}:0:1"])
    app.clock.advance(2 * HOUR)
    app.batches.retry([f"{batch}:0:0"])
    app.clock.advance(30 * HOUR)
    clean(app)
    assert app.batches.progress(batch).state == "sealed"
    app.batches.fail([f"{batch}:0:0"])
    app.clock.advance(2 * HOUR)
    clean(app)
    assert app.batches.progress(batch).state == "sealed"
    app.clock.advance(2 * HOUR)
    clean(app)
    assert app.batches.progress(batch).complete


def test_without_callbacks_or_with_no_time_failures_hold_nothing_up(
    app: MemoryApplication,
) -> None:
    for fields in ({}, {"on_complete": "complete"}, {"on_success": "success", "retry_hours": 0}):
        batch = app.batches.open(**fields).id
        app.batches.add(batch, 1, request_id="r")
        app.batches.seal(batch)
        assert app.batches.fail([f"{batch}:0:0"]).completed == (batch,)
    assert len(told(app, "complete")) == 1
    assert told(app, "success") == []


def test_a_batch_that_waits_is_no_stalled_one_and_may_be_cancelled(app: MemoryApplication) -> None:
    batch = opened(app, retry_hours=168)
    app.batches.fail([f"{batch}:0:0", f"{batch}:0:1"])
    app.clock.advance(100 * HOUR)
    assert app.keeper.statistics.stalled(24, deadline=app.deadline).count == 0
    app.batches.cancel(batch)
    app.clock.advance(100 * HOUR)
    clean(app)
    assert [told(app, t) for t in (COMPLETED_TOPIC, "complete", "success")] == [[], [], []]


def test_a_cancel_tells_its_callback_once_and_no_other(app: MemoryApplication) -> None:
    batch = opened(app, 3, on_cancel="cancel", metadata={"run": 7})
    app.batches.ack([f"{batch}:0:0"])
    app.batches.fail([f"{batch}:0:1"])
    assert app.batches.get(batch).on_cancel == "cancel"
    app.batches.cancel(batch)
    app.batches.cancel(batch)
    app.cascade()
    (message,) = told(app, "cancel")
    assert (message["id"], message["metadata"], message["callback"]) == (
        batch,
        {"run": 7},
        "cancel",
    )
    counts = [message[name] for name in ("total", "acked", "failed", "pending")]
    assert (counts, message["cancelled_at"] >= message["opened_at"]) == ([3, 1, 1, 1], True)
    assert [told(app, t) for t in ("complete", "success", COMPLETED_TOPIC)] == [[], [], []]


def test_the_first_death_is_told_once_while_the_others_go_on(app: MemoryApplication) -> None:
    batch = app.batches.open(on_death="death", on_complete="complete", metadata={"run": 7}).id
    app.batches.add(batch, 4, request_id="r", group_size=2)
    app.batches.ack([f"{batch}:0:0"])
    app.cascade()
    assert told(app, "death") == []
    app.batches.fail([f"{batch}:1:0"], "no")
    for _ in range(2):
        app.cascade()
    app.batches.fail([f"{batch}:1:1", f"{batch}:0:1"])
    app.cascade()
    (message,) = told(app, "death")
    assert (message["id"], message["metadata"], message["callback"]) == (batch, {"run": 7}, "death")
    counts = [message[name] for name in ("total", "acked", "failed", "pending")]
    assert (counts, message["died_at"] >= message["opened_at"]) == ([4, 1, 1, 2], True)
    app.batches.seal(batch)
    app.cascade()
    assert [len(told(app, topic)) for topic in ("complete", "death")] == [1, 1]


def test_a_death_that_could_not_be_told_comes_again_and_a_cancel_silences_it() -> None:
    app = MemoryApplication(wrap=lambda client: FaultyDynamoDB(client, random.Random(7)))
    app.outbox.create_topic(Topic("death"))
    batch, other = (app.batches.open(on_death="death").id for _ in range(2))
    for one in (batch, other):
        app.batches.add(one, 2, request_id="r")
        app.batches.fail([f"{one}:0:0"])
    app.batches.cancel(other)
    app.client.next("transact_write_items", *[Fault.INTERNAL_ERROR] * 30)
    app.cascade()
    assert told(app, "death") == []
    for _ in range(30):
        app.cascade()
    assert [message["id"] for message in told(app, "death")] == [batch]


def test_a_death_that_completes_its_batch_is_told_with_the_end(app: MemoryApplication) -> None:
    batch = opened(app, 1, on_death="death", retry_hours=0)
    assert app.batches.fail([f"{batch}:0:0"]).completed == (batch,)
    app.cascade()
    assert [m["callback"] for t in ("complete", "success", "death") for m in told(app, t)] == [
        "complete",
        "death",
    ]


def test_the_death_of_a_message_is_one_of_its_batch(app: MemoryApplication) -> None:
    batch = app.batches.open(on_death="death").id
    app.batches.add(batch, 2, request_id="r")
    app.outbox.create_topic(Topic("orders"))
    app.outbox.add(Message(topic="orders", body=b"", id=app.ids.next(), batch_item=f"{batch}:0:0"))
    queue = Queue.over(app.outbox)
    (received,) = queue.receive("orders")
    queue.bury(received.receipt, "no")
    app.run(5)
    assert [(m["id"], m["failed"]) for m in told(app, "death")] == [(batch, 1)]
    app.batches.cancel(batch)


def test_a_nested_batch_cancelled_with_its_parent_is_told(app: MemoryApplication) -> None:
    parent = opened(app)
    child = app.batches.open(parent_item=f"{parent}:0:0", on_cancel="cancel").id
    app.batches.cancel(parent)
    app.clock.advance(25 * HOUR)
    assert clean(app).cancelled == [child]
    assert [message["id"] for message in told(app, "cancel")] == [child]


def test_a_destination_gets_its_message_of_this_batch_alone(app: MemoryApplication) -> None:
    first = app.batches.open(on_complete="sqs:http://q/orders-a")
    app.batches.open(id=first.id, on_complete="sqs:http://q/orders-a")
    assert first.on_complete is not None
    (subscription,) = app.outbox.topic(first.on_complete).subscriptions
    assert subscription.destination == "sqs:http://q/orders-a"
    app.batches.seal(app.batches.open().id)
    app.batches.seal(first.id)
    app.run(1)
    received = app.destinations["sqs:http://q/orders-a"].received
    assert [m.ref.topic for m in received] == [first.on_complete]


@pytest.mark.parametrize("field", ["on_complete", "on_success"])
@pytest.mark.parametrize(
    "address",
    ["", "nowhere", "topic:nowhere", "no such/topic", "ftp:host", "sqs:", "https:/path",
     "https://user:word@host/", "fairbox.batches.completed", 7],
)  # fmt: skip
def test_a_bad_address_is_refused_with_its_field(
    app: MemoryApplication, field: str, address: Any
) -> None:
    before = (app.engine.items(BATCHES), app.outbox.topics())
    with pytest.raises(InvalidInput) as error:
        app.batches.open(**{"on_complete": "sqs:http://q/orders-a", field: address})
    assert error.value.field == field
    assert (app.engine.items(BATCHES), app.outbox.topics()) == before


@pytest.mark.parametrize("hours", [-1, 169, 1.5, True, "1"])
def test_a_time_for_retries_that_is_none_is_refused(app: MemoryApplication, hours: Any) -> None:
    with pytest.raises(InvalidInput, match="retry_hours"):
        app.batches.open(retry_hours=hours)
