"""A message let go for one subscription: the others get it, and nothing else is told."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import (
    Message,
    MessagesNotFound,
    NothingToSkip,
    RetryPolicy,
    Topic,
    UnknownSubscription,
    UnknownTopic,
)
from fairbox.dispatch.ports import TAKEN
from fairbox.testing import Fault, FaultyDynamoDB
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.application import POISONED, REFUSED, App

if TYPE_CHECKING:
    from fairbox import MessageRef

PATIENT = RetryPolicy(base=600, cap=600, max_attempts=50)
ITEM = "0199c82c-c000-7611-a29f-000000000000:0:0"


def failing(*subscriptions: str, ordering: str = "none", failing: str = "crm") -> App:
    """Return an application of which one subscription refuses, and tries again in ten minutes."""
    app = App(*subscriptions, retry=PATIENT, ordering=ordering)
    app.at(failing).answer = lambda _: POISONED
    return app


def told(app: App, kind: str) -> list[tuple[str, str | None, str | None]]:
    """Return the events of a kind: id, subscription and reason."""
    return [(e["id"], e.get("subscription"), e.get("reason")) for e in app.events(kind)]


def outstanding(app: App) -> list[str]:
    return [m.id for m in app.outbox.outstanding("orders")]


class TestOneOfSeveral:
    @pytest.mark.guarantee("skip-one")
    def test_the_others_get_it_and_the_archive_names_the_one_that_does_not(self) -> None:
        app = failing("billing", "crm")
        app.outbox.pause_subscription("orders", "billing")
        (ref,) = app.add()
        app.run(5)
        app.outbox.skip(ref, subscription="crm", reason="closed account")
        app.outbox.resume_subscription("orders", "billing")
        app.run(90)
        assert app.at("billing").ids == [ref.id]
        assert app.at("crm").ids == []
        assert (app.lying(), app.row().ready) == ([], 0)
        assert told(app, "cancelled") == [(ref.id, "crm", "closed account")]
        assert [(i, s) for i, s, _ in told(app, "delivered")] == [(ref.id, "billing")]
        assert [d.subscription for d in app.outbox.delivered("orders")] == ["billing"]

    def test_when_the_others_have_it_already_it_leaves_as_delivered_to_them(self) -> None:
        app = failing("billing", "crm")
        (ref,) = app.add()
        app.run(5)
        app.outbox.skip(ref, subscription="crm", reason="closed account")
        app.run(5)
        assert (outstanding(app), app.row().ready) == ([], 0)
        assert told(app, "cancelled") == [(ref.id, "crm", "closed account")]
        assert [s for _, s, _ in told(app, "delivered")] == ["billing"]

    @pytest.mark.guarantee("skip-one")
    @pytest.mark.parametrize("first", ["taken", "skipped"])
    def test_its_batch_item_is_acked_whichever_comes_last(self, first: str) -> None:
        app = failing("billing", "crm")
        batch = app.batches.open(id=ITEM.partition(":")[0])
        (item,) = app.batches.add(batch.id, 1, request_id="r")[0].item_ids()
        if first == "skipped":
            app.outbox.pause_subscription("orders", "billing")
        (ref,) = app.add(batch_item=item)
        app.run(5)
        app.outbox.skip(ref, subscription="crm")
        if first == "skipped":
            app.outbox.resume_subscription("orders", "billing")
        app.run(90)
        assert outstanding(app) == []
        assert app.batches.progress(batch.id, exact=True).acked == 1

    def test_what_others_changed_meanwhile_is_skipped_as_it_is_then(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = failing("billing", "crm")
        app.outbox.pause_subscription("orders", "billing")
        (ref,) = app.add()
        app.run(5)
        update = app.engine.update_item

        def later(**request: Any) -> Any:
            monkeypatch.setattr(app.engine, "update_item", update)
            app.outbox.skip(ref, subscription="billing")
            return update(**request)

        monkeypatch.setattr(app.engine, "update_item", later)
        app.outbox.skip(ref, subscription="crm")
        app.run(5)
        assert app.lying() == []
        assert {s for _, s, _ in told(app, "cancelled")} == {"billing", "crm", None}

    def test_a_message_of_which_all_are_skipped_is_cancelled(self) -> None:
        app = failing("billing", "crm")
        app.outbox.pause_subscription("orders", "billing")
        (ref,) = app.add()
        app.run(5)
        for name in ("crm", "billing"):
            app.outbox.skip(ref, subscription=name, reason="r")
        app.run(90)
        assert outstanding(app) == []
        assert told(app, "delivered") == []
        assert sorted(told(app, "cancelled"), key=str) == sorted(
            [(ref.id, "billing", "r"), (ref.id, "crm", "r"),
             (ref.id, None, "skipped for billing: r")], key=str,
        )  # fmt: skip


class TestTheOnlyOne:
    def test_it_leaves_as_cancelled_and_its_batch_item_stays(self) -> None:
        app = failing("crm")
        batch = app.batches.open(id=ITEM.partition(":")[0])
        (item,) = app.batches.add(batch.id, 1, request_id="r")[0].item_ids()
        (ref,) = app.add(batch_item=item)
        app.run(5)
        app.outbox.skip(ref, subscription="crm")
        app.run(5)
        assert (outstanding(app), app.row().ready, app.at("crm").ids) == ([], 0, [])
        assert told(app, "delivered") == []
        assert (ref.id, None, "skipped for crm") in told(app, "cancelled")
        assert app.batches.progress(batch.id, exact=True).pending == 1

    @pytest.mark.guarantee("skip-one")
    def test_on_an_ordered_topic_its_key_goes_on_at_once(self) -> None:
        for others in ((), ("billing",)):
            app = failing(*others, "crm", ordering="key")
            first, second = app.add(2, partition_key="k")
            app.run(5)
            assert app.at("crm").ids == []
            app.at("crm").answer = lambda _: TAKEN
            app.outbox.skip(first, subscription="crm")
            app.run(5)
            assert app.at("crm").ids == [second.id]
            for name in others:
                assert app.at(name).ids == [first.id, second.id]
            assert outstanding(app) == []


class TestDeadLetters:
    def test_one_of_another_subscription_stays_and_is_redriven_to_that_alone(self) -> None:
        app = App("billing", "crm", retry=RetryPolicy(max_attempts=1))
        app.at("billing").answer = lambda _: POISONED
        app.outbox.pause_subscription("orders", "crm")
        (ref,) = app.add()
        app.run(5)
        app.outbox.skip(ref, subscription="crm", reason="r")
        app.run(5)
        assert (outstanding(app), app.row().ready, app.row().dead) == ([], 0, 1)
        assert told(app, "cancelled") == [(ref.id, "crm", "r")]  # the message is dead
        app.at("billing").answer = lambda _: TAKEN
        app.outbox.resume_subscription("orders", "crm")
        assert app.outbox.redrive("orders").count == 1
        app.run(90)
        assert (app.at("billing").ids, app.at("crm").ids) == ([ref.id], [])
        assert (app.lying(), app.row().dead) == ([], 0)


NAMES = ("a", "b", "c")


@pytest.mark.parametrize("ordering", ["none", "key"])
@settings(max_examples=25)
@given(data=st.data())
def test_each_subscription_is_served_or_skipped_and_nothing_stays(
    ordering: str, data: st.DataObject
) -> None:
    """Whatever is taken, refused, paused and skipped, in whatever order."""
    app = App(*NAMES, retry=PATIENT, ordering=ordering)
    for name in NAMES:
        app.at(name).answer = lambda _: POISONED
    refs = app.add(3, partition_key="k")
    app.run(1)  # the relay sends what it saw in the stream
    skipped = set[tuple[str, str]]()
    acts = ("pause", "resume", "refuse", "take", "skip", "run")
    for _ in range(data.draw(st.integers(1, 12))):
        act, name = data.draw(st.sampled_from(acts)), data.draw(st.sampled_from(NAMES))
        if act == "pause":
            app.outbox.pause_subscription("orders", name)
        elif act == "resume":
            app.outbox.resume_subscription("orders", name)
        elif act == "skip":
            ref = data.draw(st.sampled_from(refs))
            with suppress(MessagesNotFound, NothingToSkip):
                app.outbox.skip(ref, subscription=name)
                skipped.add((ref.id, name))
        elif act == "run":
            app.run(data.draw(st.sampled_from((1, 5, 700))), step=5)
        else:
            answer = TAKEN if act == "take" else POISONED
            app.at(name).answer = partial(lambda same, _: same, answer)
    for name in NAMES:
        app.outbox.resume_subscription("orders", name)
        app.at(name).answer = lambda _: TAKEN
    app.run(2000, step=20)
    assert app.lying() == []
    delivered = {(i, s) for i, s, _ in told(app, "delivered")}
    assert {(i, s) for i, s, _ in told(app, "cancelled") if s} == skipped
    assert delivered | skipped == {(ref.id, name) for ref in refs for name in NAMES}
    assert not delivered & skipped
    for name in NAMES:
        assert [i for i in app.at(name).ids if (i, name) in skipped] == []
    whole = {i for i, s, _ in told(app, "cancelled") if s is None}
    assert whole == {ref.id for ref in refs if ref.id not in {i for i, _ in delivered}}


class TestRefusals:
    def test_each_says_why_and_changes_nothing(self) -> None:
        app = failing("billing", "crm")
        (ref,) = app.add()
        app.run(5)
        before = app.lying()
        with pytest.raises(UnknownSubscription, match="no subscription 'other'"):
            app.outbox.skip(ref, subscription="other")
        with pytest.raises(NothingToSkip, match="'billing' has taken it"):
            app.outbox.skip(ref, subscription="billing")
        with pytest.raises(MessagesNotFound):
            app.outbox.skip(replace(ref, shard=7), subscription="crm")
        with pytest.raises(UnknownTopic):
            app.outbox.skip(replace(ref, topic="none"), subscription="crm")
        with pytest.raises(ValueError, match="reason"):
            app.outbox.skip(ref, subscription="crm", reason="x" * 257)
        assert app.lying() == before

    def test_a_pulled_topic_has_no_subscription(self) -> None:
        app = App("a")
        app.outbox.create_topic(Topic("jobs"))
        ref = app.outbox.add(Message(topic="jobs", body=b"{}", id=app.ids.next()))
        with pytest.raises(UnknownSubscription):
            app.outbox.skip(ref, subscription="crm")

    @pytest.mark.parametrize("others", [(), ("billing",)])
    def test_a_dead_letter_is_redriven_or_purged_instead(self, others: tuple[str, ...]) -> None:
        app = App(*others, "crm", retry=RetryPolicy(max_attempts=1))
        app.at("crm").answer = lambda _: REFUSED
        for name in others:
            app.outbox.pause_subscription("orders", name)
        (ref,) = app.add()
        app.run(5)
        assert len(app.dead()) == 1
        with pytest.raises(NothingToSkip, match="redrive or purge"):
            app.outbox.skip(ref, subscription="crm")

    def test_the_next_skip_finishes_what_a_crash_left_of_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = failing("crm")
        (ref,) = app.add()
        app.run(5)
        with monkeypatch.context() as crash:
            crash.setattr(app.engine, "delete_item", None)
            with pytest.raises(TypeError):
                app.outbox.skip(ref, subscription="crm")
        app.outbox.skip(ref, subscription="crm")
        assert app.lying() == []

    def test_skipping_twice_or_after_a_lost_answer_is_skipping_once(self) -> None:
        app = failing("billing", "crm")
        app.outbox.pause_subscription("orders", "billing")
        (ref,) = app.add()
        app.run(5)
        faulty = FaultyDynamoDB(app.client, app.rng)
        faulty.next("update_item", Fault.APPLIED_THEN_TIMEOUT)
        app.outbox.tables.calls.client = faulty
        app.outbox.skip(ref, subscription="crm")
        app.outbox.skip(ref, subscription="crm")
        app.outbox.tables.calls.client = app.client
        app.run(5)
        assert told(app, "cancelled") == [(ref.id, "crm", "")]


class TestOutstanding:
    def many(self, count: int) -> tuple[App, list[MessageRef]]:
        app = failing("billing", "crm")
        app.outbox.pause_subscription("orders", "crm")
        refs = app.add(count)
        app.run(5)
        return app, refs

    def test_all_that_waits_for_a_subscription_goes_and_is_counted(self) -> None:
        app, refs = self.many(40)
        assert app.outbox.skip_outstanding("orders", "crm", dry_run=True).count == 40
        assert app.outbox.skip_outstanding("orders", "crm", reason="closed").count == 40
        app.run(5)
        assert (outstanding(app), app.row().ready) == ([], 0)
        assert sorted(i for i, s, _ in told(app, "cancelled") if s == "crm") == [r.id for r in refs]

    def test_a_limit_bounds_it_and_the_cursor_goes_on(self) -> None:
        app, _ = self.many(40)
        counts, after, more = [], "", True
        while more:
            result = app.outbox.skip_outstanding("orders", "crm", limit=15, after=after)
            counts.append(result.count)
            after, more = result.after, bool(result.after)
        assert counts == [15, 15, 10]
        assert outstanding(app) == []

    def test_only_what_is_old_enough_goes_and_what_others_lack_stays(self) -> None:
        app, old = self.many(3)
        app.clock.advance(100)
        app.outbox.pause_subscription("orders", "billing")
        young = app.add(2)
        app.run(1)
        assert app.outbox.skip_outstanding("orders", "crm", older_than=60).count == 3
        assert outstanding(app) == [r.id for r in young]
        app.outbox.skip_outstanding("orders", "crm")
        assert outstanding(app) == [r.id for r in young]
        app.outbox.resume_subscription("orders", "billing")
        app.run(90)
        assert app.at("billing").ids == [r.id for r in (*old, *young)]
        assert app.at("crm").ids == []

    def test_it_tells_how_many_wait(self) -> None:
        app, _ = self.many(12)
        count = app.outbox.lacking_count
        assert (count("orders", "crm"), count("orders", "billing")) == (12, 0)
        assert count("orders", "crm", limit=5) == 6


class TestRemovedSubscriptions:
    @pytest.mark.parametrize("ordering", ["none", "key"])
    def test_what_only_it_lacked_is_purged_and_told(self, ordering: str) -> None:
        app = failing("billing", "crm", ordering=ordering)
        app.outbox.pause_subscription("orders", "crm")
        refs = app.add(5)
        app.run(5)
        app.outbox.remove_subscription("orders", "crm")
        app.run(180)
        assert (outstanding(app), app.row().ready) == ([], 0)
        assert [(i, r) for i, _, r in told(app, "purged")] == [
            (ref.id, "its subscriptions were removed") for ref in refs
        ]
        assert {s for _, s, _ in told(app, "delivered")} == {"billing"}

    def test_what_others_lack_too_goes_to_them(self) -> None:
        app = failing("billing", "crm")
        for name in ("billing", "crm"):
            app.outbox.pause_subscription("orders", name)
        refs = app.add(5)
        app.run(5)
        app.outbox.remove_subscription("orders", "crm")
        app.outbox.resume_subscription("orders", "billing")
        app.run(180)
        assert app.at("billing").ids == [ref.id for ref in refs]
        assert (outstanding(app), told(app, "purged")) == ([], [])
