"""Messages that come when their epoch has left the list: repair puts them where everybody reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fairbox import Message, MessageRef
from fairbox.tables.keys import message_key
from fairbox.testing.application import OUTBOX

from tests.support.application import App


def stray(app: App, body: bytes = b"x", epoch: int = 0) -> MessageRef:
    """Put a message into an epoch as a producer does whose view is hours old."""
    message = Message(topic="orders", body=body, partition_key="k", id=app.ids.next())
    ref = app.outbox.add(message)
    item = app.outbox.tables.lanes.get(ref)
    assert item is not None
    stray = replace(ref, epoch=epoch, shard=0)
    app.engine.put_item(TableName=OUTBOX, Item=item | message_key(stray))
    app.engine.delete_item(TableName=OUTBOX, Key=message_key(ref))
    return stray


def retired(*subscriptions: str) -> App:
    """Return an application whose topic has only its second epoch left."""
    app = App(*subscriptions)
    app.outbox.resize("orders", 4)
    for _ in range(3):
        app.clock.advance(3600)
        app.repair()
    assert [e.number for e in app.outbox.topic("orders").epochs] == [1]
    return app


def test_repair_reports_what_it_closes_and_retires() -> None:
    app = App()
    app.outbox.resize("orders", 4)
    reports = []
    for _ in range(4):
        app.clock.advance(3600)
        reports.append(app.repair())
    assert [(r.closed, r.retired) for r in reports] == [(1, 0), (0, 1), (0, 0), (0, 0)]


def test_a_late_message_of_a_pulled_topic_is_found_by_repair_and_received() -> None:
    app = retired()
    ref = stray(app)
    app.clock.advance(2)
    assert app.queue.receive("orders") == []
    assert app.repair().relocated == 1
    found = [r for _ in range(4) for r in app.queue.receive("orders")]
    assert [r.message.id for r in found] == [ref.id]


def test_a_late_message_of_a_pushed_topic_is_delivered_where_it_lies() -> None:
    app = retired("billing")
    ref = stray(app)
    app.run()
    assert app.at("billing").ids[-1] == ref.id
    assert app.lying() == []


def test_a_message_of_an_epoch_not_yet_known_is_left_alone() -> None:
    app = retired()
    stray(app, epoch=2)
    assert app.repair().relocated == 0


@pytest.mark.parametrize("size", [10, 500_000])
def test_the_archive_tells_of_the_move_and_the_body_stays(size: int) -> None:
    app = retired()
    app.run()
    before = len(app.archive.lines)
    ref = stray(app, body=app.rng.randbytes(size))
    app.run()
    app.bodies.expired.clear()  # of the message that lay elsewhere before
    app.repair()
    app.run()
    events = [
        (e["event"], e["epoch"], e["id"]) for e in app.events("added") + app.events("cancelled")
    ]
    assert ("added", 1, ref.id) in events
    assert ("cancelled", 0, ref.id) in events
    assert len(app.archive.lines) > before
    (cancelled,) = app.events("cancelled")
    assert cancelled["reason"].startswith("moved to orders/1/")
    (message,) = app.outbox.outstanding("orders")
    assert len(message.body) == size
    assert not app.bodies.expired
    (row,) = [r for r in app.outbox.listed() if r.epoch == 1 and r.outstanding]
    assert row.ready == 1
