"""Items and attributes of a newer release stay where they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, NewerVersion, Subscription, Topic
from fairbox.aws.sqs_queues import decode
from fairbox.batches.coalesced_acks import ack_messages
from fairbox.dispatch.ports import TAKEN
from fairbox.errors import DeadLettersUnreadable
from fairbox.tables.shard_rows import read_shard
from fairbox.tables.stored_messages import read_message
from fairbox.testing.application import BATCHES, DELIVERIES, OUTBOX

from tests.releases.loading import UNKNOWN
from tests.support.application import POISONED, App

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.model.messages import MessageRef

NEXT = {"N": "2"}


def item_at(app: App, ref: MessageRef) -> dict[str, Any]:
    (item,) = [i for i in app.lying() if i["sk"]["S"].endswith(ref.id)]
    return item


def write_again(app: App, ref: MessageRef, **attributes: Any) -> None:
    """Put attributes into a message's item, as another release would."""
    app.engine.put_item(TableName=OUTBOX, Item=item_at(app, ref) | attributes)


def forget(app: App) -> None:
    """Let the relay and the marking of `app` go on behind what was just written."""
    last = app.engine.stream(OUTBOX).take()[-1]["dynamodb"]["SequenceNumber"]
    app._relayed = app._marked = last


def newer(app: App, ref: MessageRef) -> None:
    """Let a message need a reader of the next codec version; no stream tells of it."""
    app.mark()
    write_again(app, ref, v=NEXT)
    forget(app)


class TestWhatOnlyANewerReleaseReads:
    def test_the_error_names_what_was_found_and_what_is_known(self) -> None:
        app = App("billing")
        (ref,) = app.add()
        with pytest.raises(NewerVersion, match=r"needs codec version 2.* knows up to 1") as caught:
            read_message(item_at(app, ref) | {"v": NEXT})
        assert (caught.value.found, caught.value.known) == (2, 1)
        assert caught.value.key["sk"] == ref.id

    def test_it_stays_while_its_neighbours_go_and_goes_after_the_upgrade(self) -> None:
        app = App("billing")
        refs = app.add(3)
        newer(app, refs[1])
        app.clock.advance(70)
        app.run(700, step=10)
        assert app.at("billing").ids == [refs[0].id, refs[2].id]
        assert [i["sk"]["S"] for i in app.lying()] == [refs[1].id]
        assert app.dead() == []
        write_again(app, refs[1], v={"N": "1"})
        forget(app)
        app.run(1300, step=10)
        assert app.at("billing").ids == [refs[0].id, refs[2].id, refs[1].id]

    def test_the_relay_leaves_it_and_says_so(self) -> None:
        app = App("billing")
        (ref,) = app.add()
        records = app.records()
        records[0]["dynamodb"]["NewImage"]["v"] = NEXT
        report = app._relay.handle(records, deadline=app.deadline)
        assert (report.newer, report.unreadable) == (1, 0)
        assert [i["sk"]["S"] for i in app.lying()] == [ref.id]
        assert app.dead() == []

    def test_nothing_of_an_ordered_shard_goes_past_it(self) -> None:
        app = App("billing", ordering="key")
        refs = app.add(4, partition_key="k")
        newer(app, refs[2])
        app.run(300, step=10)
        assert app.at("billing").ids == [refs[0].id, refs[1].id]
        write_again(app, refs[2], v={"N": "1"})
        forget(app)
        app.run(1300, step=10)
        assert app.at("billing").ids == [r.id for r in refs]

    def test_followers_wait_when_it_came_behind_what_is_held(self) -> None:
        app = App("billing", ordering="key")
        app.at("billing").answer = lambda m: POISONED if m.message.body == b"0" else TAKEN
        refs = app.add(6, partition_key="k")
        app.run(1)
        newer(app, refs[3])
        app.at("billing").answer = lambda _: TAKEN
        app.run(120, step=5)
        assert app.at("billing").ids == [r.id for r in refs[:3]]
        write_again(app, refs[3], v={"N": "1"})
        forget(app)
        app.run(1300, step=10)
        assert app.at("billing").ids == [r.id for r in refs]

    def test_a_new_shard_waits_while_its_key_may_be_that_of_one_in_an_older_shard(self) -> None:
        app = App("billing", ordering="key")
        (first,) = app.add(partition_key="k")
        newer(app, first)
        app.outbox.resize("orders", 2)
        app.clock.advance(70)
        later = app.add(2, partition_key="k")
        app.run(120, step=5)
        assert app.at("billing").ids == []
        write_again(app, first, v={"N": "1"})
        forget(app)
        app.run(1300, step=10)
        assert app.at("billing").ids == [first.id, *(ref.id for ref in later)]

    def test_marking_sets_its_records_aside_and_repair_replays_them_after_the_upgrade(self) -> None:
        app = App("billing")
        app.add(2)
        records = app.records()
        records[1]["dynamodb"]["NewImage"]["v"] = NEXT
        report = app._marking.handle(records)
        assert (report.newer, report.failed, len(report.kept)) == (1, 0, 1)
        assert app.row().ready == 2, "a record is counted by its key, whatever its images hold"
        assert len(app.events("added")) == 1
        forget(app)
        assert app.repair().newer == 1
        assert list(app.given_up.kept) == report.kept
        records[1]["dynamodb"]["NewImage"]["v"] = {"N": "1"}
        assert app.repair().newer == 0
        assert app.given_up.kept == {}
        assert len(app.events("added")) == 2

    def test_repair_keeps_what_older_functions_gave_up_with_one_and_marks_the_others(self) -> None:
        app = App("billing")
        app.add(2)
        records = app.records()
        records[1]["dynamodb"]["NewImage"]["v"] = NEXT
        app.given_up.kept["batch"] = records
        forget(app)
        assert app.repair().newer == 1
        assert list(app.given_up.kept) == ["batch"]
        assert len(app.events("added")) == 1
        records[1]["dynamodb"]["NewImage"]["v"] = {"N": "1"}
        assert app.repair().newer == 0
        assert app.given_up.kept == {}
        assert len(app.events("added")) == 2

    def test_repair_neither_buries_it_nor_corrects_the_counts_of_its_shard(self) -> None:
        app = App("billing")
        app.outbox.pause_subscription("orders", "billing")
        refs = app.add(2)
        newer(app, refs[0])
        for _ in range(3):
            app.clock.advance(3600)
            report = app.repair()
            assert (report.newer, report.unreadable, report.recounted) == (1, 0, 0)
        assert app.row().ready == 2
        assert len(app.lying()) == 2

    def test_what_says_an_impossible_version_is_damage_and_is_buried(self) -> None:
        app = App("billing")
        (ref,) = app.add()
        newer(app, ref)
        write_again(app, ref, v={"N": "1000"})
        forget(app)
        assert app.repair().unreadable == 1
        assert len(app.dead()) == 1

    def test_a_receive_gives_what_lies_around_it_and_nothing_behind_it_where_order_counts(
        self,
    ) -> None:
        app = App()
        app.add_topic("steps", ordering="key")
        jobs, steps = app.add(3), app.add(3, "steps", partition_key="k")
        newer(app, jobs[1])
        newer(app, steps[1])
        received = app.queue.receive("orders", 10)
        assert {r.message.id for r in received} == {jobs[0].id, jobs[2].id}
        (first,) = app.queue.receive("steps", 10)
        app.queue.ack(first.receipt)
        assert app.queue.receive("steps", 10) == []
        app.queue.purge("orders")
        assert [i["sk"]["S"] for i in app.lying() if "orders" in i["pk"]["S"]] == [jobs[1].id]

    def test_a_shard_whose_row_is_newer_is_left_alone_and_others_are_swept(self) -> None:
        app = App("billing", shards=2)
        refs = app.add(8)
        app.mark()
        (row,) = [
            i
            for i in app.engine.items(OUTBOX)
            if i["sk"]["S"] == "!" and i["pk"]["S"] == f"ready#orders#0#{refs[0].shard}"
        ]
        app.engine.put_item(TableName=OUTBOX, Item=row | {"cv": NEXT})
        forget(app)
        with pytest.raises(NewerVersion):
            read_shard(row | {"cv": NEXT})
        app.clock.advance(180)
        report = app.sweep()
        assert (report.newer, report.rung) == (1, 1)
        app.visit()
        assert set(app.at("billing").ids) == {r.id for r in refs if r.shard != refs[0].shard}

    def test_a_dead_letter_is_neither_redriven_nor_purged(self) -> None:
        app = App("billing")
        app.at("billing").answer = lambda _: POISONED
        (ref,) = app.add()
        app.run(60)
        (letter,) = app.dead()
        app.engine.put_item(TableName=DELIVERIES, Item=letter | {"v": NEXT})
        with pytest.raises(DeadLettersUnreadable):
            app.outbox.redrive("orders", [ref.id])
        assert app.outbox.purge_dead("orders").left == (f"orders/0/0/{ref.id}",)
        assert len(app.dead()) == 1

    def test_a_batch_s_item_refuses_what_would_write_it_and_its_records_come_again(self) -> None:
        app = App()
        batch = app.batches.open("x")
        ids = [i for g in app.batches.add(batch.id, 2, request_id="r") for i in g.item_ids()]
        (leaf,) = [i for i in app.engine.items(BATCHES) if i["sk"]["S"] == "l"]
        app.engine.put_item(TableName=BATCHES, Item=leaf | {"cv": NEXT, "n": {"N": "0"}})
        with pytest.raises(NewerVersion):
            app.batches.ack(ids)
        app.cascade()
        assert app._cascaded is not None
        left = app.engine.stream(BATCHES).take(app._cascaded)
        assert [r["dynamodb"]["NewImage"]["cv"] for r in left] == [NEXT]

    def test_a_topic_s_row_refuses_all_that_reads_topics(self) -> None:
        app = App("billing")
        (row,) = [i for i in app.engine.items(OUTBOX) if i["sk"]["S"] == "topic#orders"]
        app.engine.put_item(TableName=OUTBOX, Item=row | {"cv": NEXT})
        with pytest.raises(NewerVersion):
            app.outbox.topics()

    def test_queue_messages_come_again(self) -> None:
        with pytest.raises(NewerVersion):
            decode(json.dumps({"version": 2, "topic": "orders"}))
        app = App()
        report = ack_messages(
            [("m1", json.dumps({"version": 2, "acks": []}))],
            app.keeper.coalesced,
            deadline=app.deadline,
        )
        assert (report.failed, report.dropped) == (["m1"], 0)


class TestWhatANewerReleasePutBeside:
    def kept(self, item: dict[str, Any]) -> bool:
        return all(item.get(name) == value for name, value in UNKNOWN.items())

    @pytest.mark.parametrize(
        "change",
        [
            lambda app, ref: app.queue.edit(ref, body=b"edited"),
            lambda app, _: app.queue.nack(app.queue.receive("orders", 1)[0].receipt, reason="no"),
            lambda app, _: app.queue.extend(app.queue.receive("orders", 1)[0].receipt, 90),
            lambda app, _: app.outbox.resize("orders", 2),
        ],
        ids=["edit", "receive and nack", "receive and extend", "resize"],
    )
    def test_it_stays_on_a_message_that_is_written(
        self, change: Callable[[App, MessageRef], None]
    ) -> None:
        app = App()
        (ref,) = app.add()
        write_again(app, ref, **UNKNOWN)
        before = item_at(app, ref)
        change(app, ref)
        assert self.kept(item_at(app, ref))
        assert before != item_at(app, ref) or app.outbox.topic("orders").topic.shards == 2

    def test_it_goes_with_a_delayed_message_that_is_moved(self) -> None:
        app = App()
        (ref,) = app.add(delay=600)
        write_again(app, ref, **UNKNOWN)
        assert self.kept(item_at(app, app.queue.reschedule(ref, 900)))

    def test_it_goes_with_a_message_to_the_dead_letters_and_back(self) -> None:
        app = App("billing")
        app.at("billing").answer = lambda _: POISONED
        app.outbox.pause_subscription("orders", "billing")
        (ref,) = app.add()
        write_again(app, ref, **UNKNOWN)
        app.outbox.resume_subscription("orders", "billing")
        app.run(60)
        assert self.kept(app.dead()[0])
        app.outbox.redrive("orders", [ref.id], headers={"edited": "yes"})
        assert self.kept(item_at(app, ref))

    def test_it_stays_on_topics_and_subscriptions_that_are_changed(self) -> None:
        app = App("billing")
        app.add_topic("steps")
        for item in app.engine.items(OUTBOX):
            app.engine.put_item(TableName=OUTBOX, Item=item | UNKNOWN)
        app.outbox.pause_topic("steps", wait=False)
        app.outbox.resume_topic("steps")
        app.outbox.resize("orders", 2)
        app.outbox.create_topic(Topic("orders", shards=2, weight=3, retry=app_retry(app)))
        app.outbox.add_subscription(Subscription("orders", "billing", "sqs:http://q/other"))
        rows = [i for i in app.engine.items(OUTBOX) if i["sk"]["S"].startswith("topic#")]
        assert len(rows) == 3
        assert all(self.kept(row) for row in rows)
        assert all("pa" not in row for row in rows)

    def test_it_stays_on_every_item_of_a_batch(self) -> None:
        app = App()
        batch = app.batches.open("x")
        groups = app.batches.add(batch.id, 70, request_id="r", group_size=1)
        ids = [i for group in groups for i in group.item_ids()]
        app.batches.fail(ids[:1], "bad")
        for item in app.engine.items(BATCHES):
            app.engine.put_item(TableName=BATCHES, Item=item | UNKNOWN)
        app.batches.retry(ids[:1])
        app.batches.fail(ids[:1], "bad again")
        app.batches.ack(ids[1:])
        app.batches.seal(batch.id)
        assert app.batches.progress(batch.id).complete
        assert all(self.kept(item) for item in app.engine.items(BATCHES))

    def test_it_stays_on_a_shard_s_row(self) -> None:
        app = App("billing")
        app.add()
        app.mark()
        (row,) = [i for i in app.engine.items(OUTBOX) if i["sk"]["S"] == "!" and "rc" in i]
        app.engine.put_item(TableName=OUTBOX, Item=row | UNKNOWN)
        app.run(120, step=10)
        (after,) = [i for i in app.engine.items(OUTBOX) if i["pk"] == row["pk"]]
        assert after != row | UNKNOWN
        assert self.kept(after)


def app_retry(app: App) -> Any:
    return app.outbox.topic("orders").topic.retry


def test_a_message_without_a_version_is_of_the_first() -> None:
    app = App()
    (ref,) = app.add()
    item = item_at(app, ref)
    del item["v"]
    assert read_message(item).message == Message(
        topic="orders", body=b"0", id=ref.id, content_type=item["t"]["S"]
    )
