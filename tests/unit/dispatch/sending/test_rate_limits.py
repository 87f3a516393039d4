"""Pauses by hand, rates and limits in flight, through the whole delivery."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Subscription, Topic, TopicConflict, UnknownSubscription, UnknownTopic
from fairbox.aws.sqs_queues import decode, encode
from fairbox.dispatch.ports import TAKEN, Doorbell, Outcome
from fairbox.dispatch.sending.circuit_breakers import Gate
from fairbox.errors import InvalidInput
from fairbox.model.epochs import Epoch
from fairbox.model.topic_states import TopicState
from fairbox.tables.circuits import STANDING_VERSION
from fairbox.tables.keys import subscription_key
from fairbox.tables.stored_messages import number, read_message
from fairbox.testing import ManualClock
from fairbox.testing.application import OUTBOX
from fairbox.testing.doorbell_queues import NOW, DoorbellQueues

from tests.support.application import App

if TYPE_CHECKING:
    from fairbox.tables.stored_messages import StoredMessage


def limited(**limits: Any) -> App:
    app = App()
    app.outbox.add_subscription(Subscription("orders", "a", "sqs:http://q/orders-a", **limits))
    return app


class TestPauses:
    @pytest.mark.guarantee("pause")
    def test_a_paused_subscription_gets_nothing_and_the_others_go_on(self) -> None:
        app = App("a", "b")
        app.outbox.pause_subscription("orders", "a", reason="new system")
        app.add(10)
        app.run(3600, step=10)
        assert app.at("a").calls == 0
        assert len(app.at("b").ids) == 10
        assert all(read_message(i).pending == frozenset({"a"}) for i in app.lying())
        assert all(read_message(i).states == {} for i in app.lying())

    @pytest.mark.guarantee("pause")
    def test_resumed_it_gets_all_that_waited_at_once_and_once(self) -> None:
        app = App("a", "b")
        app.outbox.pause_subscription("orders", "a")
        app.add(250)
        app.run(3600, step=10)
        app.outbox.resume_subscription("orders", "a")
        app.visit()
        assert len(app.at("a").ids) == len(set(app.at("a").ids)) == 250
        assert app.lying() == []

    def test_what_was_added_just_before_the_resume_comes_within_half_a_minute(self) -> None:
        app = App("a")
        app.outbox.pause_subscription("orders", "a")
        app.add(5)
        app.relay()
        app.outbox.resume_subscription("orders", "a")
        app.run(32)
        assert len(app.at("a").ids) == 5

    def test_an_ordered_topic_keeps_its_order_over_a_pause(self) -> None:
        app = App("a", ordering="key")
        refs = app.add(30, partition_key="k")
        app.run(2)
        app.outbox.pause_subscription("orders", "a")
        refs += app.add(30, partition_key="k")
        app.run(700)
        app.outbox.resume_subscription("orders", "a")
        refs += app.add(30, partition_key="k")
        app.run(60)
        assert app.at("a").ids == [r.id for r in refs]

    def test_a_pause_for_an_hour_writes_nothing_but_looks(self) -> None:
        app = App("a")
        app.outbox.pause_subscription("orders", "a")
        app.add(500)
        app.run(5)
        app.meter.reset()
        app.run(3600, step=10)
        assert set(app.writes()) <= {"update_item"}
        assert app.meter.reading().calls.get("update_item", 0) <= 10

    def test_pausing_again_changes_the_reason_alone_and_a_replacement_stays_paused(self) -> None:
        app = App("a")
        app.outbox.pause_subscription("orders", "a", reason="one")
        before = app.outbox.topic("orders").status("a")
        app.clock.advance(100)
        app.outbox.pause_subscription("orders", "a", reason="two")
        app.outbox.add_subscription(Subscription("orders", "a", "sqs:http://q/orders-a", timeout=3))
        after = app.outbox.topic("orders").status("a")
        assert (after.paused_at, after.pause_reason) == (before.paused_at, "two")
        app.outbox.resume_subscription("orders", "a")
        assert app.outbox.topic("orders").status("a").ready

    def test_what_is_not_there_is_named_and_a_long_reason_refused(self) -> None:
        app = App("a")
        with pytest.raises(UnknownTopic):
            app.outbox.pause_subscription("nowhere", "a")
        for change in (app.outbox.pause_subscription, app.outbox.resume_subscription):
            with pytest.raises(UnknownSubscription) as caught:
                change("orders", "b")
            assert caught.value.subscription == "b"
        with pytest.raises(InvalidInput) as refused:
            app.outbox.pause_subscription("orders", "a", reason="x" * 201)
        assert refused.value.field == "reason"

    def test_one_that_others_keep_changing_is_a_conflict(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app, versions = App("a"), itertools.count(100)
        write = app.engine.transact_write_items

        def later(**actions: Any) -> Any:
            app.engine.update_item(
                TableName=OUTBOX,
                Key=subscription_key("orders", "a"),
                UpdateExpression="SET #v = :v",
                ExpressionAttributeNames={"#v": STANDING_VERSION},
                ExpressionAttributeValues={":v": number(next(versions))},
            )
            return write(**actions)

        monkeypatch.setattr(app.engine, "transact_write_items", later)
        with pytest.raises(TopicConflict):
            app.outbox.pause_subscription("orders", "a")


class TestRates:
    @pytest.mark.guarantee("limits")
    def test_a_rate_is_kept_and_used_while_there_is_a_backlog(self) -> None:
        app = limited(rate=5)
        app.add(600)
        begin = app.clock.now()
        got = []
        for _ in range(150):
            app.run(1)
            got.append((app.clock.now() - begin, len(app.at("a").ids)))
        assert all(n <= 5 * at + 6 for at, n in got)
        assert got[-1][1] == 600
        assert len(set(app.at("a").ids)) == 600

    def test_a_slow_rate_is_one_message_at_a_time(self) -> None:
        app = limited(rate=0.1)
        app.add(5)
        app.run(1)
        assert len(app.at("a").ids) == 1
        app.run(49)
        assert 4 <= len(app.at("a").ids) <= 6

    def test_a_rate_costs_a_write_for_a_seconds_messages_and_is_nobody_elses(self) -> None:
        app = limited(rate=100)
        app.outbox.add_subscription(Subscription("orders", "b", "sqs:http://q/orders-b"))
        app.add(50)
        app.meter.reset()
        app.relay()
        app.visit()
        assert len(app.at("b").ids) == len(app.at("a").ids) == 50
        # of each message `pending`, for `b` was quicker, and one write for all tokens
        assert app.writes() == {"update_item": 50 + 1, "batch_write_item": 2}

    def test_what_waits_for_its_rate_is_not_read_again_and_again(self) -> None:
        app = limited(rate=5)
        app.add(600)
        app.run(5)
        app.meter.reset()
        sent = len(app.at("a").ids)
        app.run(60)
        sent = len(app.at("a").ids) - sent
        assert sent == 300
        assert app.meter.reading().rru / sent <= 2

    def test_processes_that_take_at_once_never_take_the_same_tokens(self) -> None:
        """Each computes the same end of the bucket: only the one that wrote it has its tokens."""
        app = limited(rate=10)
        (subscription,) = app.outbox.topic("orders").subscriptions
        app.relay()
        spends = [
            app.tables_of(app.clock).circuits.spend("orders", "a", 10**13, 0) for _ in range(2)
        ]
        assert spends == [None, 10**13]
        assert subscription.rate == 10

    def test_walks_of_one_second_lose_nothing_whichever_of_their_doorbells_stays(self) -> None:
        app = limited(rate=1)
        app.relay()
        shard, times = ("orders", 0, 0), []
        for _ in range(2):
            times.append(int(app.clock.now() * 1000) - 1)
            app.add(3)
            app.clock.advance(2)
        app.tables.circuits.spend("orders", "a", int(app.clock.now() * 1000) + 1000, 0)
        app.doorbells.later.clear()
        for since in reversed(times):
            app.answer(Doorbell(*shard, subscription="a", before=1, since=since))
        app.run(20)
        assert len(set(app.at("a").ids)) == 6

    def test_it_leaves_no_doorbells_that_multiply(self) -> None:
        app = limited(rate=1)
        app.add(300)
        most = 0
        for _ in range(300):
            app.run(1)
            waiting = [d for d in [*app.doorbells.now, *app.doorbells.later] if not d.refs]
            most = max(most, len({d.not_before for d in waiting}))
        assert most <= 3
        refs = [r for d in [*app.doorbells.now, *app.doorbells.later] for r in d.refs]
        assert len(refs) == len(set(refs))


class TestLimitsInFlight:
    @pytest.mark.guarantee("limits")
    @pytest.mark.parametrize(
        ("limit", "groups", "call"), [(1, 1, 1), (3, 1, 3), (8, 1, 8), (40, 4, 10), (1000, 8, 10)]
    )
    def test_visits_at_a_time_and_messages_a_call_never_exceed_it(
        self, limit: int, groups: int, call: int
    ) -> None:
        app = limited(max_in_flight=limit)
        (subscription,) = app.outbox.topic("orders").subscriptions
        at = app.at("a")
        sizes: Counter[int] = Counter()  # messages by number of the call

        def counted(_: StoredMessage) -> Outcome:
            sizes[at.calls] += 1
            return TAKEN

        at.answer = counted
        app.add(200)
        app.relay()
        assert not sizes, "the relay, of which many run at a time, must not call it"
        app.run(5)
        part = Gate(app.tables, app.clock, app.rng).in_flight_limit(subscription, ordered=False)
        assert part is not None
        assert 0.9 * limit <= subscription.groups * part <= limit
        assert subscription.groups == groups
        assert max(sizes.values()) == call
        assert len(app.at("a").ids) == 200

    @pytest.mark.parametrize(("limit", "groups"), [(1, 1), (3, 3), (8, 8), (40, 8)])
    def test_an_ordered_topic_has_one_call_a_visit_so_its_visits_are_as_many(
        self, limit: int, groups: int
    ) -> None:
        app = limited(max_in_flight=limit)
        (subscription,) = app.outbox.topic("orders").subscriptions
        part = Gate(app.tables, app.clock, app.rng).in_flight_limit(subscription, ordered=True)
        ordered = TopicState(Topic("o", ordering="key"), (Epoch(0, 8, 0),), (subscription,))
        assert ordered.groups == groups
        assert part is not None
        assert groups * part <= limit

    def test_doorbells_of_a_limited_topic_share_fewer_groups(self) -> None:
        queues = DoorbellQueues(ManualClock(), groups={"orders": 3, "other": 8}.__getitem__)
        queues.ring([Doorbell(t, 0, n) for t in ("orders", "other") for n in range(20)])
        groups = {message.group for message in queues.sqs.queues[NOW].messages.values()}
        assert sum(g.startswith("orders#") for g in groups) == 3
        assert sum(g.startswith("other#") for g in groups) == 8

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("max_in_flight", 0),
            ("max_in_flight", 1001),
            ("max_in_flight", 1.5),
            ("rate", 0),
            ("rate", 10_001),
            ("rate", True),
        ],
    )
    def test_what_is_no_limit_is_refused_by_name(self, field: str, value: Any) -> None:
        with pytest.raises(InvalidInput) as caught:
            Subscription("orders", "a", "sqs:http://q/a", **{field: value})
        assert caught.value.field == field

    def test_limits_are_read_back_and_taken_away(self) -> None:
        app = limited(max_in_flight=3, rate=2.5)
        (there,) = app.outbox.topic("orders").subscriptions
        assert (there.max_in_flight, there.rate) == (3, 2.5)
        app.outbox.add_subscription(Subscription("orders", "a", "sqs:http://q/orders-a"))
        (there,) = app.outbox.topic("orders").subscriptions
        assert (there.max_in_flight, there.rate) == (None, None)


def test_a_doorbell_with_a_time_is_read_back() -> None:
    bell = Doorbell("orders", 0, 3, (), 5000, before=7000)
    assert decode(encode(bell)) == bell
    assert '"before"' not in encode(Doorbell("orders", 0, 3))


def test_answers_of_poison_do_not_stop_the_others() -> None:
    app = App("a")
    app.at("a").answer = lambda m: TAKEN if m.message.body != b"3" else Outcome("refused", "400")
    app.add(50)
    app.run(60)
    assert len(app.at("a").ids) == 49
    assert app.outbox.topic("orders").status("a").circuit == "closed"
