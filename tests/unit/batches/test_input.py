"""Bad input: an error that names every bad id, and nothing changed."""

from __future__ import annotations

from typing import Any

import pytest
from fairbox import (
    BatchEnded,
    InvalidInput,
    MalformedItems,
    RequestConflict,
    UnknownBatch,
    UnknownItems,
)
from fairbox.testing.application import MemoryApplication

NOBODY = "0199c82c-c000-7611-a29f-000000000000"


@pytest.fixture
def app() -> MemoryApplication:
    return MemoryApplication()


@pytest.fixture
def batch(app: MemoryApplication) -> str:
    made = app.batches.open().id
    app.batches.add(made, 6, request_id="r", group_size=4)
    return made


def bad_ids(batch: str) -> list[str]:
    return [
        f"{NOBODY}:0:0",
        f"{batch}:2:0",
        f"{batch}:999999999:0",
        f"{batch}:0:4",
        f"{batch}:1:2",
        f"{batch}:0:7168",
        f"{batch}:0:99999",
    ]


def malformed(batch: str) -> list[str]:
    return [
        "",
        batch,
        f"{batch}:0",
        f"{batch}:0:-1",
        f"{batch}:00:1",
        f"{batch}:0:1 ",
        f"{batch}:0:1\n",
        f"{batch}:0:٣",
        f"{batch.upper()}:0:1",
        f"{batch}:0:0:0",
        f"{batch}:1e1:0",
    ]


@pytest.mark.parametrize("verb", ["ack", "fail", "retry"])
def test_every_bad_id_is_named_and_nothing_changes(
    app: MemoryApplication, batch: str, verb: str
) -> None:
    before = app.engine.items("batches")
    good = [f"{batch}:0:0", f"{batch}:1:1"]
    settle = getattr(app.batches, verb)
    with pytest.raises(UnknownItems) as refused:
        settle(good + bad_ids(batch))
    assert sorted(refused.value.items) == sorted(bad_ids(batch))
    assert type(refused.value) is UnknownItems
    with pytest.raises(MalformedItems, match="no item ids: ") as wrong:
        settle(good + malformed(batch))
    assert sorted(wrong.value.items) == sorted(malformed(batch))
    gone = app.batches.open().id
    app.batches.add(gone, 1, request_id="r")
    app.batches.cancel(gone)
    before = app.engine.items("batches")
    bad = [*bad_ids(batch), *malformed(batch), f"{gone}:0:0"]
    with pytest.raises(MalformedItems) as wrong:
        settle([*good, *bad])
    assert sorted(wrong.value.items) == sorted(bad)
    assert sorted(wrong.value.malformed) == sorted(malformed(batch))
    assert app.engine.items("batches") == before


@pytest.mark.parametrize("verb", ["ack", "fail", "retry"])
def test_items_of_several_ended_batches_are_all_named(
    app: MemoryApplication, batch: str, verb: str
) -> None:
    ended = [app.batches.open().id for _ in range(3)]
    for one in ended:
        app.batches.add(one, 2, request_id="r")
        app.batches.cancel(one)
    before = app.engine.items("batches")
    gone = [f"{one}:0:{index}" for one in ended for index in range(2)]
    with pytest.raises(BatchEnded) as refused:
        getattr(app.batches, verb)([f"{batch}:0:0", *gone])
    assert sorted(refused.value.items) == sorted(gone)
    assert app.engine.items("batches") == before


def test_ids_can_be_divided_into_known_and_unknown(app: MemoryApplication, batch: str) -> None:
    gone = app.batches.open().id
    app.batches.add(gone, 1, request_id="r")
    app.batches.cancel(gone)
    good = [f"{batch}:0:0", f"{batch}:1:1"]
    bad = [*bad_ids(batch), *malformed(batch), f"{gone}:0:0"]
    known, unknown = app.keeper.settlement.split_known([*bad, *good])
    assert known == good
    assert sorted(unknown) == sorted(bad)


def test_what_is_no_text_is_named_too(app: MemoryApplication) -> None:
    things: Any = [None, 7]
    with pytest.raises(MalformedItems) as refused:
        app.batches.ack(things)
    assert refused.value.malformed == refused.value.items == ("None", "7")
    with pytest.raises(InvalidInput):
        app.batches.ack("one-text")


def test_no_ids_change_nothing(app: MemoryApplication) -> None:
    assert app.batches.ack([]).changed == 0


@pytest.mark.extended  # size
def test_a_hundred_thousand_ids_go_in_one_call(app: MemoryApplication) -> None:
    batch = app.batches.open().id
    groups = app.batches.add(batch, 100_000, request_id="r")
    app.batches.seal(batch)
    result = app.batches.ack(item for group in groups for item in group.item_ids())
    assert result.changed == 100_000
    assert result.completed == (batch,)


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("count", {"count": 0}),
        ("count", {"count": -1}),
        ("count", {"count": True}),
        ("count", {"count": 1.5}),
        ("count", {"count": 10**13}),
        ("count", {"count": 10**6, "group_size": 1}),
        ("group_size", {"group_size": 0}),
        ("group_size", {"group_size": 7169}),
        ("request_id", {"request_id": ""}),
        ("request_id", {"request_id": "x" * 257}),
        ("request_id", {"request_id": None}),
    ],
)
def test_an_add_that_is_wrong_is_refused_by_field(
    app: MemoryApplication, batch: str, field: str, arguments: dict[str, Any]
) -> None:
    before = app.engine.items("batches")
    given: dict[str, Any] = {"count": 1, "request_id": "new"} | arguments
    with pytest.raises(InvalidInput) as refused:
        app.batches.add(batch, **given)
    assert refused.value.field == field
    assert app.engine.items("batches") == before


def test_a_request_id_with_other_values_is_a_conflict(app: MemoryApplication, batch: str) -> None:
    for count, size in ((5, 4), (6, 3)):
        with pytest.raises(RequestConflict) as refused:
            app.batches.add(batch, count, request_id="r", group_size=size)
        assert refused.value.request_id == "r"
    assert app.batches.progress(batch).total == 6


def test_an_add_to_no_batch_is_refused(app: MemoryApplication) -> None:
    with pytest.raises(UnknownBatch):
        app.batches.add(NOBODY, 1, request_id="r")


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("metadata", {"metadata": {"x": "y" * 4096}}),
        ("metadata", {"metadata": {"x": {1, 2}}}),
        ("metadata", {"metadata": ["a"]}),
        ("metadata", {"metadata": {"x": float("nan")}}),
        ("metadata", {"metadata": {"x": "\ud800"}}),
        ("user_key", {"user_key": "x" * 257}),
        ("user_key", {"user_key": "a\nb"}),
        ("id", {"id": "not a uuid"}),
        ("id", {"id": ""}),
        ("id", {"id": NOBODY.upper()}),
        ("parent_item", {"parent_item": "nothing"}),
    ],
)
def test_an_open_that_is_wrong_is_refused_by_field(
    app: MemoryApplication, field: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        app.batches.open(**arguments)
    assert refused.value.field == field
    assert app.engine.items("batches") == []


def test_a_parent_item_must_be_pending(app: MemoryApplication, batch: str) -> None:
    app.batches.ack([f"{batch}:0:0"])
    for item in (f"{batch}:0:0", f"{batch}:9:0", f"{NOBODY}:0:0"):
        with pytest.raises(UnknownItems):
            app.batches.open(parent_item=item)


def test_a_list_of_no_state_is_refused(app: MemoryApplication) -> None:
    state: Any = "asleep"
    with pytest.raises(InvalidInput):
        app.batches.list(state)
