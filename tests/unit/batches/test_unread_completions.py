"""Completions that nobody has subscribed to: they expire, and alarm nobody."""

from __future__ import annotations

import json

import pytest
from fairbox import Subscription
from fairbox.tables.batch_values import COMPLETED_TOPIC, ORPHANED_TOPIC
from fairbox.testing.application import MemoryApplication

DAY = 24 * 3600


@pytest.fixture
def app() -> MemoryApplication:
    return MemoryApplication()


def complete(app: MemoryApplication, count: int) -> list[str]:
    """Complete so many batches."""
    batches = [app.batches.open().id for _ in range(count)]
    for batch in batches:
        app.batches.seal(batch)
    app.run(1)
    return batches


def clean(app: MemoryApplication) -> None:
    app.keeper.cleanup.clean(deadline=app.deadline, open_hours=168, sealed_hours=336)


def test_completions_that_nobody_subscribed_to_expire_with_their_batches(
    app: MemoryApplication,
) -> None:
    complete(app, 3)
    app.clock.advance(6 * DAY)
    clean(app)
    app.repair()
    assert app.outbox.outstanding_count(COMPLETED_TOPIC) == 3
    app.clock.advance(2 * DAY)
    for _ in range(2):
        clean(app)
        app.repair()
    assert app.outbox.outstanding_count(COMPLETED_TOPIC) == 0
    app.run(1)
    ends = [x["event"] for x in map(json.loads, app.archive.lines) if x["event"] != "added"]
    assert ends == ["expired"] * 3


def test_completions_that_somebody_subscribed_to_stay_until_they_are_delivered(
    app: MemoryApplication,
) -> None:
    (batch,) = complete(app, 1)
    app.outbox.add_subscription(Subscription(COMPLETED_TOPIC, "billing", "sqs:http://q/done"))
    app.outbox.pause_subscription(COMPLETED_TOPIC, "billing")
    app.clock.advance(8 * DAY)
    clean(app)
    app.repair()
    (message,) = app.outbox.outstanding(COMPLETED_TOPIC)
    assert message.partition_key == batch


def test_unread_notices_count_for_nothing_and_have_no_age(app: MemoryApplication) -> None:
    complete(app, 3)
    orphan = app.batches.open().id
    app.keeper.cleanup.check_orphan(orphan, open_hours=0)
    app.run(1)
    app.clock.advance(DAY)
    for topic in (COMPLETED_TOPIC, ORPHANED_TOPIC):
        figures = app.figures()[topic]
        assert (figures.outstanding, figures.oldest_age) == (0, 0.0)
    app.outbox.add_subscription(Subscription(COMPLETED_TOPIC, "billing", "sqs:http://q/done"))
    figures = app.figures()[COMPLETED_TOPIC]
    assert figures.outstanding == 3
    assert figures.oldest_age >= DAY
