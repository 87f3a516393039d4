"""Batches over the application in memory: what users see, what it costs, how it ends."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import BatchEnded, Batches, BatchSealed
from fairbox.batches.batch_parts import CASCADE_TRIES
from fairbox.errors import NotConfigured, UnknownBatch, UnknownTopic
from fairbox.settings import Settings
from fairbox.tables.batch_records import item_of
from fairbox.tables.batch_values import COMPLETED_TOPIC, ORPHANED_TOPIC, LeafKey
from fairbox.testing import CostMeter, Fault, FaultyDynamoDB
from fairbox.testing.application import MemoryApplication
from fairbox.testing.units import item_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOUR = 3600


@pytest.fixture
def app() -> MemoryApplication:
    return MemoryApplication()


def opened(app: MemoryApplication, *counts: int, size: int = 4, **fields: Any) -> str:
    batch = app.batches.open(**fields).id
    for number, count in enumerate(counts):
        app.batches.add(batch, count, request_id=f"r{number}", group_size=size)
    return batch


def messages(app: MemoryApplication, topic: str = COMPLETED_TOPIC) -> list[Any]:
    try:
        return [json.loads(m.body) for m in app.outbox.outstanding(topic)]
    except UnknownTopic:
        return []


def everything(batch: str, sizes: Sequence[int]) -> list[str]:
    return [f"{batch}:{group}:{n}" for group, size in enumerate(sizes) for n in range(size)]


def test_the_last_ack_of_a_sealed_batch_completes_it_and_says_so_once(
    app: MemoryApplication,
) -> None:
    batch = opened(app, 6, user_key="catalog-7", metadata={"by": "ü"})
    app.batches.fail([f"{batch}:1:1"], "no such file")
    app.batches.seal(batch)
    assert app.batches.ack(everything(batch, [4])).completed == ()
    last = app.batches.ack([f"{batch}:1:0"])
    assert last.completed == (batch,)
    assert last.changed == 1
    (message,) = messages(app)
    opened_at = message.pop("opened_at")
    assert opened_at == message.pop("completed_at") == int(app.clock.now() * 1000)
    assert message == {
        "id": batch,
        "user_key": "catalog-7",
        "metadata": {"by": "ü"},
        "total": 6,
        "acked": 5,
        "failed": 1,
    }
    assert app.batches.ack([f"{batch}:1:0"]).completed == ()
    assert app.cascade() == []
    assert len(messages(app)) == 1


def test_an_ack_is_told_that_the_stream_has_completed_its_batch(app: MemoryApplication) -> None:
    batch = opened(app, 1)
    app.batches.seal(batch)
    cascade: Any = app.batches._context.cascade
    shipped = cascade.cascade

    def late(emptied: Any) -> Any:
        app.cascade()  # the stream's function was faster
        return shipped(emptied)

    cascade.cascade = late
    result = app.batches.ack([f"{batch}:0:0"])
    assert (result.changed, result.completed) == (1, (batch,))
    assert len(messages(app)) == 1


@pytest.mark.parametrize("completed", [True, False])
def test_an_ack_that_lost_every_race_is_told_what_the_winner_has_done(
    app: MemoryApplication, monkeypatch: pytest.MonkeyPatch, completed: bool
) -> None:
    batch = opened(app, 1)
    app.batches.seal(batch)
    lost: list[int] = []

    def loses(*_: Any) -> None:
        lost.append(1)
        if completed and len(lost) == CASCADE_TRIES:
            patched.undo()
            app.cascade()

    with monkeypatch.context() as patched:
        patched.setattr(app.batches._context.cascade, "write_root", loses)
        result = app.batches.ack([f"{batch}:0:0"])
    assert (result.changed, result.completed) == (1, (batch,) if completed else ())
    app.cascade()
    assert len(messages(app)) == 1


def test_the_message_carries_the_batch_as_its_partition_key(app: MemoryApplication) -> None:
    batch = opened(app)
    assert app.batches.seal(batch).complete
    (message,) = app.outbox.outstanding(COMPLETED_TOPIC)
    assert message.partition_key == batch
    assert message.content_type == "application/json"


def test_an_empty_batch_completes_when_it_is_sealed_and_seal_answers_the_same_again(
    app: MemoryApplication,
) -> None:
    batch = opened(app)
    first = app.batches.seal(batch)
    assert first.complete
    assert app.batches.seal(batch) == first
    assert len(messages(app)) == 1


@pytest.mark.guarantee("settled-stays")
def test_add_gives_ids_and_the_same_request_gives_them_again(app: MemoryApplication) -> None:
    batch = opened(app, 10)
    groups = app.batches.add(batch, 5, request_id="more", group_size=2)
    assert [(g.id, g.size) for g in groups] == [
        (f"{batch}:3", 2),
        (f"{batch}:4", 2),
        (f"{batch}:5", 1),
    ]
    assert list(groups[2].item_ids()) == [f"{batch}:5:0"]
    assert app.batches.add(batch, 5, request_id="more", group_size=2) == groups
    assert app.batches.progress(batch).total == 15


def test_a_large_add_counts_when_it_is_done_and_spreads_over_nodes(app: MemoryApplication) -> None:
    batch = opened(app, 300, size=1)
    assert app.batches.progress(batch).pending == 300
    app.batches.seal(batch)
    assert app.batches.ack(everything(batch, [1] * 299)).completed == ()
    assert app.batches.ack([f"{batch}:299:0"]).completed == (batch,)
    assert messages(app)[0]["acked"] == 300


def test_a_large_add_that_was_cut_off_is_finished_by_the_same_request() -> None:
    faulty: list[FaultyDynamoDB] = []

    def wrap(client: Any) -> FaultyDynamoDB:
        faulty.append(FaultyDynamoDB(client, MemoryApplication().rng))
        return faulty[0]

    app = MemoryApplication(wrap=wrap)
    batch = opened(app)
    faulty[0].next("transact_write_items", None, None, *[Fault.TIMEOUT_UNAPPLIED] * 8)
    with pytest.raises(Exception, match="failed"):
        app.batches.add(batch, 300, request_id="r", group_size=1)
    assert app.batches.progress(batch).total == 0
    with pytest.raises(Exception, match="never issued"):
        app.batches.ack([f"{batch}:0:0"])
    assert len(app.batches.add(batch, 300, request_id="r", group_size=1)) == 300
    assert app.batches.progress(batch).total == 300


def test_the_first_outcome_of_an_item_stands(app: MemoryApplication) -> None:
    batch = opened(app, 4)
    app.batches.fail([f"{batch}:0:0"], "first")
    app.batches.ack([f"{batch}:0:1"])
    assert app.batches.ack([f"{batch}:0:0"]).changed == 0
    assert app.batches.fail([f"{batch}:0:1"], "late").changed == 0
    progress = app.batches.progress(batch)
    assert (progress.acked, progress.failed, progress.pending) == (1, 1, 2)


def test_reasons_are_kept_for_the_eight_newest_failures_of_a_group(app: MemoryApplication) -> None:
    batch = opened(app, 10, size=10)
    for index in range(10):
        app.batches.fail([f"{batch}:0:{index}"], f"{index}" + "ü" * 100)
    found = list(app.batches.failed(batch))
    assert [f.id for f in found] == everything(batch, [10])
    assert [bool(f.reason) for f in found] == [False] * 2 + [True] * 8
    assert all(len(f.reason.encode()) <= 120 for f in found)


def test_a_retried_item_is_pending_again_and_holds_completion_up(app: MemoryApplication) -> None:
    batch = opened(app, 1, 1, size=1)
    app.batches.fail([f"{batch}:0:0"])
    assert app.batches.retry([f"{batch}:0:0", f"{batch}:1:0"]).changed == 1
    assert list(app.batches.failed(batch)) == []
    app.batches.seal(batch)
    assert app.batches.ack([f"{batch}:1:0"]).completed == ()
    assert app.batches.ack([f"{batch}:0:0"]).completed == (batch,)
    assert messages(app)[0]["failed"] == 0
    with pytest.raises(BatchEnded):
        app.batches.retry([f"{_failed_and_complete(app)}:0:0"])


def _failed_and_complete(app: MemoryApplication) -> str:
    batch = opened(app, 1)
    app.batches.seal(batch)
    app.batches.fail([f"{batch}:0:0"])
    return batch


def test_a_retry_under_an_emptied_node_takes_its_sums_off_the_root(app: MemoryApplication) -> None:
    batch = opened(app, 66, 1, size=1)
    app.batches.fail([f"{batch}:65:0"])
    app.batches.ack(everything(batch, [1] * 67))
    assert app.batches.progress(batch).failed == 1
    app.batches.retry([f"{batch}:65:0"])
    progress = app.batches.progress(batch)
    assert (progress.acked, progress.failed, progress.pending) == (66, 0, 1)
    app.batches.seal(batch)
    assert app.batches.ack([f"{batch}:65:0"]).completed == (batch,)


def test_missing_names_pending_items_in_order(app: MemoryApplication) -> None:
    batch = opened(app, 6)
    app.batches.ack([f"{batch}:0:1", f"{batch}:1:0"])
    assert list(app.batches.missing(batch)) == [
        f"{batch}:0:0",
        f"{batch}:0:2",
        f"{batch}:0:3",
        f"{batch}:1:1",
    ]


def test_an_estimate_says_its_bound_and_holds_it(app: MemoryApplication) -> None:
    batch = opened(app, 400, size=2)
    app.batches.ack([f"{batch}:{group}:0" for group in range(0, 200, 3)])
    guess, truth = app.batches.progress(batch, exact=False), app.batches.progress(batch)
    assert not guess.exact
    assert truth.exact
    assert truth.error == 0
    assert 0 < guess.error < 40
    assert abs(guess.pending - truth.pending) <= guess.error
    assert truth.pending <= guess.limit
    few = opened(app, 100)
    assert app.batches.progress(few, exact=False).exact


def test_progress_of_many_groups_is_exact_under_throttling() -> None:
    rates = {Fault.THROTTLED: 0.2, Fault.UNPROCESSED: 0.2}
    app = MemoryApplication(wrap=lambda client: FaultyDynamoDB(client, random.Random(3), rates))
    batch = opened(app, 900, size=1)
    app.batches.ack(everything(batch, [1] * 40))
    progress = app.batches.progress(batch)
    assert (progress.pending, progress.acked) == (860, 40)


class Busy:
    """A client before each of whose reads somebody else does something, while it is let to."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.meanwhile: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
            self.meanwhile = meanwhile
        return getattr(self._client, name)


@pytest.mark.parametrize("exact", [True, False])
def test_progress_holds_together_while_items_are_added_and_acked(*, exact: bool) -> None:
    """A node that is read after the root counts adds that the root does not."""
    clients: list[Busy] = []

    def wrapped(client: Any) -> Busy:
        clients.append(Busy(client))
        return clients[-1]

    app = MemoryApplication(wrap=wrapped)
    batch = opened(app, 200, size=1)
    requests = map(str, itertools.count())

    def add() -> None:
        groups = app.batches.add(batch, 60, request_id=next(requests), group_size=3)
        app.batches.ack(list(groups[0].item_ids()))

    before = app.batches.progress(batch)
    clients[0].meanwhile = add
    found = app.batches.progress(batch, exact=exact)
    clients[0].meanwhile = None
    after = app.batches.progress(batch)
    assert before.total < after.total
    assert before.total <= found.total <= after.total
    assert found.pending + found.acked + found.failed == found.total
    assert min(found.acked, found.pending, found.limit) >= 0
    assert found.pending <= after.pending


def test_a_nested_batch_settles_its_parents_item(app: MemoryApplication) -> None:
    parent = opened(app, 3, size=1)
    app.batches.seal(parent)
    good, bad, gone = (opened(app, 1, parent_item=f"{parent}:{n}:0") for n in range(3))
    app.batches.seal(good)
    assert app.batches.ack([f"{good}:0:0"]).completed == (good,)
    app.batches.seal(bad)
    app.batches.fail([f"{bad}:0:0"])
    assert [f.id for f in app.batches.failed(parent)] == [f"{parent}:1:0"]
    app.batches.cancel(gone)
    assert app.batches.progress(parent).complete
    assert [m["id"] for m in messages(app)] == [good, bad, parent]
    assert messages(app)[2]["failed"] == 2


def test_a_batch_that_is_there_is_opened_again_as_it_is(app: MemoryApplication) -> None:
    parent = opened(app, 1)
    own = "6f6b1fd4-6b39-4a0f-9a4b-2b6c5f0e8a11"
    first = app.batches.open("a", id=own, parent_item=f"{parent}:0:0")
    app.batches.ack([f"{parent}:0:0"])
    assert app.batches.open("other", id=own, parent_item=f"{parent}:0:0") == first


def test_a_cancelled_batch_never_completes_and_refuses(app: MemoryApplication) -> None:
    batch = opened(app, 1)
    app.batches.seal(batch)
    assert app.batches.cancel(batch).state == "cancelled"
    assert app.batches.cancel(batch).state == "cancelled"
    with pytest.raises(BatchEnded) as refused:
        app.batches.ack([f"{batch}:0:0"])
    assert refused.value.items == (f"{batch}:0:0",)
    with pytest.raises(BatchEnded):
        app.batches.seal(batch)
    assert messages(app) == []


def test_ids_that_go_with_their_batch_between_two_reads_are_not_called_unknown(
    app: MemoryApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = opened(app, 97, size=1)  # a large add: its leaves name their request
    requests = app.batches.store.requests

    def erased_first(keys: Any) -> Any:
        app.batches.cancel(batch)
        return requests(keys)

    monkeypatch.setattr(app.batches.store, "requests", erased_first)
    with pytest.raises(BatchEnded) as refused:
        app.batches.ack([f"{batch}:7:0"])
    assert (refused.value.state, refused.value.items) == ("cancelled", (f"{batch}:7:0",))


def test_a_complete_batch_is_not_cancelled(app: MemoryApplication) -> None:
    batch = opened(app)
    app.batches.seal(batch)
    with pytest.raises(BatchEnded):
        app.batches.cancel(batch)


def test_batches_are_listed_by_state(app: MemoryApplication) -> None:
    one, two, three = opened(app), opened(app, 1), opened(app, 1)
    app.batches.seal(two)
    app.batches.cancel(three)
    assert [b.id for b in app.batches.list("open")] == [one]
    assert [b.id for b in app.batches.list("sealed")] == [two]
    assert [b.id for b in app.batches.list("open", limit=1)] == [one]


def test_an_idle_batch_is_kept_while_acks_come_and_reaped_after(app: MemoryApplication) -> None:
    batch = opened(app, 8, metadata={"k": 1})
    app.clock.advance(6 * 24 * HOUR)
    app.batches.ack([f"{batch}:0:0"])
    assert list(app.keeper.cleanup.due_for_check()) == []
    app.clock.advance(2 * 24 * HOUR)
    assert list(app.keeper.cleanup.due_for_check()) == [batch]
    assert app.keeper.cleanup.check_orphan(batch).fate == "kept"
    assert list(app.keeper.cleanup.due_for_check()) == []
    app.clock.advance(7 * 24 * HOUR)
    assert app.keeper.cleanup.check_orphan(batch, dry_run=True).fate == "reaped"
    assert app.batches.progress(batch).state == "open"
    assert app.keeper.cleanup.check_orphan(batch).fate == "reaped"
    (message,) = messages(app, ORPHANED_TOPIC)
    assert (message["pending"], message["acked"], message["metadata"]) == (7, 1, {"k": 1})
    assert app.keeper.lifecycle.erase(batch)
    with pytest.raises(BatchEnded):
        app.batches.ack([f"{batch}:0:1"])
    assert app.keeper.cleanup.check_orphan(batch).fate == "ended"
    assert messages(app) == []


def test_a_look_finishes_what_a_crash_cut_off(app: MemoryApplication) -> None:
    batch = opened(app, 1)
    app.batches.seal(batch)
    cascade: Any = app.batches._context.cascade
    cascade.cascade = lambda _: []
    app.batches.ack([f"{batch}:0:0"])
    del cascade.cascade
    assert app.keeper.cleanup.check_orphan(batch).fate == "ended"
    assert [m["id"] for m in messages(app)] == [batch]


def test_the_stream_finishes_what_a_crash_cut_off(app: MemoryApplication) -> None:
    batch = opened(app, 66, size=1)
    app.batches.seal(batch)
    cascade: Any = app.batches._context.cascade
    cascade.cascade = lambda _: []
    app.batches.ack(everything(batch, [1] * 66))
    del cascade.cascade
    assert app.cascade() == [batch]


def test_a_nested_batch_is_cancelled_with_its_parent(app: MemoryApplication) -> None:
    parent = opened(app, 1)
    child = opened(app, 1, parent_item=f"{parent}:0:0")
    app.batches.cancel(parent)
    assert app.keeper.cleanup.check_orphan(child).fate == "cancelled"
    assert app.batches.progress(child).state == "cancelled"


def test_a_nested_batch_that_lives_keeps_its_parent_alive(app: MemoryApplication) -> None:
    parent = opened(app, 1)
    child = opened(app, 1, parent_item=f"{parent}:0:0")
    for _ in range(10):
        app.clock.advance(23 * HOUR)
        app.batches.add(child, 1, request_id=str(app.clock.now()))
        assert app.keeper.cleanup.check_orphan(child).fate == "kept"
    assert app.keeper.cleanup.check_orphan(parent).fate == "kept"


def test_erasing_takes_what_once_failed_of_groups_that_were_retried(
    app: MemoryApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = Counter[str]()
    write = app.engine.batch_write_item

    def counted(**request: Any) -> Any:
        entries = request["RequestItems"]["batches"]
        deleted.update(str(entry["DeleteRequest"]["Key"]) for entry in entries)
        return write(**request)

    monkeypatch.setattr(app.engine, "batch_write_item", counted)
    batch = opened(app, 40, size=1)
    app.batches.seal(batch)
    app.batches.fail([f"{batch}:30:0"])
    app.batches.retry([f"{batch}:30:0"])
    app.batches.ack(everything(batch, [1] * 40))
    app.clock.advance(8 * 24 * HOUR)
    assert app.batches.progress(batch).failed == 0
    assert app.keeper.lifecycle.erase(batch)
    assert sum(i["pk"]["S"].startswith(batch) for i in app.engine.items("batches")) == 1
    assert set(deleted.values()) == {1}


def test_erasing_leaves_the_root_alone_for_thirty_days(app: MemoryApplication) -> None:
    batch = opened(app, 130, size=1, metadata={"k": 1})
    app.batches.seal(batch)
    app.batches.fail([f"{batch}:3:0"])
    app.batches.ack(everything(batch, [1] * 130))
    assert not app.keeper.lifecycle.erase(batch)
    app.clock.advance(8 * 24 * HOUR)
    assert not app.keeper.lifecycle.erase(batch, limit=30)
    assert app.batches.progress(batch).failed == 1
    assert list(app.batches.missing(batch)) == []
    assert app.keeper.lifecycle.erase(batch)
    (root,) = (i for i in app.engine.items("batches") if i["pk"]["S"].startswith(batch))
    assert int(root["e"]["N"]) == int(app.clock.now()) + 30 * 24 * HOUR
    assert app.batches.ack([f"{batch}:5:0"]).changed == 0
    with pytest.raises(BatchEnded):
        app.batches.add(batch, 130, request_id="r0", group_size=1)
    assert list(app.batches.list("complete")) == []


def test_costs_are_those_of_the_protocol() -> None:
    meters: list[CostMeter] = []

    def wrap(client: Any) -> CostMeter:
        meters.append(CostMeter(client))
        return meters[0]

    app = MemoryApplication(wrap=wrap)
    meter = meters[0]

    def cost(call: Any) -> tuple[float, float]:
        meter.reset()
        call()
        return meter.reading().wru, meter.reading().rru

    batch = app.batches.open().id
    assert cost(lambda: app.batches.add(batch, 7168, request_id="r"))[0] == 6
    one = [f"{batch}:0:0"]
    assert cost(lambda: app.batches.ack(one)) == (1, 1)
    assert cost(lambda: app.batches.ack(one)) == (0, 1)
    thousand = [f"{batch}:0:{n}" for n in range(1, 1001)]
    assert cost(lambda: app.batches.ack(thousand)) == (1, 1)
    assert cost(lambda: app.batches.fail([f"{batch}:0:2000"], "x"))[0] <= 6
    assert cost(app.batches.open)[0] == 2
    assert cost(lambda: app.batches.seal(batch))[0] == 3
    assert cost(lambda: app.batches.progress(batch))[1] <= 4


def test_a_full_leaf_is_one_write_unit_whatever_has_happened_to_it(app: MemoryApplication) -> None:
    batch = opened(app, 7168 * 97, size=7168)
    leaf = app.batches.store.leaves([LeafKey(batch, 96)])[LeafKey(batch, 96)]
    assert leaf.request
    assert item_size(item_of(leaf)) <= 1024
    app.batches.fail((f"{batch}:0:{n}" for n in range(7168)), "r" * 200)
    failed = app.batches.store.failed([LeafKey(batch, 0)])[LeafKey(batch, 0)]
    assert item_size(item_of(failed)) < 2048


def test_a_busy_sealed_batch_takes_no_more(app: MemoryApplication) -> None:
    batch = opened(app, 1)
    app.batches.seal(batch)
    with pytest.raises(BatchSealed):
        app.batches.add(batch, 1, request_id="late")
    assert app.batches.progress(batch).total == 1
    assert app.batches.add(batch, 1, request_id="r0", group_size=4)[0].ordinal == 0


def test_the_environment_must_name_the_tables() -> None:
    with pytest.raises(NotConfigured, match="FAIRBOX_BATCHES_TABLE"):
        Batches.from_env(Settings({}))


def test_an_unknown_batch_is_named(app: MemoryApplication) -> None:
    for call in (app.batches.seal, app.batches.progress, app.batches.cancel):
        for name in ("0199c82c-c000-7611-a29f-6fbed82c07cd", "no id"):
            with pytest.raises(UnknownBatch) as refused:
                call(name)
            assert refused.value.batch == name
