"""Checkpoints: rows that need not be read are not, and counts stay exact under any batching."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message
from fairbox.dispatch.stream import checkpoints
from fairbox.dispatch.stream.checkpoints import ROLLOUT_SECONDS, WORTHWHILE, Span
from fairbox.dynamodb.delivery_store import DynamoStore
from fairbox.errors import Unavailable
from fairbox.testing.application import DELIVERIES
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.application import App

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARDS = 64


def application(shards: int = SHARDS) -> App:
    """An application whose processes began long ago."""
    app = App("a", shards=shards)
    app.clock.advance(ROLLOUT_SECONDS + 1)
    return app


def add(app: App, count: int) -> None:
    app.outbox.add_many(
        [Message(topic="orders", body=b"", id=app.ids.next()) for _ in range(count)]
    )


def counts(app: App) -> dict[int, int]:
    rows = app.store.shard_rows([("orders", 0, n) for n in range(SHARDS)])
    return {row.shard: row.ready for row in rows if row.ready}


def lying(app: App) -> dict[int, int]:
    found: dict[int, int] = {}
    for item in app.lying():
        shard = int(item["pk"]["S"].split("#")[3])
        found[shard] = found.get(shard, 0) + 1
    return found


def test_rows_whose_changes_cancel_out_are_not_read() -> None:
    app = application()
    app.mark()
    add(app, 200)
    app.relay()
    app.meter.reset()
    app.mark()
    assert app.meter.reading().rru <= 4, "the version row, checkpoints and recounts"
    assert counts(app) == {}


def test_a_few_rows_are_read_as_they_are_cheaper() -> None:
    app = application()
    add(app, WORTHWHILE - 1)
    app.relay()
    app.mark()
    app.meter.reset()
    add(app, WORTHWHILE - 1)
    app.relay()
    app.clock.advance(2)
    app.mark()
    assert app.meter.reading().calls.get("query", 0) == 0


def test_while_older_functions_may_run_every_row_is_read() -> None:
    app = App("a", shards=SHARDS)
    add(app, 200)
    app.relay()
    app.meter.reset()
    app.mark()
    assert app.meter.reading().rru >= 60


def noted(name: str, order: list[str]) -> Any:
    """Return a method of the store that notes when it is called."""
    method = getattr(DynamoStore, name)

    def called(self: Any, *args: Any) -> Any:
        order.append(name)
        return method(self, *args)

    return called


def test_a_process_that_writes_a_row_writes_first_where_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = application()
    add(app, 3)
    order: list[str] = []
    for name in ("write_checkpoint", "change_row"):
        monkeypatch.setattr(DynamoStore, name, noted(name, order))
    app.mark()
    assert order[0] == "write_checkpoint"
    assert order.count("write_checkpoint") == 1
    (item,) = [i for i in app.engine.items(DELIVERIES) if i["pk"]["S"].startswith("checkpoint#")]
    assert int(item["x"]["N"]) > app.clock.now() + 86_400


def test_without_its_checkpoint_no_row_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    app = application()
    add(app, 3)

    def refuse(*_: Any) -> None:
        raise Unavailable("batch_write_item", "no")

    monkeypatch.setattr(DynamoStore, "write_checkpoint", refuse)
    with pytest.raises(Unavailable):
        app.mark()
    assert counts(app) == {}


def test_a_recount_learns_of_changes_that_cancel_out() -> None:
    app = application(1)
    add(app, 4)
    app.mark()
    row = app.row()
    app.store.change_row(row.doubted(int(app.clock.now() * 1000)), row)
    app.store.ask_recount(("orders", 0, 0))

    def meanwhile() -> None:
        app.relay()
        app.mark()

    app.repair(meanwhile=meanwhile)
    app.repair(meanwhile=meanwhile)
    assert (app.row().ready, app.row().recount) == (0, None)


def delivered_in_any_batches(app: App, seed: int) -> None:  # noqa: C901 - one history
    """Hand the stream over in batches that fail behind their counts, and come again otherwise."""
    rng = random.Random(seed)
    write = DynamoStore.write_ledger
    change = DynamoStore.change_row
    failing = {"ledger": 0.0, "row": 0.0}

    def ledger(self: Any, items: Sequence[Any]) -> None:
        if rng.random() < failing["ledger"]:
            raise Unavailable("batch_write_item", "no")
        write(self, items)

    def row(self: Any, after: Any, before: Any) -> bool:
        if rng.random() < failing["row"]:
            raise Unavailable("update_item", "no")
        return change(self, after, before)

    def handle(batch: Sequence[Any]) -> int:
        try:
            app._marking.handle(batch)
        except Unavailable:
            return 0
        return len(batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "WORTHWHILE", 1)
        patch.setattr(DynamoStore, "write_ledger", ledger)
        patch.setattr(DynamoStore, "change_row", row)
        at = 0
        for _ in range(12):
            add(app, rng.randrange(6))
            if rng.random() < 0.7:
                app.relay()
            app.clock.advance(rng.choice([0.2, 1, 20]))
            records = app.records()
            failing |= {"ledger": rng.choice([0.0, 0.7]), "row": rng.choice([0.0, 0.3])}
            for _ in range(10):  # what is left then comes in longer batches, with more behind it
                at += handle(records[at : at + rng.randint(1, 12)])
        failing |= {"ledger": 0.0, "row": 0.0}
        app.relay()
        records = app.records()
        while at < len(records):
            at += handle(records[at : at + 12])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9))
def test_counts_are_exact_under_any_batching(seed: int) -> None:
    app = application(4)
    delivered_in_any_batches(app, seed)
    assert counts(app) == lying(app)


def test_a_process_that_looks_for_no_checkpoints_would_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DynamoStore, "checkpoints", lambda *_: frozenset())

    def wrong(seed: int) -> bool:
        app = application(4)
        delivered_in_any_batches(app, seed)
        return counts(app) != lying(app)

    assert any(map(wrong, range(60)))


def test_records_that_do_not_say_when_they_were_made_are_left_out_of_the_span() -> None:
    made = {"dynamodb": {"SequenceNumber": "7", "ApproximateCreationDateTime": 3.5}}
    assert Span.of([{}, {"dynamodb": None}, made]) == Span(["7"], 3000, 3000, 3000)
    assert Span.of([{}]) is None
