"""Redriving: which dead letters come back, where, how often, and what becomes of their items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ReadTimeoutError
from fairbox import (
    DeadLettersUnreadable,
    InvalidInput,
    Message,
    MessageRef,
    MessagesNotFound,
    NotConfigured,
    Subscription,
    Topic,
    Unavailable,
    UnknownTopic,
)
from fairbox.client.outbox import Outbox
from fairbox.client.redrive import Redrives
from fairbox.dispatch.burials import Burials
from fairbox.dispatch.ports import TAKEN
from fairbox.tables.stored_messages import read_message
from fairbox.tables.tables import Tables
from fairbox.testing.application import BATCHES, DELIVERIES, OUTBOX

from tests.support.application import POISONED, REFUSED, THROTTLED, App
from tests.support.dead_letters import Between, ids, killed, lying, opened, raises

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.tables.dead_letters import DeadLetter
    from fairbox.tables.stored_messages import StoredMessage


def redriven(app: App) -> list[StoredMessage]:
    """Return the dead letters' messages that lie in the outbox again."""
    return [stored for stored in lying(app) if stored.redriven]


class TestComingBack:
    def test_a_redriven_message_is_delivered_and_stands_nowhere_twice(self) -> None:
        app = App("a")
        refs = killed(app, 3)
        result = app.outbox.redrive("orders")
        assert (result.refs, result.count, result.left, result.more) == (tuple(refs), 3, (), False)
        assert app.dead() == []
        assert [m.redriven for m in redriven(app)] == [1, 1, 1]
        app.run(5)
        assert app.at("a").ids == ids(refs)
        assert (lying(app), app.dead()) == ([], [])
        assert (app.row().ready, app.row().dead) == (0, 0)
        assert [e["id"] for e in app.events("redriven")] == ids(refs)
        assert [e["id"] for e in app.events("delivered")] == ids(refs)
        assert len(app.events("added")) == 3

    @pytest.mark.guarantee("redrive-once")
    def test_only_the_subscriptions_that_it_died_for_get_it_again(self) -> None:
        app = App("a", "b")
        (ref,) = killed(app)
        assert app.at("b").ids == [ref.id]
        app.outbox.redrive("orders")
        app.run(5)
        assert app.at("b").ids == [ref.id]
        assert app.at("a").ids == [ref.id]

    def test_its_attempts_begin_anew(self) -> None:
        app = App("a")
        killed(app)
        app.outbox.redrive("orders")
        (stored,) = redriven(app)
        assert (stored.states, stored.pending) == ({}, frozenset({"a"}))
        app.at("a").answer = lambda _: REFUSED
        app.run(300)
        (dead,) = map(read_message, app.dead())
        assert (dead.state("a").attempts, dead.redriven) == (3, 1)
        assert app.row().dead == 1
        app.at("a").answer = lambda _: TAKEN
        assert app.outbox.redrive("orders").count == 1
        assert [m.redriven for m in redriven(app)] == [2]
        app.run(5)
        assert app.row().dead == 0
        assert len(app.events("redriven")) == 2

    def test_a_delayed_message_comes_back_under_its_own_ref(self) -> None:
        app = App("a")
        (ref,) = killed(app, delay=30)
        assert app.outbox.redrive("orders", [ref]).refs == (ref,)
        assert app.outbox.get(ref) is not None
        app.run(5)
        assert app.at("a").ids == [ref.id]
        assert (app.row().later, app.row().dead) == (0, 0)

    @pytest.mark.parametrize("operation", ["get_item", "batch_get_item"])
    def test_a_message_that_comes_back_between_two_reads_is_found(
        self, monkeypatch: pytest.MonkeyPatch, operation: str
    ) -> None:
        app = App("a")
        (ref,) = killed(app)
        read, redrives = getattr(app.engine, operation), iter([app.outbox.redrive])

        def put_back_first(**request: Any) -> Any:
            if DELIVERIES in str(request):
                for redrive in redrives:
                    redrive("orders")
            return read(**request)

        monkeypatch.setattr(app.engine, operation, put_back_first)
        found = app.outbox.get(ref) if operation == "get_item" else app.outbox.get_many([ref])[0]
        assert found is not None
        assert found.id == ref.id

    @pytest.mark.parametrize("many", [False, True])
    def test_a_message_is_found_before_its_dead_letter_is_there(
        self, monkeypatch: pytest.MonkeyPatch, *, many: bool
    ) -> None:
        app = App("a")

        def refused(**_: Any) -> Any:
            raise ReadTimeoutError(endpoint_url="dynamodb")

        write = app.engine.update_item
        with monkeypatch.context() as patched:
            letter = {"TableName": DELIVERIES}.items()
            patched.setattr(
                app.engine,
                "update_item",
                lambda **r: (refused if letter <= r.items() else write)(**r),
            )
            patched.setattr(app.engine, "transact_write_items", refused)
            (ref,) = killed(app)
        assert (len(app.lying()), app.dead()) == (1, [])
        found = app.outbox.get_many([ref])[0] if many else app.outbox.get(ref)
        assert found is not None
        assert found.id == ref.id

    def test_an_offloaded_body_comes_back_with_it_and_expires_with_its_delivery(self) -> None:
        app = App("a")
        body = bytes(range(256)) * 4000
        killed(app, body=body)
        assert app.bodies.expired == set()
        app.outbox.redrive("orders")
        app.run(5)
        assert [m.message.body for m in app.at("a").received] == [body]
        assert app.bodies.expired == set(app.bodies.objects)
        assert len(app.bodies.expired) == 1

    def test_on_an_ordered_topic_it_has_its_old_place(self) -> None:
        app = App("a", ordering="key")
        dead = killed(app, 2, partition_key="k")
        app.at("a").answer = lambda _: THROTTLED
        later = app.add(2, partition_key="k")
        app.outbox.redrive("orders")
        app.at("a").answer = lambda _: TAKEN
        app.run(30)
        assert app.at("a").ids == ids([*dead, *later])

    def test_into_a_message_that_others_still_lack_it_is_merged(self) -> None:
        app = App("a", "b")
        app.at("b").answer = lambda _: THROTTLED
        (ref,) = killed(app)
        assert [m.pending for m in lying(app)] == [frozenset({"b"})]
        assert app.outbox.redrive("orders").refs == (ref,)
        (stored,) = lying(app)
        assert (stored.pending, stored.any_dead) == (frozenset({"a", "b"}), False)
        app.at("b").answer = lambda _: TAKEN
        app.run(900)  # until its circuit is probed
        assert (app.at("a").ids, app.at("b").ids) == ([ref.id], [ref.id])
        assert (lying(app), app.dead(), app.row().dead) == ([], [], 0)
        assert [e["id"] for e in app.events("redriven")] == [ref.id]
        assert sorted(e["subscription"] for e in app.events("delivered")) == ["a", "b"]

    def test_a_redrive_while_the_rest_is_being_delivered_is_not_lost(self) -> None:
        app = App("a", "b")
        app.at("b").answer = lambda _: THROTTLED
        (ref,) = killed(app)

        def redrive(_: StoredMessage) -> Any:
            app.outbox.redrive("orders")
            return TAKEN

        app.at("b").answer = redrive
        app.run(1200)
        assert app.at("b").ids.count(ref.id) == 1
        assert app.at("a").ids == [ref.id]
        assert (lying(app), app.dead()) == ([], [])


class TestChoosing:
    def test_oldest_first_and_no_more_than_the_limit(self) -> None:
        app = App("a", shards=4)
        refs = sorted(killed(app, 10))
        by_id = sorted(refs, key=lambda r: r.id)
        first = app.outbox.redrive("orders", limit=4)
        assert (list(first.refs), first.more) == (by_id[:4], True)
        rest = app.outbox.redrive("orders", limit=6)
        assert (list(rest.refs), rest.more) == (by_id[4:], False)

    def test_by_id_by_ref_and_by_text(self) -> None:
        app = App("a", shards=4)
        refs = killed(app, 5, partition_key="k")
        named: list[str | MessageRef] = [refs[3].id, refs[0], str(refs[1]), refs[0]]
        assert app.outbox.redrive("orders", named).refs == (refs[0], refs[1], refs[3])
        assert sorted(read_message(i).ref for i in app.dead()) == [refs[2], refs[4]]

    def test_where_chooses_by_what_the_dead_letter_says(self) -> None:
        app = App("a")
        refs = killed(app, 4)

        def wanted(letter: DeadLetter) -> bool:
            assert letter.reason == "no"
            return letter.message is not None and letter.message.body in (b"1", b"3")

        result = app.outbox.redrive("orders", where=wanted, limit=1)
        assert (result.refs, result.more) == ((refs[1],), True)
        assert app.outbox.redrive("orders", refs[2:], where=wanted).refs == (refs[3],)

    def test_a_dry_run_says_what_would_come_back_and_writes_nothing(self) -> None:
        app = App("a")
        refs = killed(app, 3)
        before = app.engine.items(OUTBOX), app.engine.items(DELIVERIES)
        result = app.outbox.redrive("orders", dry_run=True, limit=2)
        assert (result.refs, result.more, result.dry_run) == (tuple(refs[:2]), True, True)
        assert (app.engine.items(OUTBOX), app.engine.items(DELIVERIES)) == before

    def test_what_is_no_dead_letter_is_named_and_the_rest_comes_back(self) -> None:
        app = App("a")
        (dead,) = killed(app)
        (alive,) = app.add()
        unknown = app.ids.next()
        with pytest.raises(MessagesNotFound) as caught:
            app.outbox.redrive("orders", [unknown, alive, dead])
        assert caught.value.missing == (unknown, alive)
        assert [m.ref for m in redriven(app)] == [dead]

    @pytest.mark.parametrize(
        "given", [["x"], "orders/0/0/x", ["orders/0/0"], ["other/0/0/{}"], [5], [None]]
    )
    def test_ids_that_are_none_are_refused_before_anything_changes(self, given: Any) -> None:
        app = App("a")
        (dead,) = killed(app)
        some = [i.format(dead.id) if isinstance(i, str) else i for i in given]
        with pytest.raises(InvalidInput) as caught:
            app.outbox.redrive("orders", given if isinstance(given, str) else [dead, *some])
        assert caught.value.field == "ids"
        assert len(app.dead()) == 1

    def test_what_nothing_can_read_is_passed_over_and_refused_by_name(self) -> None:
        app = App("a")
        (dead,) = killed(app)
        junk = app.ids.next()
        app.put_junk(junk)
        app.repair()
        assert len(app.dead()) == 2
        raw = f"orders/0/0/{junk}"
        assert app.outbox.redrive("orders", dry_run=True).unreadable == (raw,)
        with pytest.raises(DeadLettersUnreadable) as caught:
            app.outbox.redrive("orders", [raw, dead.id])
        assert caught.value.unreadable == (raw,)
        assert [m.ref for m in redriven(app)] == [dead]
        assert len(app.dead()) == 1

    def test_an_unknown_topic_and_a_bad_limit_are_refused(self) -> None:
        app = App("a")
        with pytest.raises(UnknownTopic):
            app.outbox.redrive("nothing")
        with pytest.raises(InvalidInput):
            app.outbox.redrive("orders", limit=-1)


class TestItems:
    def dead_item(self, app: App, count: int = 2) -> tuple[str, str, MessageRef]:
        """Open a batch, ack all but its first item, and let the message of that one die."""
        batch = app.batches.open().id
        (group,) = app.batches.add(batch, count, request_id="r")
        item, *others = group.item_ids()
        app.batches.ack(others)
        (ref,) = killed(app, batch_item=item)
        return batch, item, ref

    def test_a_redrive_puts_the_item_back_and_delivery_completes_the_batch(self) -> None:
        app = App("a")
        batch, item, ref = self.dead_item(app)
        assert app.batches.progress(batch).failed == 1
        client = between(app)
        app.outbox.redrive("orders", [ref])
        # the message, its dead letter; group, failed items, and the batch above the emptied group
        assert client.moves == [{BATCHES: 3, DELIVERIES: 1, OUTBOX: 1}]
        assert list(app.batches.missing(batch)) == [item]
        app.batches.seal(batch)
        assert not app.batches.progress(batch).complete
        app.run(5)
        progress = app.batches.progress(batch)
        assert (progress.complete, progress.acked, progress.failed) == (True, 2, 0)

    def test_late_and_repeated_records_of_its_first_life_settle_nothing(self) -> None:
        app = App("a", "b")
        batch, item, _ = self.dead_item(app)
        records = app.records()
        app.outbox.redrive("orders")
        app._marking.handle(records)
        app._relay.handle(records, deadline=app.deadline)
        app.ack()
        assert list(app.batches.missing(batch)) in ([item], [])
        assert app.acks.bodies == []
        assert app.batches.progress(batch).failed == 0

    @pytest.mark.parametrize("ended", ["complete", "cancelled"])
    def test_when_the_batch_has_ended_the_message_goes_alone(self, ended: str) -> None:
        app = App("a")
        batch, _, ref = self.dead_item(app)
        if ended == "complete":
            app.batches.seal(batch)
        else:
            app.batches.cancel(batch)
        before = app.batches.progress(batch)
        assert before.state == ended
        assert app.outbox.redrive("orders").refs == (ref,)
        app.run(5)
        assert app.at("a").ids == [ref.id]
        assert app.batches.progress(batch) == before

    def test_a_group_that_changes_meanwhile_is_decided_anew(self) -> None:
        app = App("a")
        batch, items = opened(app, 100)
        (ref,) = killed(app, batch_item=items[0])
        others = iter(items[1:4])
        client = between(app, before=lambda: take(app, others))
        assert app.outbox.redrive("orders").refs == (ref,)
        assert len(client.moves) == 4
        assert app.batches.progress(batch).failed == 0
        assert app.batches.progress(batch).pending == 97

    def test_a_busy_group_leaves_the_dead_letter_as_it_was(self) -> None:
        app = App("a")
        batch, items = opened(app, 100)
        (ref,) = killed(app, batch_item=items[0])
        others = iter(items[1:])
        between(app, before=lambda: take(app, others))
        result = app.outbox.redrive("orders")
        assert (result.refs, result.left) == ((), (ref,))
        assert (len(app.dead()), lying(app)) == (1, [])
        assert app.batches.progress(batch).failed == 1
        app.outbox.tables.calls.client = app.client
        assert app.outbox.redrive("orders").refs == (ref,)

    def test_without_a_batches_table_it_is_refused_by_the_settings_name(self) -> None:
        app = App("a")
        self.dead_item(app)
        tables = Tables(
            app.client, outbox=OUTBOX, deliveries=DELIVERIES, clock=app.clock, rng=app.rng
        )
        with pytest.raises(NotConfigured) as caught:
            Outbox.over(tables).redrive("orders")
        assert caught.value.setting == "FAIRBOX_BATCHES_TABLE"
        assert len(app.dead()) == 1


def take(app: App, items: Any) -> None:
    """Ack the next of these items, as somebody else does."""
    item = next(items, None)
    if item is not None:
        app.batches.ack([item])


def between(app: App, **hooks: Callable[[], None]) -> Between:
    """Put a client between the outbox of the caller and the tables."""
    client = Between(app.client, **hooks)
    app.outbox.tables.calls.client = client
    return client


class TestCrashes:
    @pytest.mark.guarantee("redrive-once")
    def test_an_answer_that_was_lost_brings_nothing_back_twice(self) -> None:
        app = App("a")
        batch, items = opened(app, 2)
        (ref,) = killed(app, batch_item=items[0])
        client = between(app, after=lambda: raises(ReadTimeoutError(endpoint_url="db")))
        with pytest.raises(Unavailable):
            app.outbox.redrive("orders")
        assert len(client.moves) == 8
        app.outbox.tables.calls.client = app.client
        assert app.outbox.redrive("orders").refs == ()
        assert [m.ref for m in redriven(app)] == [ref]
        assert [m.redriven for m in redriven(app)] == [1]
        assert app.dead() == []
        assert app.batches.progress(batch).failed == 0

    def test_whoever_finishes_a_move_too_late_finds_it_done(self) -> None:
        app = App("a")
        marked: list[Any] = []
        burials = Burials(app.tables)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Burials, "bury", lambda _, stored, died: marked.append((stored, died)))
            patch.setattr(Burials, "finish", lambda *_: None)
            (ref,) = killed(app)
        assert [m.gone for m in lying(app)] == ["dead"]
        with pytest.raises(MessagesNotFound):  # not dead before somebody has finished the move
            app.outbox.redrive("orders", [ref])
        app.repair()
        app.outbox.redrive("orders", [ref])
        burials.finish(*marked[0])
        app.tables.lanes.delete_marked(marked[0][0])
        assert [m.ref for m in redriven(app)] == [ref]
        assert app.dead() == []
        burials.bury(*marked[0])  # who marked it, between its two calls: the one that is not safe
        assert len(app.dead()) == 1
        assert (
            app.outbox.redrive("orders").refs == ()
        )  # and the dead letter is known for what it is
        assert app.dead() == []
        assert [m.redriven for m in redriven(app)] == [1]

    def test_a_move_that_was_cut_off_is_finished_before_the_way_back(self) -> None:
        app = App("a", "b")
        app.at("b").answer = lambda _: THROTTLED
        (ref,) = killed(app)  # dead for `a`; then for `b`, and killed before the move
        app.at("b").answer = lambda _: REFUSED
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Burials, "bury", lambda *_: None)
            patch.setattr(Burials, "finish", lambda *_: None)
            app.run(600)
        assert [m.gone for m in lying(app)] == ["dead"]
        assert app.outbox.redrive("orders").refs == (ref,)
        assert [m.pending for m in redriven(app)] == [frozenset({"a", "b"})]
        assert app.dead() == []

    @pytest.mark.guarantee("redrive-once")
    def test_two_redrives_at_once_bring_it_back_once(self) -> None:
        app = App("a")
        (ref,) = killed(app)
        letters = list(app.outbox.dead("orders"))
        assert letters[0].stored is not None
        assert app.outbox.redrive("orders").refs == (ref,)
        assert Redrives(app.outbox.tables).put_back(letters[0].stored) == "gone"
        app.run(5)
        assert Redrives(app.outbox.tables).put_back(letters[0].stored) == "gone"
        assert app.at("a").ids == [ref.id]
        assert (lying(app), app.dead()) == ([], [])

    def test_a_redriven_message_is_deleted_by_no_late_cancel(self) -> None:
        app = App("a", "b")
        app.at("b").answer = lambda _: THROTTLED
        (ref,) = killed(app)
        lanes = app.outbox.tables.lanes
        item = lanes.mark_gone(ref, "cancelled", "")
        assert item is not None
        app.clock.advance(1200)
        app.sweep()
        app.visit()
        assert lying(app) == []
        app.outbox.redrive("orders")
        app.outbox.cancel([])
        assert [m.ref for m in redriven(app)] == [ref]


def test_a_pulled_topic_gets_its_dead_letters_back_to_be_read() -> None:
    app = App("a")
    (ref,) = killed(app)
    app.outbox.remove_subscription("orders", "a")
    app.outbox.redrive("orders")
    assert [m.id for m in app.outbox.outstanding("orders")] == [ref.id]


def test_a_dead_letter_of_a_message_that_was_published_again_goes_into_that() -> None:
    app = App("a")
    app.at("a").answer = lambda _: REFUSED
    message = Message(topic="orders", body=b"x", id=app.ids.next())
    app.outbox.add(message)
    app.run(300)
    app.at("a").answer = lambda _: THROTTLED
    app.outbox.add(message)
    app.run(1)
    app.outbox.redrive("orders")
    assert [m.redriven for m in lying(app)] == [1]
    app.at("a").answer = lambda _: TAKEN
    app.run(200)
    assert app.at("a").ids == [message.id]
    assert (lying(app), app.dead(), app.row().dead) == ([], [], 0)


def test_a_topic_of_many_shards_is_redriven_whole() -> None:
    app = App()
    app.outbox.create_topic(Topic("wide", shards=64))
    app.outbox.add_subscription(Subscription("wide", "a", "sqs:http://q/wide-a", max_attempts=1))
    app.at("a", "wide").answer = lambda _: POISONED
    refs = app.add(200, topic="wide")
    app.run(5)
    assert len(app.dead()) == 200
    app.at("a", "wide").answer = lambda _: TAKEN
    assert list(app.outbox.redrive("wide").refs) == refs
    app.run(200)
    assert sorted(app.at("a", "wide").ids) == ids(refs)
