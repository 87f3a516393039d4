"""Nested batches: an item has one at a time, whoever opens it, and however often."""

from __future__ import annotations

import pytest
from fairbox import InvalidInput, ParentItemTaken, UnknownItems
from fairbox.testing.application import BATCHES, MemoryApplication

MINE = "0199c82c-c000-7611-a29f-000000000001"
OTHER = "0199c82c-c000-7611-a29f-000000000002"


@pytest.fixture
def app() -> MemoryApplication:
    return MemoryApplication()


@pytest.fixture
def item(app: MemoryApplication) -> str:
    """An item of an open batch of two."""
    parent = app.batches.open().id
    app.batches.add(parent, 2, request_id="r")
    return f"{parent}:0:0"


def children(app: MemoryApplication, item: str) -> list[str]:
    """Return the batches that settle the item."""
    roots = [i for i in app.engine.items(BATCHES) if i["sk"]["S"] == "root"]
    return [i["pk"]["S"] for i in roots if i.get("up") == {"S": item}]


@pytest.mark.parametrize("metadata", [{}, {"run": 7}])
def test_a_second_nested_batch_of_an_item_is_refused(
    app: MemoryApplication, item: str, metadata: dict[str, object]
) -> None:
    first = app.batches.open("a", metadata, parent_item=item).id
    for again in (None, OTHER):
        with pytest.raises(ParentItemTaken, match="parent_item") as error:
            app.batches.open("b", metadata, id=again, parent_item=item)
        assert (error.value.item, error.value.batch) == (item, first)
    assert children(app, item) == [first]


def test_the_same_nested_batch_may_be_opened_again(app: MemoryApplication, item: str) -> None:
    first = app.batches.open("a", id=MINE, parent_item=item)
    assert app.batches.open("a", id=MINE, parent_item=item) == first
    assert app.batches.open("a", id=MINE) == first
    app.batches.seal(MINE)
    assert app.batches.open("a", id=MINE, parent_item=item).state == "complete"


def test_a_batch_settles_one_item(app: MemoryApplication, item: str) -> None:
    app.batches.open(id=MINE, parent_item=item)
    app.batches.open(id=OTHER)
    for there in (MINE, OTHER):
        with pytest.raises(InvalidInput, match="parent_item"):
            app.batches.open(id=there, parent_item=f"{item[:-1]}1")


@pytest.mark.parametrize("end", ["fail", "cancel"])
def test_an_item_that_was_put_back_may_have_another_nested_batch(
    app: MemoryApplication, item: str, end: str
) -> None:
    app.batches.open(id=MINE, parent_item=item)
    app.batches.add(MINE, 1, request_id="r")
    app.batches.seal(MINE)
    if end == "fail":
        app.batches.fail([f"{MINE}:0:0"])
    else:
        app.batches.cancel(MINE)
    with pytest.raises(UnknownItems):
        app.batches.open(id=OTHER, parent_item=item)
    app.batches.retry([item])
    assert app.batches.open(id=OTHER, parent_item=item).id == OTHER
    with pytest.raises(ParentItemTaken):
        app.batches.open(parent_item=item)


def test_the_record_of_an_ended_nested_batch_expires(app: MemoryApplication, item: str) -> None:
    app.batches.open(id=MINE, parent_item=item)
    app.batches.seal(MINE)
    (record,) = (i for i in app.engine.items(BATCHES) if i["sk"]["S"].startswith("c#"))
    assert int(record["e"]["N"]) == int(app.clock.now()) + 24 * 3600
