"""The messages of a partition key erased, wherever the outbox has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fairbox import InvalidInput, KeyErasure, Topic, UnknownTopic
from fairbox.tables.stored_messages import PARTITION_KEY
from fairbox.testing.application import DELIVERIES, OUTBOX

from tests.support.application import App
from tests.support.dead_letters import killed

if TYPE_CHECKING:
    from collections.abc import Iterator

ANN = "customer-42"


def keys(app: App) -> Iterator[str]:
    """Yield the partition keys that lie in the tables."""
    for table in (OUTBOX, DELIVERIES):
        for item in app.engine.items(table):
            if PARTITION_KEY in item:
                yield item[PARTITION_KEY]["S"]


@pytest.fixture
def app() -> App:
    """Two customers' messages: outstanding, waiting, in another topic's shards, and dead."""
    app = App("a")
    app.outbox.create_topic(Topic("jobs", shards=4, ordering="key"))
    for key in (ANN, "customer-7"):
        killed(app, partition_key=key)
        app.add(2, partition_key=key, delay=900)
        app.add(2, topic="jobs", partition_key=key)
    app.outbox.pause_subscription("orders", "a")
    for key in (ANN, "customer-7"):
        app.add(2, partition_key=key)
    return app


@pytest.mark.guarantee("erase-key")
def test_nothing_of_the_key_stays_and_all_of_the_others_does(app: App) -> None:
    others = sorted(key for key in keys(app) if key != ANN)
    assert len(others) == 7 == sum(key == ANN for key in keys(app))
    tried = KeyErasure(app.outbox).erase(ANN, dry_run=True)
    assert sum(key == ANN for key in keys(app)) == 7

    done = KeyErasure(app.outbox).erase(ANN)

    assert (len(done.cancelled), len(done.purged), done.claimed, done.left) == (6, 1, (), ())
    assert (done.cancelled, done.purged) == (tried.cancelled, tried.purged)
    assert sorted(keys(app)) == others
    app.run(5)
    told = [*app.events("cancelled"), *app.events("purged")]
    assert [event["reason"] for event in told] == ["erased"] * 7
    assert (app.row().ready, app.row().later, app.row().dead) == (2, 2, 1)
    again = KeyErasure(app.outbox).erase(ANN)
    assert (again.cancelled, again.purged) == ((), ())


def test_of_one_topic_alone(app: App) -> None:
    done = KeyErasure(app.outbox).erase(ANN, topic="jobs")
    assert ({ref.topic for ref in done.cancelled}, done.purged) == ({"jobs"}, ())
    assert sum(key == ANN for key in keys(app)) == 5


def test_what_is_held_and_what_nobody_can_read_is_told(app: App) -> None:
    app.put_junk("junk")
    app.outbox.resume_subscription("orders", "a")
    app.run(120)
    taken = app.queue.receive("jobs", max_messages=4)
    held = next(one for one in taken if one.message.partition_key == ANN)
    done = KeyErasure(app.outbox).erase(ANN)
    assert ([ref.id for ref in done.claimed], done.left) == (
        [held.message.id],
        ("orders/0/0/junk",),
    )
    assert list(keys(app)).count(ANN) == 1
    app.queue.ack(held.receipt)
    assert ANN not in keys(app)


def test_what_is_asked_wrongly_changes_nothing(app: App) -> None:
    with pytest.raises(InvalidInput, match="partition_key"):
        KeyErasure(app.outbox).erase("")
    with pytest.raises(InvalidInput, match="reason"):
        KeyErasure(app.outbox).erase(ANN, reason="x" * 257)
    with pytest.raises(UnknownTopic):
        KeyErasure(app.outbox).erase(ANN, topic="nowhere")
    assert sum(key == ANN for key in keys(app)) == 7
