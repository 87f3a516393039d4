"""Acks of batches that were cancelled or reaped: all are refused, from the answer on."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fairbox import BatchEnded
from fairbox.batches.lifecycle import Lifecycle
from fairbox.errors import Unavailable
from fairbox.testing import CostMeter
from fairbox.testing.application import MemoryApplication

GROUPS = 130


@pytest.fixture
def app() -> MemoryApplication:
    return MemoryApplication()


def many_groups(app: MemoryApplication) -> tuple[str, list[str]]:
    """Open a sealed batch of 130 groups, over a node, with two items acked and one failed."""
    batch = app.batches.open().id
    app.batches.add(batch, 2 * GROUPS, request_id="all", group_size=2)
    app.batches.seal(batch)
    items = [f"{batch}:{group}:{index}" for group in range(GROUPS) for index in range(2)]
    app.batches.ack([items[0], items[-1]])
    app.batches.fail([items[5]], "no")
    return batch, items


def refused(app: MemoryApplication, batch: str, items: list[str], state: str) -> None:
    """Every way to settle is refused, names the items, and changes nothing."""
    before = app.batches.progress(batch)
    assert (before.state, before.acked, before.failed) == (state, 2, 1)
    for verb in (app.batches.ack, app.batches.fail, app.batches.retry):
        with pytest.raises(BatchEnded) as error:
            verb(items)
        assert (error.value.state, set(error.value.items)) == (state, set(items))
        for item in (items[1], items[-2]):
            with pytest.raises(BatchEnded):
                verb([item])
    assert app.keeper.coalesced.drain(items, deadline=math.inf).dropped == items
    assert app.batches.progress(batch) == before


def end(app: MemoryApplication, batch: str, state: str) -> None:
    """Cancel or reap a batch."""
    if state == "cancelled":
        app.batches.cancel(batch)
    else:
        app.keeper.cleanup.check_orphan(batch, sealed_hours=0)


def test_every_ack_after_a_cancel_is_refused(app: MemoryApplication) -> None:
    batch, items = many_groups(app)
    app.batches.cancel(batch)
    refused(app, batch, items, "cancelled")


@pytest.mark.guarantee("ended-refuses")
def test_every_ack_after_a_reaping_is_refused(app: MemoryApplication) -> None:
    batch, items = many_groups(app)
    assert app.keeper.cleanup.check_orphan(batch, sealed_hours=0).fate == "reaped"
    refused(app, batch, items, "reaped")
    assert [b.id for b in app.batches.list("reaped")] == [batch]
    assert app.keeper.lifecycle.erase(batch)
    refused(app, batch, items, "reaped")


def test_a_call_with_items_of_a_cancelled_batch_changes_no_other_batch(
    app: MemoryApplication,
) -> None:
    batch, items = many_groups(app)
    other = app.batches.open().id
    app.batches.add(other, 1, request_id="all")
    app.batches.cancel(batch)
    with pytest.raises(BatchEnded):
        app.batches.ack([f"{other}:0:0", items[-2]])
    assert app.batches.progress(other).pending == 1


@pytest.mark.parametrize("state", ["cancelled", "reaped"])
@pytest.mark.parametrize("erased", [0, 1])
def test_the_stream_refuses_the_rest_after_the_process_that_ended_the_batch_has_died(
    app: MemoryApplication, monkeypatch: pytest.MonkeyPatch, state: str, erased: int
) -> None:
    batch, items = many_groups(app)
    steps: list[int] = []
    delete = app.batches.store.delete

    def dies(*args: Any, **kwargs: Any) -> None:
        steps.append(1)
        if len(steps) > 2 * erased:
            raise Unavailable("batch_write_item", "killed")
        delete(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(app.batches.store, "delete", dies)
        with pytest.raises(Unavailable):
            end(app, batch, state)
    app.cascade()
    refused(app, batch, items, state)


def test_the_stream_goes_on_where_its_time_ended(
    app: MemoryApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, items = many_groups(app)
    monkeypatch.setattr("fairbox.batches.lifecycle.ERASE_GROUPS", 50)
    with monkeypatch.context() as patched:
        patched.setattr(Lifecycle, "fence", lambda *_: True)  # the process dies
        app.batches.cancel(batch)
    finished = app.keeper.finish([batch], deadline=app.clock.now())
    assert finished.left == {batch}
    assert app.keeper.finish([batch], deadline=app.deadline).left == set()
    refused(app, batch, items, "cancelled")


def test_an_ack_of_an_open_batch_costs_one_read_and_one_write() -> None:
    meters: list[CostMeter] = []

    def wrap(client: Any) -> CostMeter:
        meters.append(CostMeter(client))
        return meters[0]

    app = MemoryApplication(wrap=wrap)
    batch = app.batches.open().id
    app.batches.add(batch, 20, request_id="all", group_size=10)
    for items in ([f"{batch}:0:1"], [f"{batch}:0:{index}" for index in range(2, 9)]):
        meters[0].reset()
        assert app.batches.ack(items).changed == len(items)
        cost = meters[0].reading()
        assert (cost.wru, cost.rru) == (1, 1)
        assert cost.calls == {"get_item": 1, "put_item": 1}
    meters[0].reset()
    app.keeper.coalesced.drain([f"{batch}:1:1", f"{batch}:0:0"], deadline=math.inf)
    assert (meters[0].reading().wru, meters[0].reading().rru) == (2, 2)
