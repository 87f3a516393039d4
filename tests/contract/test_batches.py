"""Batches on both engines: the core of the protocol over real conditions and transactions."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import BatchBusy, BatchEnded, Batches, BatchSealed, ParentItemTaken, UnknownItems
from fairbox.client.batch_maintenance import BatchMaintenance
from fairbox.tables.batch_records import emptied
from fairbox_simulation.batches.invariants import broken

from tests.support.batch_tables import World, made_world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@pytest.fixture
def world(client: Any) -> World:
    return made_world(client)


def ids(batch: str, groups: Iterable[int]) -> list[str]:
    return [f"{batch}:{group}:0" for group in groups]


def test_a_batch_over_a_node_completes_once(world: World) -> None:
    batches = world.batches()
    batch = batches.open("key", {"a": 1}).id
    batches.add(batch, 66, request_id="r", group_size=1)
    batches.seal(batch)
    batches.fail(ids(batch, [65]), "broken")
    assert batches.ack(ids(batch, range(65))).completed == (batch,)
    assert batches.ack(ids(batch, range(66))).changed == 0
    (message,) = world.completed()
    assert (message["total"], message["acked"], message["failed"]) == (66, 65, 1)
    assert message["metadata"] == {"a": 1}
    assert broken(world.items(), [batch]) == ""
    assert [f.reason for f in batches.failed(batch)] == ["broken"]


def test_a_large_add_counts_at_once_and_is_repeated_without_effect(world: World) -> None:
    batches = world.batches()
    batch = batches.open().id
    groups = batches.add(batch, 201, request_id="r", group_size=2)
    assert batches.add(batch, 201, request_id="r", group_size=2) == groups
    progress = batches.progress(batch)
    assert (progress.total, progress.pending) == (201, 201)
    batches.ack(ids(batch, range(101)))
    assert batches.progress(batch).pending == 100
    assert len(list(batches.missing(batch))) == 100
    assert broken(world.items(), []) == ""


def test_a_retry_of_an_emptied_leaf_holds_completion_up(world: World) -> None:
    batches = world.batches()
    batch = batches.open().id
    batches.add(batch, 66, request_id="r", group_size=1)
    batches.fail(ids(batch, [65]))
    batches.ack(ids(batch, range(66)))
    assert batches.retry(ids(batch, [65])).changed == 1
    assert not batches.seal(batch).complete
    assert broken(world.items(), []) == ""
    assert batches.ack(ids(batch, [65])).completed == (batch,)


def test_bad_ids_and_ended_batches_are_refused(world: World) -> None:
    batches = world.batches()
    batch = batches.open().id
    batches.add(batch, 1, request_id="r")
    with pytest.raises(UnknownItems) as refused:
        batches.ack([f"{batch}:0:0", f"{batch}:0:1", f"{batch}:1:0"])
    assert sorted(refused.value.items) == [f"{batch}:0:1", f"{batch}:1:0"]
    assert batches.progress(batch).pending == 1
    batches.seal(batch)
    with pytest.raises(BatchSealed):
        batches.add(batch, 1, request_id="late")
    batches.cancel(batch)
    with pytest.raises(BatchEnded):
        batches.ack([f"{batch}:0:0"])
    assert [b.id for b in batches.list("open")] == []


def test_a_nested_batch_settles_its_parents_item(world: World) -> None:
    batches = world.batches()
    parent = batches.open().id
    batches.add(parent, 1, request_id="r")
    batches.seal(parent)
    child = batches.open(parent_item=f"{parent}:0:0").id
    assert batches.seal(child).complete
    assert batches.progress(parent).complete
    assert sorted(m["id"] for m in world.completed()) == sorted([parent, child])


def test_an_item_has_one_nested_batch_at_a_time(world: World) -> None:
    batches = world.batches()
    parent = batches.open().id
    batches.add(parent, 1, request_id="r")
    item = f"{parent}:0:0"
    child = batches.open(parent_item=item).id
    with pytest.raises(ParentItemTaken):
        batches.open(parent_item=item)
    assert batches.open(id=child, parent_item=item).id == child
    batches.cancel(child)
    batches.retry([item])
    assert batches.open(parent_item=item).id != child
    assert broken(world.items(), []) == ""


def test_every_group_of_a_cancelled_batch_refuses(world: World) -> None:
    batches = world.batches()
    batch = batches.open().id
    batches.add(batch, 130, request_id="r", group_size=1)
    batches.ack(ids(batch, [3]))
    batches.cancel(batch)
    for group in (3, 0, 129):
        with pytest.raises(BatchEnded):
            batches.ack(ids(batch, [group]))
    progress = batches.progress(batch)
    assert (progress.pending, progress.acked) == (129, 1)


def test_a_batch_waits_for_a_retry_and_calls_back_in_its_last_write(world: World) -> None:
    batches = world.batches()
    batch = batches.open(on_success="sqs:http://q/done").id
    batches.add(batch, 1, request_id="r")
    batches.seal(batch)
    batches.fail(ids(batch, [0]))
    assert world.completed() == []
    batches.retry(ids(batch, [0]))
    assert batches.ack(ids(batch, [0])).completed == (batch,)
    assert [m["id"] for m in world.completed()] == [batch]


def test_an_image_of_an_emptied_item_asks_for_a_cascade(world: World) -> None:
    batches = world.batches()
    batch = batches.open().id
    batches.add(batch, 65, request_id="r", group_size=1)
    batches.ack(ids(batch, [0, 64]))
    found = {repr(emptied(item)) for item in world.items()} - {"None"}
    assert len(found) == 3  # two leaves and the node over the second
    assert BatchMaintenance(batches).cascade.cascade([]) == []


def test_lists_go_on_from_where_a_page_ended(world: World) -> None:
    batches = world.batches()
    opened = {batches.open(f"key-{number}").id for number in range(12)}
    found: list[str] = []
    after = None
    for _ in range(20):
        page = batches.list_page("open", after=after, limit=5)
        found += [batch.id for batch in page.entries]
        after = page.after
        if after is None:
            break
    assert sorted(found) == sorted(opened)
    batch = found[0]
    batches.add(batch, 150, request_id="r", group_size=2)
    batches.fail(ids(batch, range(70, 75)), "broken")
    whole = list(batches.missing(batch))
    first = batches.missing_page(batch, limit=100)
    rest = batches.missing_page(batch, after=first.after, limit=100)
    assert [*first.entries, *rest.entries] == whole
    assert [f.id for f in batches.failed_page(batch).entries] == ids(batch, range(70, 75))


def test_many_workers_on_one_leaf_lose_no_ack_and_complete_once(world: World) -> None:
    batches = world.batches()
    batch = batches.open().id
    batches.add(batch, 48, request_id="r", group_size=24)
    batches.seal(batch)
    completed: list[str] = []

    def work(number: int) -> None:
        mine = world.batches()
        for group in (0, 1):
            for index in range(number, 24, 6):
                _until_done(mine, f"{batch}:{group}:{index}", completed.extend)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    keys = [child for child in map(emptied, world.items()) if child and not isinstance(child, str)]
    completed += BatchMaintenance(batches).cascade.cascade(keys)
    assert set(completed) == {batch}  # each call that finds it complete says so
    assert len(world.completed()) == 1
    assert batches.progress(batch).acked == 48


def _until_done(batches: Batches, item: str, done: Callable[[Iterable[str]], None]) -> None:
    for _ in range(20):
        try:
            done(batches.ack([item]).completed)
        except BatchBusy:
            continue
        return
    raise AssertionError(f"{item} stayed busy")
