"""Visits of ordered shards: what is held in the row, what is read, and who goes first."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, RetryPolicy, Subscription
from fairbox.dispatch.ordered.key_order import CHECK_MS
from fairbox.dispatch.ordered.visit import YOUNG_MS, OrderedVisit
from fairbox.dispatch.ports import TAKEN, Doorbell, Outcome
from fairbox.model.ids import time_of
from fairbox.tables.deferred_keys import EVERY_KEY, MAX_DEFERRED, DeferredKeys
from fairbox.tables.lanes import Lanes
from fairbox.tables.stored_messages import read_message
from fairbox.tables.tables import Tables
from fairbox.testing.application import DELIVERIES, OUTBOX

from tests.support.application import POISONED, REFUSED, THROTTLED, App

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.model.messages import MessageRef
    from fairbox.tables.stored_messages import StoredMessage

SHARD = ("orders", 0, 0)
LONG = Outcome("refused", "busy", retry_after=3600)
PATIENT = RetryPolicy(max_attempts=1000, base=5, cap=5)


def ordered(*subscriptions: str, **more: Any) -> App:
    return App(*(subscriptions or ("a",)), ordering="key", **more)


def row(app: App) -> DeferredKeys:
    return app.tables.deferred_keys.get(SHARD)[1]


def of_key(key: str, answer: Outcome) -> Callable[[StoredMessage], Outcome]:
    return lambda m: answer if m.message.partition_key == key else TAKEN


def refusing(ref: MessageRef) -> Callable[[StoredMessage], Outcome]:
    return lambda m: REFUSED if m.ref == ref else TAKEN


def deliver(app: App) -> None:
    app.relay()
    app.visit()


def sent(app: App, key: str, subscription: str = "a") -> list[str]:
    received = app.at(subscription).received
    return [m.ref.id for m in received if m.message.partition_key == key]


def ids(refs: list[MessageRef]) -> list[str]:
    return [r.id for r in refs]


def cost_of(app: App, work: Callable[[], object]) -> float:
    """Return the RRU of some work, whose invocation has just compared the topics' version."""
    app.clock.advance(2)
    app.tables.topic_cache.refresh()
    app.meter.reset()
    work()
    return app.meter.reading().rru


def held_back(followers: int, **more: Any) -> tuple[App, list[MessageRef]]:
    """Return an application whose key `k` is held, its followers passed by."""
    app = ordered(retry=PATIENT)
    app.at("a").answer = of_key("k", LONG)
    refs = app.add(followers + 1, partition_key="k", **more)
    app.clock.advance(YOUNG_MS / 1000 + 1)
    deliver(app)
    app.mark()
    return app, refs


def test_while_nothing_fails_a_visit_is_one_query_and_writes_only_deletes() -> None:
    app = ordered(retry=PATIENT)
    app.add(5, partition_key="k", body=b"x" * 600)
    app.relay()

    def visit() -> None:
        app.visit()

    assert cost_of(app, visit) == 1
    assert dict(app.meter.reading().calls) == {"query": 1, "batch_write_item": 1}
    assert row(app) == DeferredKeys()


def test_what_was_refused_is_held_with_its_first_id_and_due_time_for_one_write() -> None:
    app = ordered(retry=PATIENT)
    app.at("a").answer = of_key("k", REFUSED)
    refs = app.add(3, partition_key="k")
    others = app.add(3, partition_key="other")
    app.relay()
    app.meter.reset()
    app.visit()
    assert app.writes() == {"update_item": 2, "batch_write_item": 1}
    (hold,) = row(app).entries
    stored = next(m for m in map(read_message, app.lying()) if m.ref == refs[0])
    assert (hold.id, hold.due, hold.state) == (refs[0].id, stored.due("a"), "waiting")
    assert sent(app, "other") == ids(others)
    assert sent(app, "k") == []


@pytest.mark.extended  # size
def test_reads_are_bounded_with_5000_followers_behind_a_held_key() -> None:
    app, refs = held_back(5000)
    assert row(app).start == refs[-1].id
    app.add(1, partition_key="other")
    app.relay()
    assert cost_of(app, app.visit) == 1 + 1  # the row, and what lies behind the followers
    assert len(sent(app, "other")) == 1


@pytest.mark.extended  # size
def test_a_due_key_costs_one_get_and_its_followers_are_read_once_when_it_is_through() -> None:
    app, refs = held_back(5000)
    app.clock.advance(10_100)  # two seconds for each of them
    app.sweep()  # as long ago as this the visit reads from the head
    assert cost_of(app, app.visit) > 100
    app.clock.advance(1)
    again = [Doorbell(*SHARD)]
    (hold,) = row(app).entries
    app.clock.advance((hold.due / 1000 - app.clock.now()) % 3600 + 1)
    since = replace(row(app), since=int(app.clock.now() * 1000))
    assert app.tables.deferred_keys.write(SHARD, since, since.version) is None
    app.doorbells.now.clear()
    app.doorbells.later.clear()
    app.doorbells.ring(again)
    assert cost_of(app, app.visit) == 1 + 1 + 1  # the row, the message, what lies behind
    assert sent(app, "k") == []
    app.at("a").answer = lambda _: TAKEN
    (hold,) = row(app).entries
    app.clock.advance(hold.due / 1000 - app.clock.now() + 1)
    since = replace(row(app), since=int(app.clock.now() * 1000))
    assert app.tables.deferred_keys.write(SHARD, since, since.version) is None
    app.doorbells.later.clear()
    app.doorbells.ring(again)
    size = sum(map(_size, app.lying()))
    pages = 5000 / 100 + 5
    assert size / 4096 < cost_of(app, app.visit) <= size / 4096 + pages + 4
    assert sent(app, "k") == ids(refs)
    assert row(app) == DeferredKeys(row(app).version)


def _size(item: Any) -> int:
    from fairbox.testing.units import item_size  # noqa: PLC0415 - the meter's own rule

    return item_size(item)


def test_start_passes_nothing_younger_than_two_seconds() -> None:
    app = ordered(retry=PATIENT)
    app.at("a").answer = of_key("k", LONG)
    for _ in range(40):
        app.add(1, partition_key="k")
        deliver(app)
        start = row(app).start
        assert not start or time_of(start) <= app.clock.now() * 1000 - YOUNG_MS
        app.clock.advance(0.25)
    assert row(app).start


def test_what_is_committed_late_is_found_by_its_doorbell_for_one_read() -> None:
    app, _ = held_back(50)
    late = Message(topic="orders", body=b"", partition_key="other", id=app.ids.next())
    app.clock.advance(4)
    app.add(20, partition_key="k")
    app.clock.advance(4)
    app.add(1, partition_key="third")
    deliver(app)
    assert row(app).start > late.id
    app.outbox.add(late)
    app.relay()
    assert cost_of(app, app.visit) == 1 + 1 + 1  # the row, the message, what lies behind
    assert sent(app, "other") == [late.id]


def test_a_late_message_of_a_held_key_goes_first_and_at_once() -> None:
    app = ordered(retry=PATIENT)
    early = Message(topic="orders", body=b"", partition_key="k", id=app.ids.next())
    app.at("a").answer = lambda m: LONG if m.ref.id != early.id else TAKEN
    refs = app.add(30, partition_key="k")
    app.clock.advance(10)
    deliver(app)
    assert row(app).start == refs[-1].id
    app.outbox.add(early)
    deliver(app)
    assert sent(app, "k") == [early.id]
    assert [e.id for e in row(app).entries] == [refs[0].id]


def test_a_late_message_that_is_refused_holds_its_key_from_its_own_id_on() -> None:
    app, refs = held_back(30)
    early = Message(topic="orders", body=b"", partition_key="k", id=_before(refs[0].id))
    app.outbox.add(early)
    deliver(app)
    assert [e.id for e in row(app).entries] == [early.id]
    app.at("a").answer = lambda _: TAKEN
    app.run(3700, step=10)
    assert sent(app, "k") == [early.id, *ids(refs)]


def _before(message_id: str) -> str:
    return f"{int(message_id[:8], 16) - 1:08x}{message_id[8:]}"


def test_a_late_message_whose_doorbell_is_lost_is_found_from_the_head() -> None:
    app, _ = held_back(30)
    late = Message(topic="orders", body=b"", partition_key="other", id=app.ids.next())
    app.clock.advance(4)
    app.add(20, partition_key="k")
    app.clock.advance(4)
    deliver(app)
    assert row(app).start > late.id
    app.outbox.add(late)
    app.mark()
    app._relayed = app.records()[-1]["dynamodb"]["SequenceNumber"]  # nobody rings
    app.run(1500, step=5)
    assert sent(app, "other") == [late.id]


def test_the_65th_failing_key_lets_its_subscription_wait_and_nothing_is_lost() -> None:
    app = ordered("a", "b", retry=PATIENT)
    app.at("a").answer = lambda _: Outcome("refused", "no", fault="message")
    refs = [app.add(1, partition_key=f"k{n}")[0] for n in range(MAX_DEFERRED + 10)]
    deliver(app)
    (hold,) = row(app).entries
    assert (hold.key, hold.id) == (EVERY_KEY, refs[0].id)
    assert app.at("b").ids == ids(refs)
    app.at("a").answer = lambda _: TAKEN
    app.run(600)
    assert sorted(app.at("a").ids) == sorted(ids(refs))
    assert app.lying() == []


def test_while_a_subscription_is_not_ready_it_waits_as_a_whole_and_others_go_on() -> None:
    app = ordered("a", "b", retry=PATIENT)
    app.at("a").answer = lambda _: THROTTLED
    refs = []
    for n in range(300):
        refs += app.add(1, partition_key=f"k{n % 7}")
        deliver(app)
        app.clock.advance(0.5)
    (hold,) = row(app).entries
    assert (hold.key, hold.id) == (EVERY_KEY, refs[0].id)
    assert app.at("b").ids == ids(refs)
    app.clock.advance(2)
    deliver(app)
    app.add(1, partition_key="k0")
    app.relay()
    app.doorbells.later.clear()
    assert cost_of(app, app.visit) <= 1 + 1 + 3  # the row, a probe, what start has not passed
    app.at("a").answer = lambda _: TAKEN
    app.run(1500, step=5)
    for n in range(7):
        assert sent(app, f"k{n}") == sent(app, f"k{n}", "b")
    assert app.lying() == []


def test_what_failed_before_its_subscription_was_not_ready_is_not_forgotten() -> None:
    app = ordered(retry=PATIENT)
    refs = [app.add(1, partition_key=key)[0] for key in ("k", "other", "third")]
    slow = Outcome("throttled", "slower", retry_after=600)
    app.at("a").answer = lambda m: REFUSED if m.message.partition_key == "k" else slow
    app.clock.advance(YOUNG_MS / 1000 + 1)
    deliver(app)
    assert [(e.id, e.whole) for e in row(app).entries] == [(refs[0].id, False), (refs[1].id, True)]
    app.at("a").answer = lambda _: TAKEN
    app.run(60)
    assert sent(app, "k") == [refs[0].id]
    assert [e.id for e in row(app).entries] == [refs[1].id]
    app.run(700)
    assert app.lying() == []


def test_a_subscription_that_comes_while_a_key_is_held_gets_its_messages_in_order() -> None:
    app, refs = held_back(30)
    app.outbox.add_subscription(Subscription("orders", "b", "sqs:http://q/orders-b"))
    more = app.add(2, partition_key="k")
    deliver(app)
    assert sent(app, "k", "b") == ids([*refs, *more])


def test_two_visits_at_once_keep_what_the_other_holds() -> None:
    app = ordered(retry=PATIENT)
    refs = app.add(2, partition_key="k")
    app.clock.advance(5)
    app.relay()

    def meanwhile(message: StoredMessage) -> Outcome:
        app.at("a").answer = lambda _: LONG
        app.add(1, partition_key="j")
        deliver(app)  # holds `j`, and the key that this one has in its hands
        return LONG if message.message.partition_key == "k" else TAKEN

    app.at("a").answer = meanwhile
    app.visit()
    assert len(row(app).entries) == 2
    app.at("a").answer = lambda _: TAKEN
    app.run(3700, step=10)
    assert sorted(set(sent(app, "k"))) == ids(refs)
    assert len(sent(app, "j")) == 1
    assert row(app).entries == ()


def test_a_visit_that_is_cut_off_at_any_step_loses_and_reorders_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for fails in (1, 2):  # a key that is held for the first time; one that is due, with followers
        ended = False
        for step in range(60):
            app = ordered("a", "b", retry=PATIENT)
            refs = app.add(4, partition_key="k") + app.add(2, partition_key="other")
            app.clock.advance(YOUNG_MS / 1000 + 1)
            app.at("a").answer = of_key("k", REFUSED)
            app.relay()
            if fails == 2:
                app.visit()
                app.at("a").answer = lambda _: TAKEN
                app.clock.advance(8)
                app.pass_on()
            left = [step]

            def crash(request: Any, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt(request)

            _cut_off(app, crash, monkeypatch)
            app.at("a").answer = lambda _: TAKEN
            app.run(90)
            for name in ("a", "b"):
                first = dict.fromkeys(sent(app, "k", name))
                assert list(first) == ids(refs[:4]), f"cut off at step {step}"
                assert set(sent(app, "other", name)) == set(ids(refs[4:]))
            assert app.lying() == []
            assert row(app).entries == ()
            if left[0] >= 0:
                ended = True
                break
        assert ended, "no visit came to its end"


def test_at_the_time_limit_the_next_visit_goes_on_with_the_followers() -> None:
    app, refs = held_back(400)
    (hold,) = row(app).entries
    app.clock.advance(hold.due / 1000 - app.clock.now() + 1)
    since = replace(row(app), since=int(app.clock.now() * 1000))
    assert app.tables.deferred_keys.write(SHARD, since, since.version) is None

    def slow(_: StoredMessage) -> Outcome:
        app.clock.advance(0.4)
        return TAKEN

    app.at("a").answer = slow
    app.doorbells.now.clear()
    app.doorbells.later.clear()
    app.doorbells.ring([Doorbell(*SHARD)])
    app.run(900)
    assert sent(app, "k") == ids(refs)
    assert app.lying() == []


class TestOnDead:
    def broken(self, **more: Any) -> tuple[App, list[MessageRef]]:
        """Return an application in which the first message of key `k` has died."""
        app = ordered(**more)
        refs = app.add(6, partition_key="k")
        app.at("a").answer = refusing(refs[0])
        app.run(60)
        assert [read_message(i).ref.id for i in app.dead()] == [refs[0].id]
        return app, refs

    def test_skip_lets_the_key_go_on(self) -> None:
        app, refs = self.broken(on_dead="skip")
        assert sent(app, "k") == ids(refs[1:])
        assert row(app).entries == ()

    def test_block_lets_the_key_wait_and_no_other(self) -> None:
        app, refs = self.broken(on_dead="block")
        app.add(1, partition_key="other")
        app.run(7200, step=20)
        assert sent(app, "k") == []
        assert len(sent(app, "other")) == 1
        assert [(e.id, e.state) for e in row(app).entries] == [(refs[0].id, "blocked")]

    def test_a_blocking_dead_letter_goes_first_when_it_is_redriven(self) -> None:
        app, refs = self.broken(on_dead="block")
        app.run(1200, step=5)
        app.at("a").answer = lambda _: TAKEN
        app.outbox.redrive("orders")
        app.run(5)
        assert sent(app, "k") == ids(refs)
        assert app.lying() == app.dead() == []
        assert row(app).entries == ()

    def test_dead_letters_of_a_key_come_back_in_the_order_of_their_ids(self) -> None:
        app = ordered(on_dead="skip", retry=RetryPolicy(max_attempts=2, base=5, cap=5))
        refs = app.add(6, partition_key="k")
        app.at("a").answer = lambda _: POISONED
        app.run(60)
        assert len(app.dead()) == 6
        refused_once = {refs[2], refs[4]}

        def answer(message: StoredMessage) -> Outcome:
            if message.ref in refused_once:
                refused_once.remove(message.ref)
                return REFUSED
            return TAKEN

        app.at("a").answer = answer
        app.outbox.redrive("orders", [refs[n] for n in (3, 0, 5, 1, 4, 2)])
        for _ in range(20):  # visits of the shard, also while one that was refused is not due
            app.add(1, partition_key="other")
            deliver(app)
            app.clock.advance(0.3)
        app.run(60)
        assert sent(app, "k") == ids(refs)
        assert app.lying() == app.dead() == []

    def test_a_visit_beside_the_one_in_which_a_message_dies_sends_none_of_its_followers(
        self,
    ) -> None:
        app = ordered(on_dead="block", retry=RetryPolicy(max_attempts=2, base=1, cap=1))
        refs = app.add(40, partition_key="k")
        app.add(1, partition_key="other")
        app.clock.advance(YOUNG_MS / 1000 + 1)
        app.at("a").answer = refusing(refs[0])
        deliver(app)
        assert [(e.id, e.state) for e in row(app).entries] == [(refs[0].id, "waiting")]
        app.clock.advance(3)
        app.add(1, partition_key="other")
        app.relay()

        others = [Doorbell(*SHARD)]

        def meanwhile(stored: StoredMessage) -> Outcome:
            if stored.message.partition_key == "other" and others:  # refs[0] has died by now
                app.answer(others.pop())
            return REFUSED if stored.ref == refs[0] else TAKEN

        app.at("a").answer = meanwhile
        app.visit()
        assert len(app.dead()) == 1
        assert sent(app, "k") == []
        assert [(e.id, e.state) for e in row(app).entries] == [(refs[0].id, "blocked")]

    def test_a_page_that_a_visit_reads_after_a_death_beside_it_sends_no_followers(self) -> None:
        app = ordered(on_dead="block", retry=RetryPolicy(max_attempts=1))
        app.add(30, partition_key="other")  # more than a visit reads with the row
        refs = app.add(10, partition_key="k")
        app.relay()
        again = [Doorbell(*SHARD)]

        def meanwhile(stored: StoredMessage) -> Outcome:
            if again:
                app.answer(again.pop())
                assert len(app.dead()) == 1
            return REFUSED if stored.ref == refs[0] else TAKEN

        app.at("a").answer = meanwhile
        app.visit()
        assert sent(app, "k") == []
        assert [(e.id, e.state) for e in row(app).entries] == [(refs[0].id, "blocked")]

    def test_a_due_message_that_dies_before_it_is_read_again_holds_its_followers(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = ordered(on_dead="block", retry=RetryPolicy(max_attempts=2, base=1, cap=1))
        refs = app.add(40, partition_key="k")
        app.clock.advance(YOUNG_MS / 1000 + 1)
        app.at("a").answer = refusing(refs[0])
        deliver(app)
        app.clock.advance(3)
        app.doorbells.now.clear()
        app.doorbells.later.clear()
        _beside(app, monkeypatch, Lanes, "read", lambda: app.answer(Doorbell(*SHARD)))
        app.doorbells.ring([Doorbell(*SHARD)])
        app.visit()
        assert len(app.dead()) == 1
        assert sent(app, "k") == []
        assert [(e.id, e.state) for e in row(app).entries] == [(refs[0].id, "blocked")]

    def test_a_redriven_message_that_dies_again_beside_a_visit_holds_its_followers(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for cut in (False, True):
            app = ordered(on_dead="block", retry=RetryPolicy(max_attempts=1))
            refs = app.add(40, partition_key="k")
            app.clock.advance(YOUNG_MS / 1000 + 1)
            app.at("a").answer = refusing(refs[0])
            deliver(app)
            app.outbox.redrive("orders")
            app.relay()
            (doorbell,) = app.doorbells.now
            assert doorbell.refs == (refs[0],)

            def again(app: App = app, doorbell: Doorbell = doorbell, *, cut: bool = cut) -> None:
                if cut:
                    monkeypatch.setattr(OrderedVisit, "_end", lambda _: None)
                app.answer(doorbell)

            _beside(app, monkeypatch, Lanes, "read", again)
            app.visit()
            monkeypatch.undo()
            assert len(app.dead()) == 1
            assert sent(app, "k") == []
            app.run(10)
            assert sent(app, "k") == []
            assert [(e.id, e.state) for e in row(app).entries] == [(refs[0].id, "blocked")]

    def test_a_second_death_is_written_too_for_a_visit_that_saw_the_message_redriven(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = ordered(on_dead="block", retry=RetryPolicy(max_attempts=1))
        refs = app.add(40, partition_key="k")
        app.clock.advance(YOUNG_MS / 1000 + 1)
        app.at("a").answer = refusing(refs[0])
        deliver(app)
        app.add(1, partition_key="other")
        deliver(app)
        before = row(app)
        assert before.start > refs[0].id
        app.clock.advance(CHECK_MS / 1000 + 1)  # now a visit reads the row, then from the head
        app.outbox.redrive("orders")
        app.relay()
        (doorbell,) = app.doorbells.now

        def again() -> None:
            monkeypatch.setattr(OrderedVisit, "_end", lambda _: None)
            app.answer(doorbell)

        _beside(app, monkeypatch, Lanes, "page", again)
        app.visit()
        assert len(app.dead()) == 1
        assert sent(app, "k") == []
        assert row(app).version == before.version + 1

    def test_a_late_message_that_is_held_beside_a_visit_keeps_what_is_due_there_waiting(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = ordered(on_dead="block", retry=PATIENT)
        late = Message(topic="orders", body=b"", partition_key="k", id=app.ids.next())
        refs = app.add(40, partition_key="k")
        app.clock.advance(YOUNG_MS / 1000 + 1)
        app.at("a").answer = refusing(refs[0])
        deliver(app)
        app.outbox.add(late)
        app.clock.advance(6)
        app.doorbells.now.clear()
        app.doorbells.later.clear()
        app.at("a").answer = lambda m: LONG if m.ref.id == late.id else TAKEN
        app.relay()
        (doorbell,) = app.doorbells.now
        app.doorbells.now.clear()
        _beside(app, monkeypatch, Lanes, "read", lambda: app.answer(doorbell))
        app.doorbells.ring([Doorbell(*SHARD)])
        app.visit()
        assert sent(app, "k") == []
        assert [(e.id, e.state) for e in row(app).entries] == [(late.id, "waiting")]

    def test_a_message_that_dies_beside_the_visit_that_redrives_it_still_blocks_its_key(
        self,
    ) -> None:
        app = ordered(on_dead="block", retry=RetryPolicy(max_attempts=1))
        refs = app.add(40, partition_key="k")
        app.clock.advance(YOUNG_MS / 1000 + 1)
        app.at("a").answer = refusing(refs[0])
        deliver(app)
        app.outbox.redrive("orders")
        app.relay()
        again = [*app.doorbells.now]

        def meanwhile(stored: StoredMessage) -> Outcome:
            if again:
                app.answer(again.pop())
                assert len(app.dead()) == 1
            return REFUSED if stored.ref == refs[0] else TAKEN

        app.at("a").answer = meanwhile
        app.visit()
        app.run(60)
        assert sent(app, "k") == []
        assert [(e.id, e.state) for e in row(app).entries] == [(refs[0].id, "blocked")]

    def test_what_is_redriven_after_a_visit_has_read_the_head_goes_before_its_followers(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app, refs = self.broken(on_dead="block")
        app.at("a").answer = lambda _: TAKEN
        app.clock.advance(CHECK_MS / 1000 + 1)
        assert (
            app.tables.deferred_keys.write(SHARD, replace(row(app), start=""), row(app).version)
            is None
        )
        _beside(
            app, monkeypatch, Tables, "outstanding_or_dead", lambda: app.outbox.redrive("orders")
        )
        app.doorbells.ring([Doorbell(*SHARD)])
        app.visit()
        app.run(5)
        assert sent(app, "k") == ids(refs)

    def test_when_its_subscription_is_ready_again_a_blocked_key_still_waits(self) -> None:
        app = ordered(on_dead="block", retry=RetryPolicy(max_attempts=1))
        refs = app.add(2, partition_key="k")
        app.add(1, partition_key="other")
        app.clock.advance(YOUNG_MS / 1000 + 1)
        app.at("a").answer = lambda m: REFUSED if m.ref == refs[0] else THROTTLED
        deliver(app)
        states = [(e.state, e.whole) for e in row(app).entries]
        whole = replace(row(app).entries[-1], id=refs[1].id)
        assert states == [("blocked", False), ("waiting", True)]
        begun = replace(row(app), entries=(row(app).entries[0], whole))
        assert begun.start > whole.id
        assert app.tables.deferred_keys.write(SHARD, begun, begun.version) is None
        app.add(30, partition_key="other")
        app.clock.advance(YOUNG_MS / 1000 + 1)
        app.at("a").answer = lambda _: TAKEN
        app.run(60)
        assert sent(app, "k") == []
        assert len(sent(app, "other")) == 31

    @pytest.mark.parametrize("how", ["purged", "acknowledged"])
    def test_a_key_goes_on_at_once_when_its_dead_letter_is_purged(self, how: str) -> None:
        app, refs = self.broken(on_dead="block")
        app.add(1, partition_key="k")
        app.run(5)
        assert sent(app, "k") == []
        if how == "purged":
            assert app.outbox.purge_dead("orders").count == 1
        else:
            app.queue.ack([held.receipt for held in app.queue.receive("orders", dead=True)])
        app.run(5)
        assert sent(app, "k")[:5] == ids(refs[1:])
        assert app.lying() == app.dead() == []
        assert row(app).entries == ()

    def test_a_key_goes_on_when_its_dead_letter_is_gone(self) -> None:
        app, refs = self.broken(on_dead="block")
        (dead,) = app.dead()
        app.engine.delete_item(TableName=DELIVERIES, Key={n: dead[n] for n in ("pk", "sk")})
        app.run(CHECK_MS / 1000 + 700, step=10)
        assert sent(app, "k") == ids(refs[1:])

    def test_a_key_goes_on_when_the_topic_no_longer_says_block(self) -> None:
        app, refs = self.broken(on_dead="block")
        app.outbox.create_topic(replace(app.outbox.topic("orders").topic, on_dead="skip"))
        app.run(CHECK_MS / 1000 + 700, step=10)
        assert sent(app, "k") == ids(refs[1:])

    def test_only_the_subscription_that_it_died_for_waits(self) -> None:
        app = ordered("a", "b", on_dead="block")
        refs = app.add(4, partition_key="k")
        app.at("a").answer = refusing(refs[0])
        app.run(100)
        assert (sent(app, "k"), sent(app, "k", "b")) == ([], ids(refs))
        app.at("a").answer = lambda _: TAKEN
        app.outbox.redrive("orders")
        app.run(5)
        assert sent(app, "k") == ids(refs)

    def test_no_death_leaves_the_row_without_its_entry_whatever_step_a_crash_cuts_off(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for step in range(8):
            app = ordered(on_dead="block", retry=RetryPolicy(max_attempts=1))
            refs = app.add(3, partition_key="k")
            app.at("a").answer = refusing(refs[0])
            app.relay()
            left = [step]

            def crash(request: Any, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt(request)

            _cut_off(app, crash, monkeypatch)
            app.run(3600, step=20)
            assert sent(app, "k") == []
            assert [read_message(i).ref.id for i in app.dead()] == [refs[0].id]
            assert [e.state for e in row(app).entries] == ["blocked"]


def _beside(
    app: App,
    monkeypatch: pytest.MonkeyPatch,
    rows: type[Lanes | Tables],
    name: str,
    visit: Callable[[], object],
) -> None:
    """Let another visit run before the first call of a method of the tables."""
    original = getattr(rows, name)
    left = [visit]

    def call(self: Any, *args: Any, **more: Any) -> Any:
        if left:
            left.pop()()
        return original(self, *args, **more)

    monkeypatch.setattr(rows, name, call)


def _cut_off(app: App, crash: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one visit end at some call to the tables."""
    calls = app.outbox.tables.calls
    original = type(calls).call

    def call(self: Any, operation: str, **request: Any) -> Any:
        crash(operation)
        return original(self, operation, **request)

    with monkeypatch.context() as patch:
        patch.setattr(type(calls), "call", call)
        with contextlib.suppress(KeyboardInterrupt):
            app.visit()
        app.end_visibility()


def test_a_message_is_found_again_whatever_becomes_of_the_rows_of_a_table() -> None:
    app, refs = held_back(30)
    for item in app.engine.items(OUTBOX):
        if item["sk"]["S"] == "!" and item["pk"]["S"].startswith("ready#"):
            app.engine.delete_item(TableName=OUTBOX, Key={n: item[n] for n in ("pk", "sk")})
    app.at("a").answer = lambda _: TAKEN
    app.clock.advance(3700)
    app.doorbells.ring([Doorbell(*SHARD)])
    app.visit()
    assert sent(app, "k") == ids(refs)
