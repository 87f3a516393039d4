"""The application in memory does what the deployment does by itself."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from fairbox import BatchEnded, Message, Subscription, Topic
from fairbox.dispatch.ports import TAKEN
from fairbox.testing import Outcome
from fairbox.testing.application import MemoryApplication

DAY = 24 * 3600


@pytest.fixture
def app() -> MemoryApplication:
    app = MemoryApplication()
    app.outbox.create_topic(Topic("orders"))
    return app


def test_a_subscription_to_a_topic_puts_its_messages_there(app: MemoryApplication) -> None:
    app.outbox.create_topic(Topic("jobs"))
    app.outbox.add_subscription(Subscription("orders", "hop", "topic:jobs"))
    answers = [Outcome("refused", "no"), TAKEN]
    app.destinations["topic:jobs"].answer = lambda _: answers.pop(0)
    ref = app.outbox.add(Message(topic="orders", body=b"x", id=app.ids.next()))
    app.run(30)
    assert [m.id for m in app.outbox.outstanding("jobs")] == [ref.id]
    assert app.destinations["topic:jobs"].ids == [ref.id]
    assert app.outbox.outstanding_count("orders") == 0


def test_the_ledger_forgets_deliveries_past_the_retention(app: MemoryApplication) -> None:
    app.outbox.add_subscription(Subscription("orders", "billing", "sqs:http://q/billing"))
    app.outbox.add(Message(topic="orders", body=b"x", id=app.ids.next()))
    app.run()
    since = datetime.fromtimestamp(app.clock.now() - 60, UTC)
    assert len(list(app.outbox.delivered("orders", since=since))) == 1
    app.clock.advance(9 * DAY)
    app.run()
    assert list(app.outbox.delivered("orders", since=since)) == []


def test_a_batch_without_activity_is_reaped(app: MemoryApplication) -> None:
    batch = app.batches.open().id
    app.batches.add(batch, 3, request_id="r")
    app.run(2 * DAY, step=3600)
    assert app.batches.progress(batch).state == "open"
    app.run(6 * DAY, step=3600)
    with pytest.raises(BatchEnded, match="reaped"):
        app.batches.seal(batch)


def test_a_copy_on_a_topic_without_a_window_leaves_its_deduplication_key() -> None:
    app = MemoryApplication()
    app.outbox.create_topic(Topic("orders", dedup_window=60))
    app.outbox.create_topic(Topic("jobs"))
    app.outbox.add_subscription(Subscription("orders", "hop", "topic:jobs"))
    app.outbox.add(Message(topic="orders", body=b"x", dedup_key="7", id=app.ids.next()))
    app.run()
    [copy] = app.outbox.outstanding("jobs")
    assert (copy.body, copy.dedup_key) == (b"x", None)
