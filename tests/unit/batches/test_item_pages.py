"""Pages of missing and failed items and of lists: whole, in order, bounded in their reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from fairbox import InvalidInput, Page, UnknownBatch
from fairbox.batches import batch_lists as walking
from fairbox.testing import CostMeter
from fairbox.testing.application import MemoryApplication

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

NOBODY = "0199c82c-c000-7611-a29f-000000000000"


@pytest.fixture
def app() -> MemoryApplication:
    return MemoryApplication()


@pytest.fixture
def batch(app: MemoryApplication) -> str:
    """70 groups of three items, of which six lie under a node."""
    made = app.batches.open().id
    app.batches.add(made, 210, request_id="r", group_size=3)
    return made


def pages_of(read: Callable[[str | None], Page[T]]) -> list[Page[T]]:
    pages = [read(None)]
    while pages[-1].after is not None:
        assert len(pages) < 500
        pages.append(read(pages[-1].after))
    return pages


def entries_of(read: Callable[[str | None], Page[T]]) -> list[T]:
    return [entry for page in pages_of(read) for entry in page.entries]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 209, 210, 211, 1000])
def test_pages_of_missing_items_are_the_whole_in_order(
    app: MemoryApplication, batch: str, limit: int
) -> None:
    app.batches.ack([f"{batch}:{group}:1" for group in range(0, 70, 2)])
    app.batches.ack([f"{batch}:{group}:{index}" for group in (5, 66) for index in range(3)])
    whole = list(app.batches.missing(batch))
    assert len(whole) == 210 - 35 - 3 - 2

    pages = pages_of(lambda after: app.batches.missing_page(batch, after=after, limit=limit))

    assert [item for page in pages for item in page.entries] == whole
    assert all(len(page.entries) <= limit for page in pages)
    assert pages[-1].entries, "the last page is never asked for in vain"


@pytest.mark.parametrize("limit", [1, 4, 1000])
def test_pages_of_failed_items_are_the_whole_in_order_with_reasons(
    app: MemoryApplication, batch: str, limit: int
) -> None:
    wrong = [f"{batch}:{group}:{index}" for group in (0, 3, 63, 64, 69) for index in (0, 2)]
    app.batches.fail(wrong, "broken")
    app.batches.ack([f"{batch}:{group}:{index}" for group in (3, 64) for index in range(3)])

    found = entries_of(lambda after: app.batches.failed_page(batch, after=after, limit=limit))

    assert [f.id for f in found] == wrong
    assert {f.reason for f in found} == {"broken"}
    assert found == list(app.batches.failed(batch))


def test_failed_items_are_listed_after_their_node_is_finished(
    app: MemoryApplication, batch: str
) -> None:
    app.batches.fail([f"{batch}:67:1"])
    app.batches.ack([f"{batch}:{group}:{index}" for group in range(64, 70) for index in range(3)])
    assert [f.id for f in app.batches.failed_page(batch).entries] == [f"{batch}:67:1"]


def test_a_walk_goes_on_behind_an_item(app: MemoryApplication, batch: str) -> None:
    whole = list(app.batches.missing(batch))
    for place in (0, 1, 2, 100, 191, 192, 208, 209):
        assert list(app.batches.missing(batch, after=whole[place])) == whole[place + 1 :]
    app.batches.fail(whole[:4])
    assert [f.id for f in app.batches.failed(batch, after=whole[1])] == whole[2:4]


def test_a_page_reads_a_bounded_part_though_it_finds_nothing(
    app: MemoryApplication, batch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walking, "MAX_PAGE_READS", 10)
    app.batches.fail([f"{batch}:69:2"])

    pages = pages_of(lambda after: app.batches.failed_page(batch, after=after, limit=5))

    assert [f.id for page in pages for f in page.entries] == [f"{batch}:69:2"]
    assert len(pages) > 1
    assert not pages[0].entries


def test_a_page_of_a_large_batch_costs_a_few_reads() -> None:
    meters: list[CostMeter] = []

    def metered(client: Any) -> CostMeter:
        meters.append(CostMeter(client))
        return meters[-1]

    app = MemoryApplication(wrap=metered)
    batch = app.batches.open().id
    app.batches.add(batch, 20_000, request_id="r", group_size=100)
    meters[0].reset()
    assert len(app.batches.missing_page(batch, limit=100).entries) == 100
    assert meters[0].reading().rru <= 10


def test_a_place_of_another_batch_is_refused(app: MemoryApplication, batch: str) -> None:
    for after in (f"{NOBODY}:0:0", "", batch, "0:1:2"):
        for page in (app.batches.missing_page, app.batches.failed_page):
            with pytest.raises(InvalidInput) as refused:
                page(batch, after=after)
            assert refused.value.field == "after"
    with pytest.raises(UnknownBatch):
        app.batches.missing_page(NOBODY)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5])
def test_a_page_of_no_size_is_refused(app: MemoryApplication, batch: str, limit: Any) -> None:
    for read in (
        lambda: app.batches.missing_page(batch, limit=limit),
        lambda: app.batches.failed_page(batch, limit=limit),
        lambda: app.batches.list_page(limit=limit),
    ):
        with pytest.raises(InvalidInput) as refused:
            read()
        assert refused.value.field == "limit"


def test_nothing_is_missing_of_a_batch_that_is_erased(app: MemoryApplication, batch: str) -> None:
    app.batches.cancel(batch)
    assert app.batches.missing_page(batch) == Page(())
    assert app.batches.failed_page(batch) == Page(())


@pytest.mark.parametrize("limit", [1, 4, 20, 100])
def test_pages_of_a_list_have_every_batch_once(app: MemoryApplication, limit: int) -> None:
    opened = {app.batches.open(f"key-{n}").id for n in range(20)}
    sealed = {app.batches.open().id for _ in range(3)}
    for batch in sealed:
        app.batches.add(batch, 1, request_id="r")
        app.batches.seal(batch)

    pages = pages_of(lambda after: app.batches.list_page(after=after, limit=limit))

    found = [batch.id for page in pages for batch in page.entries]
    assert sorted(found) == sorted(opened)
    assert all(len(page.entries) <= limit for page in pages)
    assert {b.id for b in app.batches.list_page("sealed").entries} == sealed
    assert {b.user_key for b in app.batches.list_page().entries} == {f"key-{n}" for n in range(20)}


def test_a_list_goes_on_though_the_batch_at_its_place_has_gone(app: MemoryApplication) -> None:
    opened = {app.batches.open().id for _ in range(6)}
    first = app.batches.list_page(limit=3)
    for batch in first.entries:
        app.batches.cancel(batch.id)
    rest = entries_of(lambda after: app.batches.list_page(after=after or first.after))
    assert {b.id for b in (*first.entries, *rest)} == opened


@pytest.mark.parametrize(
    "after", ["", "8:1:" + NOBODY, "0:01:" + NOBODY, "0:1:x", "0:-1:" + NOBODY]
)
def test_a_place_that_no_list_gave_is_refused(app: MemoryApplication, after: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        app.batches.list_page(after=after)
    assert refused.value.field == "after"


def test_a_batch_and_its_metadata_are_shown(app: MemoryApplication) -> None:
    opened = app.batches.open("catalog-7", {"a": [1]})
    app.batches.add(opened.id, 5, request_id="r")
    shown = app.batches.get(opened.id)
    assert (shown.user_key, shown.state, shown.total) == ("catalog-7", "open", 5)
    assert app.batches.metadata(opened.id) == {"a": [1]}
    for read in (app.batches.get, app.batches.progress):
        with pytest.raises(UnknownBatch):
            read(NOBODY)
