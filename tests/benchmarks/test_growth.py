"""The cost of an operation does not grow with the backlog: counted exactly, never timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fairbox import Message, Topic
from fairbox.testing.application import OUTBOX, MemoryApplication

from benchmarks import growth
from benchmarks.backlog import fill
from benchmarks.growth import Measured

if TYPE_CHECKING:
    from collections.abc import Mapping

SMALL, LARGE = 100, 10_000


@pytest.fixture(scope="module")
def costs() -> dict[int, Mapping[str, Measured]]:
    return {size: growth.measure(size) for size in (SMALL, LARGE)}


OPERATIONS = (
    "send", "relay", "mark", "sweep", "stats", "list_page", "get", "cancel", "visit",
    "visit_ordered", "send_receive_ack", "queue_stats", "send_receive_ack_ordered",
    "send_receive_ack_behind_delayed", "batch_ack", "batch_ack_of_ten",
)  # fmt: skip


@pytest.mark.extended  # fills backlogs, for seconds each
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_costs_no_more_behind_a_backlog_a_hundred_times_as_large(
    costs: Mapping[int, Mapping[str, Measured]], operation: str
) -> None:
    small, large = costs[SMALL][operation], costs[LARGE][operation]
    assert small.calls > 0
    assert small.wru + small.rru > 0
    for unit in ("wru", "rru", "calls"):
        assert getattr(large, unit) <= growth.MOST * getattr(small, unit), unit


def test_every_operation_that_is_measured_is_held_to_it(
    costs: Mapping[int, Mapping[str, Measured]],
) -> None:
    assert tuple(costs[SMALL]) == tuple(costs[LARGE]) == OPERATIONS


def test_what_grows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(backlog: int) -> dict[str, Measured]:
        flat = Measured("flat", wru=1.0, rru=0.0, calls=1.0)
        return {"flat": flat, "grown": Measured("grown", wru=1.0, rru=backlog / 100, calls=1.0)}

    monkeypatch.setattr(growth, "measure", measured)
    figures, grown = growth.figures((100, 104, 106))
    assert grown == ["growth.grown.rru.backlog_106 is 1.06, against 1"]
    assert [f.ratio for f in figures if f.name.startswith("growth.grown.rru")] == [1.0, 1.04, 1.06]
    assert not any(f.name.startswith("growth.flat.rru") for f in figures)


@pytest.mark.parametrize("later", [False, True])
def test_a_backlog_is_what_the_outbox_itself_reads(later: bool) -> None:
    app = MemoryApplication()
    topic = Topic("jobs", shards=3, ordering="none" if later else "key")
    app.outbox.create_topic(topic)
    fill(app.engine, topic, 500, now=app.clock.now(), later=later)
    assert app.outbox.outstanding_count("jobs") == 500
    assert app.figures()["jobs"].outstanding == 500
    listed = list(app.outbox.waiting("jobs") if later else app.outbox.outstanding("jobs"))
    assert len({message.id for message in listed}) == 500
    app.clock.advance(25 * 3600)
    app.queue.receive("jobs", 1, 0.001)  # it notes when to look at what is delayed
    app.clock.advance(120)
    got = app.queue.receive("jobs", 10)
    assert got
    app.queue.ack([one.receipt for one in got])
    assert app.outbox.outstanding_count("jobs") == 500 - len(got)
    assert not list(app.outbox.misplaced("jobs"))


def test_items_that_are_loaded_make_no_stream_records_and_are_read_like_others() -> None:
    app, fresh = MemoryApplication(), MemoryApplication()
    app.outbox.create_topic(Topic("jobs"))
    ref = app.outbox.add(Message(topic="jobs", body=b"x", id=app.ids.next()))
    app.mark()
    items = app.engine.items(OUTBOX)
    assert fresh.engine.load(OUTBOX, items) == len(items)
    assert fresh.engine.items(OUTBOX) == items
    assert fresh.outbox.get(ref) is not None
    assert fresh.figures()["jobs"].outstanding == 1  # the index has the shard's row
    assert len(fresh.engine.stream(OUTBOX)) == 0
