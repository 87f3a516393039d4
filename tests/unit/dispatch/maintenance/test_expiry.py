"""Expiry: what leaves after its topic's retention, what stays, what it costs, and its crashes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from fairbox import MessageRef, Received, RetryPolicy, StaleReceipt, Subscription, TopicConflict
from fairbox.dispatch.maintenance.expiry import Expiry
from fairbox.dispatch.maintenance.shard_sweep import Sweep
from fairbox.model.topics import EXPIRY_MARGIN_MS, Topic
from fairbox.tables.message_edits import Expiries
from fairbox.testing import Fault

from tests.support.application import App
from tests.support.dead_letters import opened

KEPT: Final = 600
MARGIN: Final = EXPIRY_MARGIN_MS // 1000
ORDERINGS: Final = pytest.mark.parametrize("ordering", ["none", "key"])


class Killed(BaseException):
    """The process died here."""


class Jobs(App):
    """An application with the pulled topic `jobs`, whose messages expire after ten minutes."""

    def __init__(self, ordering: str = "none", **more: Any) -> None:
        super().__init__("a")
        more.setdefault("message_retention", KEPT)
        retry = RetryPolicy(max_attempts=9, base=300, cap=300)
        self.add_topic("jobs", ordering=ordering, retry=retry, **more)
        self.topic = self.outbox.topic("jobs").topic

    def send(self, count: int = 1, **more: Any) -> list[MessageRef]:
        """Send messages, and mark them."""
        refs = self.add(count, "jobs", **more)
        self.mark()
        return refs

    def left(self) -> list[str]:
        """Return the ids of the messages in the outbox."""
        return sorted(i["sk"]["S"].rpartition("#")[2] for i in self.lying())

    def swept(self, seconds: float = 0) -> int:
        """Let time pass, sweep, and return how many messages expired."""
        self.clock.advance(seconds)
        report = self.sweep()
        self.mark()
        return report.expired.get("jobs", 0)

    def minutes(self, count: int) -> int:
        """Sweep each minute; return how many messages expired."""
        return sum(self.swept(60) for _ in range(count))

    def receive(self, timeout: float = 30) -> Received:
        """Receive one message."""
        for _ in range(3):
            if found := self.queue.receive("jobs", 1, timeout):
                return found[0]
        raise AssertionError("nothing to receive")


class TestWhatExpires:
    @ORDERINGS
    def test_a_message_leaves_after_its_retention_and_not_before(self, ordering: str) -> None:
        app = Jobs(ordering)
        old = app.send(3, partition_key="k")
        app.clock.advance(KEPT)
        (young,) = app.send(partition_key="k")
        assert (app.swept(MARGIN - 1), len(app.left())) == (0, 4)
        assert app.swept(120) == 3
        assert app.left() == [young.id]
        events = app.events("expired")
        assert {e["id"] for e in events} == {ref.id for ref in old}
        assert app.outbox.outstanding_count("jobs") == app.row("jobs").ready == 1
        assert app.receive().message.id == young.id

    @ORDERINGS
    def test_a_topic_without_the_option_keeps_everything(self, ordering: str) -> None:
        app = Jobs(ordering, message_retention=None)
        app.send(3, partition_key="k")
        assert app.swept(10 * 86_400) == 0
        assert len(app.left()) == 3

    def test_a_delayed_message_is_as_old_as_its_due_time(self) -> None:
        app = Jobs()
        (soon,) = app.send(delay=100)
        (late,) = app.send(delay=2000)
        assert app.swept(KEPT + MARGIN + 99) == 0
        assert app.minutes(3) == 1
        assert app.left() == [late.id]
        app.clock.advance(2000 - KEPT)
        assert app.minutes(75) == 1
        assert {e["id"] for e in app.events("expired")} == {soon.id, late.id}

    def test_each_shard_and_lane_is_walked_to_the_end_of_what_is_old(self) -> None:
        app = Jobs(shards=3)
        app.send(350)
        app.send(250, delay=1)
        assert app.minutes(14) == 600
        assert app.left() == []

    @ORDERINGS
    def test_dead_letters_stay_and_may_be_redriven(self, ordering: str) -> None:
        app = Jobs(ordering)
        (ref,) = app.send()
        app.queue.bury(app.receive().receipt, "broken")
        assert app.minutes(20) == 0
        assert [letter.ref for letter in app.outbox.dead("jobs")] == [ref]
        app.outbox.redrive("jobs")
        app.mark()
        assert app.minutes(30) == 0
        assert (
            app.receive().message.id == ref.id
        )  # an operator put it back: it stays until it is taken

    def test_a_delayed_message_that_was_made_due_by_hand_stays(self) -> None:
        app = Jobs()
        (ref,) = app.send(delay=3 * KEPT)
        app.clock.advance(2 * KEPT)
        now = app.queue.reschedule(ref)
        app.mark()
        assert app.minutes(40) == 0
        assert app.left() == [now.id]

    def test_an_id_of_another_time_decides(self) -> None:
        app = Jobs()
        old = app.ids.next()
        app.clock.advance(KEPT + MARGIN)
        (ref,) = app.send(id=old)
        assert app.minutes(12) == 1
        assert [e["id"] for e in app.events("expired")] == [ref.id]

    def test_a_pushed_topic_keeps_everything_whatever_its_row_says(self) -> None:
        app = Jobs()
        tables = app.outbox.tables
        retained = replace(app.topic, name="orders", message_retention=60)
        tables.topics.change("orders", lambda there: replace(there, topic=retained))
        app.add(2)
        app.mark()
        app.clock.advance(3600)
        assert app.sweep().expired == {}
        assert len(app.left()) == 2


class TestHeldMessages:
    @pytest.mark.guarantee("expiry")
    @ORDERINGS
    def test_a_held_message_stays_and_expires_when_it_comes_back(self, ordering: str) -> None:
        app = Jobs(ordering)
        app.send()
        app.clock.advance(KEPT - 10)
        held = app.receive(timeout=300)
        assert app.swept(200) == 0
        app.queue.extend(held.receipt, 300)
        assert app.swept(290) == 0
        app.queue.nack(held.receipt, delay=0)
        assert app.minutes(4) == 1
        assert app.left() == []

    @ORDERINGS
    def test_a_message_that_is_acknowledged_is_delivered_however_old(self, ordering: str) -> None:
        app = Jobs(ordering)
        app.send()
        held = app.receive(timeout=2 * KEPT)
        assert app.minutes(14) == 0
        app.queue.ack([held.receipt])
        assert app.minutes(4) == 0
        assert (len(app.events("delivered")), app.events("expired")) == (1, [])

    @ORDERINGS
    def test_a_claim_that_ended_leaves_a_minute_for_late_clocks(self, ordering: str) -> None:
        app = Jobs(ordering)
        app.send()
        app.clock.advance(KEPT + MARGIN)
        held = app.receive(timeout=30)
        assert app.swept(30 + MARGIN - 1) == 0
        assert app.minutes(3) == 1
        with pytest.raises(StaleReceipt):
            app.queue.ack([held.receipt])

    def test_the_next_of_a_key_is_received_after_the_first_has_expired(self) -> None:
        app = Jobs("key")
        app.send(1, partition_key="k")
        app.clock.advance(KEPT - 30)
        app.queue.nack(app.receive().receipt, delay=3600)  # its key waits for an hour
        app.clock.advance(30)
        (second,) = app.send(1, partition_key="k")
        assert app.queue.receive("jobs") == []
        assert app.minutes(3) == 1
        assert app.receive().message.id == second.id

    def test_a_key_expires_in_order(self) -> None:
        app = Jobs("key")
        first, second = app.send(2, partition_key="k")
        app.send(1, partition_key="other")
        held = app.receive(timeout=3 * KEPT)
        assert held.message.id == first.id
        assert app.minutes(13) == 1  # the other key's
        assert app.left() == [first.id, second.id]
        app.queue.ack([held.receipt])
        assert app.minutes(12) == 1
        assert app.left() == []

    @pytest.mark.parametrize("count", [3, 130])
    def test_many_keys_in_flight_leave_nothing_dangling(self, count: int) -> None:
        app = Jobs("key")
        for n in range(count):
            app.send(2, partition_key=f"k{n}")
        taken = app.queue.receive("jobs", 10, 30)
        app.queue.ack([t.receipt for t in taken[:1]])
        for one in taken[1:]:
            app.queue.nack(one.receipt, delay=7200)
        assert app.minutes(16) == 2 * count - 1
        young = [app.send(1, partition_key=f"k{n}")[0].id for n in range(count)]
        found: list[str] = []
        for _ in range(10 * count):
            got = app.queue.receive("jobs", 10, 30)
            app.queue.ack([g.receipt for g in got])
            found += [g.message.id for g in got]
        assert sorted(found) == young


class TestBatchItems:
    @ORDERINGS
    def test_an_item_fails_with_its_message_and_the_batch_completes(self, ordering: str) -> None:
        app = Jobs(ordering)
        batch, items = opened(app, 3)
        for item in items:
            app.send(batch_item=item)
        held = app.receive()
        app.queue.ack([held.receipt])
        assert app.minutes(13) == 2
        app.run(1)
        progress = app.batches.progress(batch)
        assert (progress.complete, progress.acked, progress.failed) == (True, 1, 2)

    @ORDERINGS
    def test_an_item_that_nobody_issued_stops_no_message(self, ordering: str) -> None:
        app = Jobs(ordering)
        batch, _ = opened(app, 1)
        app.send(batch_item=f"{batch}:500:0")
        app.send()
        assert app.minutes(13) == 2
        assert app.left() == []

    @ORDERINGS
    def test_neither_is_written_without_the_other(self, ordering: str) -> None:
        app = Jobs(ordering)
        batch, (item,) = opened(app, 1)
        app.send(batch_item=item)
        app.clock.advance(KEPT + MARGIN)
        app.faulty.next("transact_write_items", *[Fault.THROTTLED] * 40)
        assert app.swept(60) == 0
        assert (len(app.left()), app.batches.progress(batch).failed) == (1, 0)
        app.faulty._script["transact_write_items"].clear()
        assert app.minutes(12) == 1
        assert app.batches.progress(batch).failed == 1


class TestCrashes:
    @pytest.mark.guarantee("expiry")
    @ORDERINGS
    @pytest.mark.parametrize("applied", [False, True])
    def test_a_mark_that_a_crash_left_is_finished_by_the_next_sweep(
        self, monkeypatch: pytest.MonkeyPatch, ordering: str, applied: bool
    ) -> None:
        app = Jobs(ordering)
        app.send(30, partition_key="k")
        app.clock.advance(KEPT + MARGIN + 60)
        delete = Expiries.delete

        def die(expiries: Expiries, messages: Any) -> int:
            if applied:
                delete(expiries, messages[:10])
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(Expiries, "delete", die)
            with pytest.raises(Killed):
                app.sweep()
        assert app.queue.receive("jobs", 1) == []  # receives finish marks too
        app.mark()
        app.minutes(2)
        assert app.left() == []
        assert len({e["id"] for e in app.events("expired")}) == 30
        assert app.events("delivered") == []

    @ORDERINGS
    def test_a_throttled_shard_stops_no_other_and_comes_again(self, ordering: str) -> None:
        app = Jobs(ordering)
        app.add_topic("more", ordering=ordering, message_retention=KEPT)
        app.send(2, partition_key="k")
        app.add(2, "more", partition_key="k")
        app.mark()
        app.clock.advance(KEPT + MARGIN + 60)
        operation = "transact_write_items" if ordering == "key" else "batch_execute_statement"
        app.faulty.next(operation, *[Fault.THROTTLED] * 8)
        first = app.sweep().expired
        app.faulty._script[operation].clear()
        assert sum(first.values()) == 2
        app.mark()
        app.minutes(3)
        assert app.left() == []

    @ORDERINGS
    def test_a_lost_answer_loses_no_message_and_no_event(self, ordering: str) -> None:
        app = Jobs(ordering)
        app.send(3, partition_key="k")
        app.clock.advance(KEPT + MARGIN + 60)
        operation = "transact_write_items" if ordering == "key" else "batch_execute_statement"
        app.faulty.next(operation, Fault.APPLIED_THEN_TIMEOUT)
        app.sweep()
        app.mark()
        app.minutes(2)
        assert app.left() == []
        assert len(app.events("expired")) == 3

    def test_a_claim_between_read_and_mark_wins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for ordering in ("none", "key"):
            app = Jobs(ordering)
            app.send(2, partition_key="k")
            app.clock.advance(KEPT + MARGIN + 60)
            mark = Expiries.mark if ordering == "none" else Expiries.mark_in_row
            name = mark.__name__
            held: list[Received] = []

            def late(*arguments: Any, app: Jobs = app, held: Any = held, mark: Any = mark) -> Any:
                if not held:
                    held.append(app.receive())
                return mark(*arguments)

            with monkeypatch.context() as patched:
                patched.setattr(Expiries, name, late)
                app.swept()
            assert held[0].message.id in app.left()
            app.queue.ack([held[0].receipt])
            app.mark()
            assert [e["id"] for e in app.events("delivered")] == [held[0].message.id]


@pytest.mark.extended  # size
class TestBounds:
    def test_a_run_ends_at_its_deadline_and_the_next_goes_on(self) -> None:
        app = Jobs()
        app.send(1000)
        app.clock.advance(KEPT + MARGIN + 60)
        expiry = Expiry(app.tables, app.clock)
        sweep = Sweep(app.tables, app.doorbells, app.clock, expiry=expiry)
        report = sweep.run(deadline=app.clock.now() + 0.35)
        assert (report.expired, report.unexpired) == ({"jobs": 399}, 1)
        report = sweep.run(deadline=app.clock.now() + 25)
        assert (report.expired, report.unexpired) == ({"jobs": 601}, 0)

    def test_topics_take_turns(self) -> None:
        app = Jobs(shards=20)
        app.add_topic("small", message_retention=KEPT)
        app.send(4000)
        app.add(200, "small")
        app.mark()
        app.clock.advance(KEPT + MARGIN + 60)
        expiry = Expiry(app.tables, app.clock)
        sweep = Sweep(app.tables, app.doorbells, app.clock, expiry=expiry)
        report = sweep.run(deadline=app.clock.now() + 4)
        assert report.unexpired
        assert report.expired["small"] == 200

    def test_overdue_shards_of_other_topics_come_first(self) -> None:
        app = Jobs()
        app.send(5000)
        app.add(1)
        app.mark()
        app.clock.advance(KEPT + MARGIN + 60)
        expiry = Expiry(app.tables, app.clock)
        sweep = Sweep(app.tables, app.doorbells, app.clock, expiry=expiry)
        report = sweep.run(deadline=app.clock.now() + 11)
        assert report.rung == 1
        assert report.expired["jobs"] >= 5000

    def test_held_messages_at_the_head_do_not_stop_those_behind(self) -> None:
        app = Jobs()
        app.send(450)
        app.clock.advance(KEPT - 20)
        while app.queue.receive("jobs", 10, 3000):
            pass
        app.send(50)
        app.clock.advance(KEPT)
        assert app.minutes(4) == 50
        assert len(app.left()) == 450
        app.meter.reset()
        assert app.minutes(60) == 450  # found, when they come back, within ten minutes


class TestCosts:
    def test_topics_without_the_option_cost_nothing_more(self) -> None:
        app = Jobs(message_retention=None)
        app.send(5)
        app.clock.advance(7200)
        app.sweep()
        app.clock.advance(0.5)
        app.meter.reset()
        app.sweep()
        # the eight queries of the index; the topics' copy is young
        assert (app.meter.reading().rru, app.meter.reading().wru) == (4, 0)

    def test_an_idle_minute_of_a_healthy_topic_costs_the_queries_of_the_index(self) -> None:
        app = Jobs(shards=4)
        app.send(40)
        app.swept(KEPT / 2)
        app.meter.reset()
        app.sweep()
        assert (app.meter.reading().rru, app.meter.reading().wru) == (4, 0)

    def test_a_check_that_finds_nothing_costs_a_head_and_a_write(self) -> None:
        app = Jobs()
        (first,) = app.send()
        app.clock.advance(30)
        app.send()
        app.outbox.mark_delivered([first])
        app.mark()
        app.clock.advance(KEPT + MARGIN - 30)
        app.meter.reset()
        assert app.swept() == 0
        reading = app.meter.reading()
        # the index, the version row, the topic, the head; the row, and twice its index
        assert (reading.rru, reading.wru) == (4 + 1 + 1 + 0.5, 1 + 2)
        assert app.swept(29) == 0
        assert app.swept(2) == 1

    @pytest.mark.parametrize(
        ("ordering", "count", "wru", "rru"),
        [
            ("none", 100, 2, 0.145),
            ("none", 1000, 2, 0.082),
            ("key", 100, 3.1, 0.195),
            ("key", 1000, 3.082, 0.123),
        ],
    )
    def test_the_cost_of_a_message(self, ordering: str, count: int, wru: float, rru: float) -> None:
        app = Jobs(ordering)
        app.send(count, partition_key="k", body=b"x" * 500)
        app.clock.advance(KEPT + MARGIN + 60)
        app.meter.reset()
        assert app.sweep().expired == {"jobs": count}
        reading = app.meter.reading()
        assert (reading.wru / count, reading.rru / count) == (wru, rru)


class TestTheOption:
    def test_it_is_set_changed_and_removed(self) -> None:
        app = Jobs(message_retention=None)
        app.send(3)
        app.clock.advance(KEPT + MARGIN)
        app.outbox.create_topic(replace(app.topic, message_retention=10 * KEPT))
        assert app.swept(3) == 0
        app.outbox.create_topic(replace(app.topic, message_retention=KEPT))
        assert app.outbox.topic("jobs").topic.message_retention == KEPT
        assert app.swept(3) == 3
        app.outbox.create_topic(app.topic)
        assert app.outbox.topic("jobs").topic.message_retention is None
        app.send(1)
        assert app.swept(100 * KEPT) == 0

    def test_a_run_under_way_stops_two_seconds_after_the_option_is_removed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = Jobs()
        app.send(4000)
        app.clock.advance(KEPT + MARGIN + 60)
        page = Expiries.page
        ended: list[float] = []

        def read(*arguments: Any, **more: Any) -> Any:
            if not ended:
                ended.append(app.clock.now())
                app.outbox.create_topic(replace(app.topic, message_retention=None))
            ended.append(app.clock.now())
            return page(*arguments, **more)

        monkeypatch.setattr(Expiries, "page", read)
        assert app.swept() < 2100
        assert ended[-1] - ended[0] <= 2
        assert app.minutes(10) == 0

    def test_subscriptions_and_retention_refuse_one_another(self) -> None:
        app = Jobs()
        with pytest.raises(TopicConflict, match="message_retention is for pulled topics: create"):
            app.outbox.add_subscription(Subscription("jobs", "a", "sqs:http://q/jobs-a"))
        assert not app.outbox.topic("jobs").pushed
        wanted = Topic("orders", shards=1, message_retention=KEPT)
        with pytest.raises(TopicConflict, match="message_retention is for pulled topics: remove"):
            app.outbox.create_topic(wanted)
        assert app.outbox.topic("orders").topic.message_retention is None
        app.outbox.create_topic(replace(app.topic, message_retention=None))
        app.outbox.add_subscription(Subscription("jobs", "a", "sqs:http://q/jobs-a"))

    def test_a_subscription_that_comes_with_the_option_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = Jobs(message_retention=None)
        topics = app.outbox.tables.topics
        load = topics.load

        def stale(name: str) -> Any:
            there = load(name)
            monkeypatch.undo()
            app.outbox.create_topic(replace(app.topic, message_retention=KEPT))
            return there

        monkeypatch.setattr(topics, "load", stale)
        with pytest.raises(TopicConflict, match="message_retention"):
            topics.add_subscription(Subscription("jobs", "a", "sqs:http://q/jobs-a"))
        assert not app.outbox.topic("jobs").pushed
