"""Purging dead letters: which go, what is counted and told, and what stays of others'."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import InvalidInput, Message, MessageRef, MessagesNotFound, UnknownTopic
from fairbox.client.purge import Purges
from fairbox.dispatch.ports import TAKEN
from fairbox.tables.stored_messages import read_message
from fairbox.testing import Fault, FaultyDynamoDB
from fairbox.testing.application import DELIVERIES, OUTBOX

from tests.support.application import POISONED, REFUSED, THROTTLED, App
from tests.support.dead_letters import ids, killed, lying, opened

if TYPE_CHECKING:
    from fairbox.tables.dead_letters import DeadLetter


def names(refs: list[MessageRef]) -> list[str]:
    return [f"{r.topic}/{r.epoch}/{r.shard}/{r.id}" for r in refs]


class TestGoing:
    @pytest.mark.guarantee("purge-told")
    def test_what_is_purged_is_gone_counted_and_told_with_the_reason(self) -> None:
        app = App("a")
        refs = killed(app, 3)
        assert app.row().dead == 3
        result = app.outbox.purge_dead("orders", reason="of no use")
        assert (list(result.names), result.count, result.left) == (names(refs), 3, ())
        assert (app.dead(), lying(app)) == ([], [])
        app.run(5)
        assert app.at("a").ids == []
        assert (app.row().ready, app.row().dead, app.row().next_check) == (0, 0, None)
        assert [(e["id"], e["reason"]) for e in app.events("purged")] == [
            (ref.id, "of no use") for ref in refs
        ]
        assert [app.events(kind) for kind in ("redriven", "delivered")] == [[], []]
        assert len(app.events("added")) == 3

    def test_fifty_go_in_one_transaction(self) -> None:
        app = App("a")
        killed(app, 60)
        app.writes()
        told: list[int] = []
        assert app.outbox.purge_dead("orders", progress=told.append).count == 60
        assert app.writes() == {"transact_write_items": 2, "batch_execute_statement": 3}
        assert told == [50, 60]

    def test_a_delayed_one_and_an_ordered_one_are_counted_in_their_own_lanes(self) -> None:
        app = App("a")
        killed(app, delay=30)
        app.add_topic("keyed", "a", ordering="key")
        app.at("a", "keyed").answer = lambda _: REFUSED
        app.add(2, topic="keyed", partition_key="k")
        app.run(300)
        assert (app.row().later_deaths, app.row("keyed").dead) == (1, 2)
        for topic in ("orders", "keyed"):
            app.outbox.purge_dead(topic)
        app.run(5)
        assert (app.row().later_deaths, app.row().later, app.row("keyed").dead) == (0, 0, 0)
        assert len(app.events("purged")) == 3

    def test_an_offloaded_body_expires_with_its_dead_letter(self) -> None:
        app = App("a")
        killed(app, body=bytes(range(256)) * 4000)
        app.run(5)
        assert app.bodies.expired == set()
        app.outbox.purge_dead("orders")
        app.run(5)
        assert app.bodies.expired == set(app.bodies.objects)
        assert len(app.bodies.expired) == 1

    def test_a_dead_letter_of_a_pulled_topic_is_purged_too(self) -> None:
        app = App()
        (ref,) = app.add()
        (held,) = app.queue.receive("orders")
        app.queue.bury(held.receipt, "never")
        app.mark()
        assert app.queue.stats("orders").dead == 1
        assert app.outbox.purge_dead("orders").names == tuple(names([ref]))
        app.mark()
        assert (app.queue.stats("orders").dead, app.queue.receive("orders")) == (0, [])

    def test_what_nothing_can_read_goes_too_and_its_count_with_it(self) -> None:
        app = App("a")
        junk = app.ids.next()
        app.put_junk(junk)
        app.repair()
        app.mark()
        assert app.row().dead == 1
        result = app.outbox.purge_dead("orders")
        assert result.names == (f"orders/0/0/{junk}",)
        assert (app.dead(), app.row().dead, app.row().next_check) == ([], 0, None)
        app.run(5)
        assert (app.row().dead, app.events("purged")) == (0, [])

    def test_the_item_of_a_purged_dead_letter_stays_failed(self) -> None:
        app = App("a")
        batch, items = opened(app, 2)
        killed(app, batch_item=items[0])
        app.outbox.purge_dead("orders")
        app.run(5)
        progress = app.batches.progress(batch)
        assert (progress.failed, progress.pending, progress.acked) == (1, 1, 0)
        app.batches.ack(items[1:])
        assert app.batches.progress(batch).complete


class TestOthers:
    def test_what_another_subscription_still_lacks_stays_its_own(self) -> None:
        app = App("a", "b")
        app.at("b").answer = lambda _: THROTTLED
        (ref,) = killed(app)
        assert app.row().dead == 1
        assert app.outbox.purge_dead("orders", reason="not for a").count == 1
        (stored,) = lying(app)
        assert (stored.pending, stored.any_dead) == (frozenset({"b"}), False)
        app.at("b").answer = lambda _: TAKEN
        app.run(1200)
        assert (app.at("a").ids, app.at("b").ids) == ([], [ref.id])
        assert (lying(app), app.dead(), app.row().dead, app.row().ready) == ([], [], 0, 0)
        assert [e["reason"] for e in app.events("purged")] == ["not for a"]
        assert [e["subscription"] for e in app.events("delivered")] == ["b"]

    def test_why_it_was_purged_for_one_is_not_why_it_dies_for_another(self) -> None:
        app = App("a", "b")
        app.at("b").answer = lambda _: THROTTLED
        killed(app)
        app.outbox.purge_dead("orders", reason="not for a")
        app.at("b").answer = lambda _: POISONED
        app.run(900)
        (letter,) = app.outbox.dead("orders")
        assert (letter.reason, letter.subscriptions) == ("no", frozenset({"b"}))
        assert app.row().dead == 1

    def test_a_message_added_again_after_its_death_stays_and_the_count_is_right(self) -> None:
        app = App("a")
        message = Message(topic="orders", body=b"x", id=app.ids.next())
        app.at("a").answer = lambda _: REFUSED
        app.outbox.add(message)
        app.run(300)
        app.at("a").answer = lambda _: THROTTLED
        ref = app.outbox.add(message)
        app.run(1)
        assert (app.row().dead, app.row().ready) == (1, 1)
        assert app.outbox.purge_dead("orders").count == 1
        assert (app.dead(), [m.ref for m in lying(app)]) == ([], [ref])
        assert (app.row().dead, app.row().ready) == (0, 1)
        app.at("a").answer = lambda _: TAKEN
        app.run(1200)
        assert app.at("a").ids == [ref.id]
        assert (app.row().dead, app.row().ready, app.row().next_check) == (0, 0, None)

    def test_a_mark_that_was_left_behind_is_finished_and_delivered_to_nobody(self) -> None:
        app = App("a")
        (ref,) = killed(app)
        faulty = FaultyDynamoDB(app.client, random.Random(1))
        faulty.next("batch_execute_statement", *[Fault.TIMEOUT_UNAPPLIED] * 8)
        app.outbox.tables.calls.client = faulty
        assert app.outbox.purge_dead("orders").count == 1
        assert [m.gone for m in lying(app)] == ["purged"]
        app.run(1200)
        assert (lying(app), app.at("a").ids) == ([], [])
        assert [e["id"] for e in app.events("purged")] == [ref.id]
        assert (app.row().ready, app.row().dead) == (0, 0)


class TestChoosing:
    def test_by_id_by_ref_and_by_text_and_the_rest_stays(self) -> None:
        app = App("a", shards=4)
        refs = killed(app, 5, partition_key="k")
        named: list[str | MessageRef] = [refs[3].id, refs[0], str(refs[1]), refs[0]]
        assert list(app.outbox.purge_dead("orders", named).names) == names(
            [refs[0], refs[1], refs[3]]
        )
        assert sorted(read_message(i).ref for i in app.dead()) == [refs[2], refs[4]]

    def test_where_and_limit_choose_and_more_says_that_others_are_left(self) -> None:
        app = App("a")
        refs = killed(app, 4)

        def wanted(letter: DeadLetter) -> bool:
            return letter.message is not None and letter.message.body in (b"1", b"3")

        first = app.outbox.purge_dead("orders", where=wanted, limit=1)
        assert (list(first.names), first.more) == (names([refs[1]]), True)
        rest = app.outbox.purge_dead("orders", where=wanted, limit=1)
        assert (list(rest.names), rest.more) == (names([refs[3]]), False)
        assert sorted(ids(read_message(i).ref for i in app.dead())) == ids([refs[0], refs[2]])

    def test_a_dry_run_says_what_would_go_and_writes_nothing(self) -> None:
        app = App("a")
        refs = killed(app, 3)
        before = app.engine.items(OUTBOX), app.engine.items(DELIVERIES)
        result = app.outbox.purge_dead("orders", dry_run=True, limit=2)
        assert (list(result.names), result.more, result.dry_run) == (names(refs[:2]), True, True)
        assert (app.engine.items(OUTBOX), app.engine.items(DELIVERIES)) == before

    def test_what_is_no_dead_letter_is_named_and_the_rest_goes(self) -> None:
        app = App("a")
        (dead,) = killed(app)
        (alive,) = app.add()
        with pytest.raises(MessagesNotFound) as caught:
            app.outbox.purge_dead("orders", [alive, dead])
        assert caught.value.missing == (alive,)
        assert (app.dead(), [m.ref for m in lying(app)]) == ([], [alive])

    @pytest.mark.parametrize(
        "given",
        [{"ids": ["x"]}, {"ids": "orders/0/0/x"}, {"limit": -1}, {"reason": 5}],
    )
    def test_what_is_wrong_is_refused_before_anything_changes(self, given: Any) -> None:
        app = App("a")
        killed(app)
        with pytest.raises(InvalidInput):
            app.outbox.purge_dead("orders", **given)
        assert len(app.dead()) == 1

    def test_a_condition_that_is_always_true_is_refused(self) -> None:
        async def later(_: DeadLetter) -> bool:
            return False

        def generator(_: DeadLetter) -> Any:
            yield False

        app = App("a")
        killed(app)
        for where in (later, generator, lambda _: bool):
            for call in (app.outbox.purge_dead, app.outbox.redrive):
                with pytest.raises(InvalidInput, match="where: expected True or False"):
                    call("orders", where=where)  # type: ignore[arg-type]
        assert len(app.dead()) == 1

    def test_an_unknown_topic_is_refused(self) -> None:
        with pytest.raises(UnknownTopic):
            App("a").outbox.purge_dead("nothing")


class TestRaces:
    def test_of_a_redrive_and_a_purge_one_has_the_dead_letter(self) -> None:
        app = App("a")
        (ref,) = killed(app)
        (letter,) = app.outbox.dead("orders")
        app.outbox.redrive("orders")
        assert Purges(app.outbox.tables).purge([letter], "late") == ["gone"]
        app.run(5)
        assert app.at("a").ids == [ref.id]
        assert (app.row().dead, app.events("purged")) == (0, [])

    def test_one_that_is_gone_does_not_keep_the_others(self) -> None:
        app = App("a")
        refs = killed(app, 3)
        letters = list(app.outbox.dead("orders"))
        app.outbox.redrive("orders", [refs[1]])
        done = Purges(app.outbox.tables).purge(letters, "")
        assert done == ["purged", "gone", "purged"]
        app.run(5)
        assert app.at("a").ids == [refs[1].id]
        assert (app.row().dead, app.row().ready) == (0, 0)

    def test_a_purge_twice_at_once_counts_once(self) -> None:
        app = App("a")
        killed(app, 2)
        letters = list(app.outbox.dead("orders"))
        assert Purges(app.outbox.tables).purge(letters, "") == ["purged", "purged"]
        assert Purges(app.outbox.tables).purge(letters, "") == ["gone", "gone"]
        app.run(5)
        assert (app.row().dead, len(app.events("purged"))) == (0, 2)
