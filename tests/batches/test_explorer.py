"""Every interleaving of small scenarios keeps the guarantees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox.client.batch_maintenance import BatchMaintenance
from fairbox.errors import BatchBusy, BatchEnded, FairboxError
from fairbox.tables.batch_values import LeafKey, NodeKey
from fairbox_simulation.batches.trees import small_trees

from tests.batches.explorer import CALLBACK_TOPICS, Explorer, Process, Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fairbox.client.batches import Batches

A = "00000000-0000-4000-8000-00000000000a"
B = "00000000-0000-4000-8000-00000000000b"
C = "00000000-0000-4000-8000-00000000000c"
FOREVER = 1e12


@pytest.fixture(autouse=True)
def small_tree() -> Iterator[None]:
    """A tree whose root has one group, whose nodes have two, and whose adds are soon large."""
    with small_trees():
        yield


def item(group: int, index: int = 0, batch: str = A) -> str:
    return f"{batch}:{group}:{index}"


def batch_of(
    *sizes: int, sealed: bool = True, settled: Iterable[str] = (), failed: Iterable[str] = ()
) -> Callable[[Batches], None]:
    """Prepare batch A with these groups, and leaves that a crash kept from their parents."""

    def prepare(batches: Batches) -> None:
        batches.open(id=A)
        for number, size in enumerate(sizes):
            batches.add(A, size, request_id=f"r{number}", group_size=size)
        if sealed:
            batches.seal(A)
        cascade: Any = batches._context.cascade
        cascade.cascade = lambda _: []  # crashes
        batches.ack(settled)
        batches.fail(failed, "no")

    return prepare


def with_callbacks(*sizes: int, **more: Any) -> Callable[[Batches], None]:
    """Prepare batch A, as `batch_of` does, with all callbacks and a day for retries."""

    def prepare(batches: Batches) -> None:
        complete, success, cancel, death = CALLBACK_TOPICS
        batches.open(
            id=A, on_complete=complete, on_success=success, on_cancel=cancel, on_death=death
        )
        batch_of(*sizes, **more)(batches)

    return prepare


def later() -> Process:
    """The cleanup, a day on."""

    def work(batches: Batches) -> None:
        clock: Any = batches._context.core.clock
        clock.advance(25 * 3600)
        BatchMaintenance(batches).cleanup.check_orphan(A, open_hours=99, sealed_hours=99)

    return Process("later", work)


def fail(*items: str) -> Process:
    return Process(f"fail {items}", lambda b: b.fail(items), items)


def ack(*items: str, name: str = "") -> Process:
    return Process(name or f"ack {items}", lambda b: b.ack(items), items)


def clear(*keys: LeafKey | NodeKey) -> Process:
    return Process("stream", lambda b: BatchMaintenance(b).cascade.cascade(keys))


def window(*items: str, name: str = "") -> Process:
    """A window of the ack queue; what is left of it would come again."""

    def work(batches: Batches) -> None:
        drained = BatchMaintenance(batches).coalesced.drain(
            [*items, "no id", item(99)], deadline=FOREVER
        )
        if drained.left:
            raise BatchBusy(drained.left)

    return Process(name or f"window {items}", work, items)


def stream(*causes: LeafKey | NodeKey | str, name: str = "cascade_batches") -> Process:
    return Process(name, lambda b: BatchMaintenance(b).finish(causes, deadline=FOREVER))


def seal() -> Process:
    return Process("seal", lambda b: b.seal(A))


def add(count: int, request: str = "new", name: str = "add") -> Process:
    return Process(name, lambda b: b.add(A, count, request_id=request, group_size=1))


def cancel() -> Process:
    return Process("cancel", lambda b: b.cancel(A))


def cancel_and_settle(verb: str, *items: str) -> Process:
    """Cancel, and settle these items in the moment in which that has returned."""

    def work(batches: Batches) -> None:
        batches.cancel(A)
        try:
            getattr(batches, verb)(items)
        except BatchEnded:
            return
        raise NotRefusedError

    return Process(f"cancel and {verb}", work)


class NotRefusedError(FairboxError):
    """An item of a batch that was cancelled has been settled."""


def retry(*items: str) -> Process:
    return Process("retry", lambda b: b.retry(items))


def reap() -> Process:
    def work(batches: Batches) -> None:
        BatchMaintenance(batches).cleanup.check_orphan(A, open_hours=0, sealed_hours=0)

    return Process("reap", work)


def notify(name: str) -> Process:
    return Process(name, lambda b: BatchMaintenance(b).cascade.notify_parent(A))


def ends_complete(batches: Batches) -> None:
    progress = batches.progress(A)
    assert progress.complete, progress


def counted_once(batches: Batches) -> None:
    assert batches.progress(A).total == 4, batches.progress(A)


def nested(batches: Batches) -> None:
    batches.open(id=B)
    batches.add(B, 1, request_id="p")
    batches.seal(B)
    batches.open(id=A, parent_item=item(0, batch=B))
    batches.add(A, 1, request_id="c")
    batches.seal(A)


def parent(batches: Batches) -> None:
    batches.open(id=B)
    batches.add(B, 1, request_id="p")


def retried_parent(batches: Batches) -> None:
    """Batch A has ended with a failure, and the item that it failed is pending again."""
    _told_and_retried(batches)


def open_child(batch: str, name: str = "") -> Process:
    parent_item = item(0, batch=B)
    return Process(name or f"open {batch[-1]}", lambda b: b.open(id=batch, parent_item=parent_item))


def end_child_with_failure(batches: Batches) -> None:
    nested(batches)
    cascade: Any = batches._context.cascade
    cascade.notify_parent = lambda _: []  # crashes
    batches.fail([item(0)])


SCENARIOS = [
    Scenario("seal against last ack", batch_of(1, sealed=False), [seal(), ack(item(0))],
             ends_complete),
    Scenario("two last acks of one leaf", batch_of(2), [ack(item(0)), ack(item(0, 1))],
             ends_complete),
    Scenario("two last acks of different leaves", batch_of(1, 1), [ack(item(0)), ack(item(1))],
             ends_complete),
    Scenario("two last acks under one node", batch_of(1, 1, 1, settled=[item(0)]),
             [ack(item(1)), ack(item(2))]),
    Scenario("the same ack twice", batch_of(1), [ack(item(0)), ack(item(0), name="again")],
             ends_complete),
    Scenario("the stream repeats a clear", batch_of(1, 1, settled=[item(0)]),
             [clear(LeafKey(A, 0)), clear(LeafKey(A, 0)), ack(item(1))], ends_complete,
             lost_answers=0),
    Scenario("retry of an item whose leaf's clear is in flight", batch_of(1, failed=[item(0)]),
             [clear(LeafKey(A, 0)), retry(item(0))]),
    Scenario("retry under a node whose clear is in flight",
             batch_of(1, 1, settled=[item(0)], failed=[item(1)]),
             [clear(LeafKey(A, 1)), retry(item(1))]),
    Scenario("add under a node whose clear is in flight",
             batch_of(1, 1, sealed=False, settled=[item(0), item(1)]),
             [clear(LeafKey(A, 1)), add(1)]),
    Scenario("a large add against seal", batch_of(1, sealed=False, settled=[item(0)]),
             [add(3), seal()]),
    Scenario("a small add against seal and ack", batch_of(1, sealed=False),
             [add(1), seal(), ack(item(0))], lost_answers=0),
    Scenario("the same large add twice at once", batch_of(1, sealed=False),
             [add(3), add(3, name="again")], counted_once),
    Scenario("ids of an add that is not done", batch_of(1, sealed=False),
             [add(3), ack(item(1))]),
    Scenario("cancel against last ack", batch_of(1), [cancel(), ack(item(0))]),
    Scenario("an ack that follows a cancel", batch_of(1, 2, settled=[item(1)]),
             [cancel_and_settle("ack", item(1, 1)), ack(item(0))], lost_answers=0),
    Scenario("a retry that follows a cancel", batch_of(1, 1, failed=[item(0)]),
             [cancel_and_settle("retry", item(0)), reap()], lost_answers=0),
    Scenario("cancel against a large add", batch_of(1, sealed=False), [cancel(), add(3)],
             lost_answers=0),
    Scenario("reap against last ack", batch_of(2, settled=[item(0, 1)]), [reap(), ack(item(0))]),
    Scenario("a nested batch's end repeated after its item was retried", end_child_with_failure,
             [notify("tell"), notify("again"),
              retry(item(0, batch=B))], lost_answers=0),
    Scenario("a nested batch's last ack", nested,
             [ack(item(0)), notify("tell")]),
    Scenario("callbacks with two last acks", with_callbacks(2), [ack(item(0)), ack(item(0, 1))],
             ends_complete),
    Scenario("callbacks with seal against last ack", with_callbacks(1, sealed=False),
             [seal(), ack(item(0))], ends_complete),
    Scenario("callbacks with a last failure against a last ack", with_callbacks(1, 1),
             [fail(item(0)), ack(item(1))], lost_answers=0),
    Scenario("a retry against the end of the time for it", with_callbacks(1, failed=[item(0)]),
             [clear(LeafKey(A, 0)), later(), retry(item(0))], lost_answers=0),
    Scenario("callbacks against cancel", with_callbacks(1), [cancel(), ack(item(0))],
             lost_answers=0),
    Scenario("two nested batches of one item", parent, [open_child(A), open_child(C)]),
    Scenario("the same nested batch twice", parent, [open_child(A), open_child(A, "again")]),
    Scenario("two nested batches of an item that was retried", retried_parent,
             [open_child("00000000-0000-4000-8000-00000000000d"), open_child(C)]),
    Scenario("a nested batch against the end of the one before", end_child_with_failure,
             [notify("tell"), retry(item(0, batch=B)), open_child(C)], lost_answers=0),
    Scenario("two windows with the last acks", batch_of(2),
             [window(item(0)), window(item(0, 1))], ends_complete, lost_answers=0),
    Scenario("the same window twice", batch_of(1),
             [window(item(0)), window(item(0), name="again")], ends_complete, lost_answers=0),
    Scenario("a window against seal", batch_of(1, sealed=False), [window(item(0)), seal()],
             ends_complete),
    Scenario("a window against cancel", batch_of(1, 1), [window(item(0), item(1)), cancel()],
             lost_answers=0),
    Scenario("a window against reap", batch_of(2, settled=[item(0, 1)]),
             [reap(), window(item(0))]),
    Scenario("the stream's function against the last window", batch_of(1, 1, settled=[item(0)]),
             [stream(LeafKey(A, 0)), window(item(1))], ends_complete, lost_answers=0),
    Scenario("the stream's function against itself", batch_of(1, 1, settled=[item(0), item(1)]),
             [stream(LeafKey(A, 1), LeafKey(A, 0)), stream(NodeKey(A, 0), LeafKey(A, 1))],
             ends_complete),
    Scenario("the stream's function against retry",
             batch_of(1, 1, settled=[item(0)], failed=[item(1)]),
             [stream(LeafKey(A, 1), LeafKey(A, 0)), retry(item(1))]),
    Scenario("the stream's function tells against retry", end_child_with_failure,
             [stream(A), retry(item(0, batch=B))], lost_answers=0),
]  # fmt: skip
LONG = {
    "a window against reap",
    "reap against last ack",
    "a large add against seal",
    "a nested batch's end repeated after its item was retried",
    "a nested batch's last ack",
    "a small add against seal and ack",
    "add under a node whose clear is in flight",
    "the same ack twice",
    "the same large add twice at once",
    "the stream repeats a clear",
    "the stream's function against itself",
    "the stream's function against retry",
}
"""Scenarios with thousands of states, explored in `make test-all` only."""


@pytest.mark.guarantee("announced-once", "batch-figures", "settled-stays", "ended-refuses")
@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            scenario,
            id=scenario.name.replace(" ", "-"),
            marks=[pytest.mark.extended] * (scenario.name in LONG),
        )
        for scenario in SCENARIOS
    ],
)
def test_every_interleaving_keeps_the_guarantees(scenario: Scenario) -> None:
    report = Explorer(scenario).search()
    assert not report.violation, "\n".join([report.violation, *report.trace])
    assert report.states > 10


def test_an_end_that_is_told_again_takes_no_retry_back() -> None:
    prepared = Scenario(
        "told again",
        _told_and_retried,
        [notify("again")],
        _item_is_pending,
    )
    assert not Explorer(prepared).search().violation


def _told_and_retried(batches: Batches) -> None:
    batches.open(id=B)
    batches.add(B, 2, request_id="p")
    batches.seal(B)
    batches.open(id=A, parent_item=item(0, batch=B))
    batches.add(A, 1, request_id="c")
    batches.seal(A)
    batches.fail([item(0)])
    batches.retry([item(0, batch=B)])


def _item_is_pending(batches: Batches) -> None:
    assert item(0, batch=B) in batches.missing(B)
