"""The death of a message that carries a batch item fails the item, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ReadTimeoutError
from fairbox import NotConfigured
from fairbox.batches.message_items import MessageItems
from fairbox.dispatch.burials import Burials
from fairbox.dispatch.ports import TAKEN
from fairbox.tables.stored_messages import read_message
from fairbox.testing.application import BATCHES, DELIVERIES, OUTBOX

from tests.support.application import REFUSED, THROTTLED, App
from tests.support.dead_letters import Between, lying, opened, raises

if TYPE_CHECKING:
    from collections.abc import Callable


def between(app: App, **hooks: Callable[[], None]) -> Between:
    """Put a client between the functions that deliver and the tables."""
    client = Between(app.client, **hooks)
    app.tables.calls.client = client
    return client


def failing(app: App, seconds: float = 300) -> None:
    """Let everything fail at subscription `a` until it is dead."""
    app.at("a").answer = lambda _: REFUSED
    app.run(seconds)


def test_a_death_fails_the_item_with_the_last_error_and_the_batch_completes() -> None:
    app = App("a")
    batch, items = opened(app, 2)
    app.at("a").answer = lambda m: REFUSED if m.message.batch_item == items[0] else TAKEN
    for item in items:
        app.add(batch_item=item)
    app.run(300)
    assert lying(app) == []
    assert [read_message(i).message.batch_item for i in app.dead()] == [items[0]]
    progress = app.batches.progress(batch)
    assert (progress.complete, progress.acked, progress.failed) == (True, 1, 1)


def test_the_move_and_the_item_are_one_transaction() -> None:
    app = App("a")
    client = between(app)
    batch, (item, _) = opened(app, 2)
    app.add(batch_item=item)
    failing(app)
    assert client.moves == [{BATCHES: 2, DELIVERIES: 1, OUTBOX: 1}]
    assert [(f.id, f.reason) for f in app.batches.failed(batch)] == [(item, "no")]


def test_a_death_without_an_item_makes_no_call_and_takes_no_unit_more_than_before() -> None:
    app = App("a")
    app.at("a").answer = lambda _: REFUSED
    app.add()
    app.relay()
    app.clock.advance(20)
    app.visit()
    assert app.dead() == []
    app.clock.advance(60)
    app.meter.reset()
    app.visit()
    assert len(app.dead()) == 1
    reading = app.meter.reading()
    # the last failure's update, the put into lane dead, the delete: as it was without batches
    assert app.writes() == {"update_item": 2, "delete_item": 1}
    assert reading.wru == 3


def test_what_dies_for_one_subscription_fails_its_item_though_the_rest_takes_it() -> None:
    app = App("a", "b")
    batch, (item, _) = opened(app, 2)
    client = between(app)
    app.at("b").answer = lambda _: THROTTLED
    app.add(batch_item=item)
    failing(app)
    assert client.moves == [{BATCHES: 2, DELIVERIES: 1, OUTBOX: 1}]
    assert [f.id for f in app.batches.failed(batch)] == [item]
    app.at("b").answer = lambda _: TAKEN
    app.run(1200, step=5)
    assert lying(app) == []
    assert app.batches.progress(batch).failed == 1


def test_the_second_death_of_a_message_leaves_its_failed_item_as_it_is() -> None:
    app = App("a", "b")
    batch, (item,) = opened(app)
    app.at("b").answer = lambda _: THROTTLED
    app.add(batch_item=item)
    failing(app)
    app.at("b").answer = lambda _: REFUSED
    app.run(3600, step=10)
    assert lying(app) == []
    assert [read_message(i).pending for i in app.dead()] == [frozenset({"a", "b"})]
    assert (app.batches.progress(batch).failed, app.row().dead) == (1, 1)


@pytest.mark.parametrize("ended", ["acked", "unknown", "cancelled", "erased", "complete"])
def test_where_the_item_cannot_fail_any_more_the_move_goes_alone(
    ended: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("a")
    batch, items = opened(app, 2)
    item = items[0]
    if ended == "acked":
        app.batches.ack([item])
    elif ended == "unknown":
        item = f"{batch}:5:0"
    elif ended == "complete":
        app.batches.ack(items)
    elif ended == "erased":
        app.batches.cancel(batch)
    else:
        with pytest.MonkeyPatch.context() as patch:  # as a crash before its groups are erased
            patch.setattr(app.batches._context.lifecycle, "fence", lambda *_: True)
            app.batches.cancel(batch)
    before = app.batches.progress(batch)
    app.add(batch_item=item)
    failing(app)
    assert lying(app) == []
    assert len(app.dead()) == 1
    assert app.batches.progress(batch) == before
    told = [r for r in caplog.records if "never issued" in r.message]
    assert len(told) == (ended == "unknown")


def test_a_busy_group_leaves_the_message_where_it_is_with_nothing_half_done() -> None:
    app = App("a")
    batch, items = opened(app, 100)
    others = iter(items[1:])
    client = between(app, before=lambda: void(app.batches.ack([next(others)])))
    app.add(batch_item=items[0])
    app.at("a").answer = lambda _: REFUSED
    while len(client.moves) < 8:
        app.run(5)
    (stored,) = map(read_message, app.lying())
    assert (stored.gone, app.dead()) == ("dead", [])
    assert app.batches.progress(batch).failed == 0
    app.tables.calls.client = app.client
    app.run(200)
    assert lying(app) == []
    assert len(app.dead()) == 1
    assert [f.id for f in app.batches.failed(batch)] == [items[0]]


def void(_: object) -> None:
    """Take a value for nothing."""


def test_a_group_that_changes_meanwhile_is_decided_anew() -> None:
    app = App("a")
    batch, items = opened(app, 100)
    others = iter(items[1:4])
    client = between(
        app, before=lambda: void([app.batches.fail([i]) for i in [next(others, "")] if i])
    )
    app.add(batch_item=items[0])
    failing(app)
    assert len(client.moves) == 4
    assert sorted(f.id for f in app.batches.failed(batch)) == sorted(items[:4])
    assert (len(app.dead()), lying(app)) == (1, [])


def test_a_move_that_was_applied_and_whose_answer_was_lost_is_not_made_twice() -> None:
    app = App("a")
    batch, items = opened(app, 2)
    client = between(app, after=lambda: raises(ReadTimeoutError(endpoint_url="db")))
    app.add(batch_item=items[0])
    failing(app)
    assert len(client.moves) == 8  # tries of one call, under one token
    assert (len(app.dead()), lying(app)) == (1, [])
    assert app.batches.progress(batch).failed == 1


def test_who_comes_late_buries_no_message_again() -> None:
    app = App("a")
    batch, (item, _) = opened(app, 2)
    (ref,) = app.add(batch_item=item)
    marked: list[Any] = []
    tables = app.tables
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Burials, "bury", lambda _, stored, died: marked.append((stored, died)))
        failing(app, 60)
    Burials(tables).finish(*marked[0])
    app.engine.delete_item(TableName=DELIVERIES, Key={k: app.dead()[0][k] for k in ("pk", "sk")})
    app.batches.retry([item])
    Burials(tables).bury(*marked[0])
    Burials(tables).finish(*marked[0])
    assert (app.dead(), lying(app)) == ([], [])
    assert app.batches.progress(batch).pending == 2
    assert app.outbox.get(ref) is None


def test_without_a_batches_table_what_carries_an_item_stays_and_stops_no_other() -> None:
    app = App("a")
    _, (item,) = opened(app)
    app.tables.batches = None
    with pytest.raises(NotConfigured):
        MessageItems(app.tables)
    app.add(batch_item=item)
    app.add()
    failing(app)
    app.sweep()
    app.visit()
    assert [read_message(i).gone for i in app.lying()] == ["dead"]
    assert [read_message(i).message.batch_item for i in app.dead()] == [None]
    report = app.repair()
    assert (report.unfinished, report.finished) == (0, 1)
    assert lying(app) == []


def test_only_the_store_that_is_wired_knows_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("a")
    monkeypatch.setattr(Burials, "finish", lambda *_: raises(NotConfigured("X")))
    (ref,) = app.add()
    app.at("a").answer = lambda _: REFUSED
    monkeypatch.setattr(Burials, "bury", lambda *_: raises(NotConfigured("X")))
    app.run(60)
    report = app.repair()
    assert (report.finished, report.unfinished) == (0, 1)
    assert [read_message(i).ref for i in app.lying()] == [ref]
