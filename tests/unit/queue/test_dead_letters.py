"""Dead letters received as from a queue: held for a time, purged by an ack, kept by the rest."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import InvalidInput, Queue, StaleReceipt, Unavailable
from fairbox.client.purge import Purges
from fairbox.tables.stored_messages import read_message
from fairbox.testing import Fault

from tests.support.application import App
from tests.support.dead_letters import ids, killed, lying, opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox import MessageRef, Received

SETTLE = (Queue.ack, Queue.nack, Queue.release, partial(Queue.extend, seconds=60))


class Desk(App):
    """The application, whose messages die pushed to `a`, or pulled, and operators beside it."""

    def die(self, count: int = 1, **more: Any) -> list[MessageRef]:
        if self.outbox.topic("orders").pushed:
            return killed(self, count, **more)
        refs = self.add(count, **more)
        for received in self.queue.receive("orders"):
            self.queue.bury(received.receipt, "no")
        self.run(5)
        return refs

    def take(self, count: int = 10) -> list[Received]:
        return Queue.over(self.outbox).receive("orders", count, 30, dead=True)


def beside(app: Desk, patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen before the next update of an item."""
    update = app.engine.update_item

    def later(**request: Any) -> Any:
        patch.undo()
        act()
        return update(**request)

    patch.setattr(app.engine, "update_item", later)


@pytest.fixture(params=[("a",), ()], ids=["pushed", "pulled"])
def app(request: pytest.FixtureRequest) -> Desk:
    return Desk(*request.param)


def test_one_operator_at_a_time_holds_the_oldest(app: Desk) -> None:
    refs = app.die(3)
    app.put_junk("0", pk="dead#orders#0#0")
    (first,), (second,) = app.take(1), app.take(1)
    assert ids([first.message, second.message]) == ids(refs[:2])
    assert (first.message.body, first.reason, first.receive_count) == (b"0", "no", 1)
    assert first.subscriptions in ({"a"}, {"pull"})
    assert (ids(r.message for r in app.take()), app.take()) == (ids(refs[2:]), [])
    app.clock.advance(30)
    assert [(r.message.id, r.receive_count) for r in app.take()] == [(i, 2) for i in ids(refs)]


def test_an_ack_purges(app: Desk) -> None:
    batch, (item,) = opened(app)
    (ref,) = app.die(batch_item=item)
    app.queue.ack([received.receipt for received in app.take()])
    app.run(5)
    assert (app.dead(), app.row().dead, lying(app), app.take()) == ([], 0, [], [])
    assert [event["id"] for event in app.events("purged")] == [ref.id]
    assert app.batches.progress(batch).failed == 1


def test_given_back_or_extended_it_is_kept(app: Desk) -> None:
    app.die()
    for settle, seconds, count in (
        (partial(Queue.nack, delay=60), 60, 1),
        (Queue.release, 0, 2),
        (partial(Queue.extend, seconds=30), 30, 2),
        (partial(Queue.extend, seconds=100), 100, 3),
    ):
        (held,) = app.take()
        assert (held.receive_count, held.reason) == (count, "no")
        with pytest.raises(InvalidInput, match="receipt"):
            app.queue.bury(held.receipt)
        # the answer is lost, and the call is made again
        app.faulty.next("update_item", Fault.APPLIED_THEN_TIMEOUT)
        settle(app.queue, held.receipt)
        if seconds:
            app.clock.advance(seconds - 1)
            assert app.take() == []
            app.clock.advance(1)
    assert (app.row().dead, app.take()[0].receive_count) == (1, 4)


@pytest.mark.parametrize("settle", SETTLE, ids=["ack", "nack", "release", "extend"])
@pytest.mark.parametrize("lost", ["redriven", "died again", "purged", "held by another"])
def test_a_stale_receipt_changes_nothing(
    app: Desk, settle: Callable[[Queue, str], None], lost: str
) -> None:
    app.die()
    (held,) = app.take()
    if lost == "purged":
        app.outbox.purge_dead("orders")
    elif lost == "held by another":
        app.clock.advance(30)
        assert app.take()
    else:
        app.outbox.redrive("orders")
        assert not {"ct", "cl", "cn"} & set(*app.lying())
        app.die(0) if lost == "died again" else None
    before = app.dead()
    with pytest.raises(StaleReceipt):
        settle(app.queue, held.receipt)
    assert (app.dead(), len(before)) == (before, lost in ("died again", "held by another"))


def test_every_shard_is_read_and_only_claims_are_written() -> None:
    app = Desk("a", shards=4)
    refs = app.die(8)
    app.meter.reset()
    found = [r.message for _ in range(4) for r in app.take()]
    assert sorted(ids(found)) == sorted(ids(refs))
    assert (app.take(), app.meter.reading().wru) == ([], len(refs))
    with pytest.raises(InvalidInput, match="wait"):
        app.queue.receive("orders", wait=1, dead=True)


def test_who_holds_it_settles_no_death_for_another_subscription() -> None:
    app = Desk("a", "b")
    app.die()
    (held,) = app.take()
    app.outbox.tables.dead.bury(read_message(*app.dead()), frozenset({"b"}))
    with pytest.raises(StaleReceipt):
        app.queue.ack(held.receipt)
    app.clock.advance(30)
    assert [r.subscriptions for r in app.take()] == [{"a", "b"}]


def test_an_ack_that_another_claim_overtakes_purges_nothing(app: Desk) -> None:
    app.die()
    app.take()
    letters = list(app.outbox.dead("orders"))
    app.clock.advance(30)
    assert app.take()
    assert (Purges(app.outbox.tables, same_holder=True).purge(letters, ""), len(app.dead())) == (
        ["gone"],
        1,
    )


def test_who_is_overtaken_takes_the_next(app: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    refs = app.die(2)
    beside(app, monkeypatch, lambda: app.take(1))
    assert ids(r.message for r in app.take()) == ids(refs[1:])


def test_one_without_its_body_stays_free_and_hides_no_other(
    app: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(bucket: str, key: str) -> bytes:
        raise Unavailable(bucket, key)

    app.die(body=bytes(1_000_000))
    monkeypatch.setattr(app.bodies, "get", get)
    (ref,) = app.die()
    assert ids(r.message for r in app.take()) == [ref.id]
    app.writes()
    with pytest.raises(Unavailable):
        app.take()
    assert app.writes() == {}


def test_two_extensions_at_once_leave_it_held(app: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    app.die()
    (held,) = app.take()
    beside(app, monkeypatch, lambda: app.queue.extend(held.receipt, 60))
    app.queue.extend(held.receipt, 90)
    app.clock.advance(89)
    assert app.take() == []
