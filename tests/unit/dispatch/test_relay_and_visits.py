"""Relay and visits: whose a message is by its age, and what is rung for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fairbox import Message
from fairbox.dispatch.ports import TAKEN, Doorbell, Outcome
from fairbox.dispatch.record_relay import QUANTUM_MESSAGES, Relay
from fairbox.tables.stored_messages import RAW, REASON

from tests.support.application import REFUSED, App

if TYPE_CHECKING:
    from fairbox.dispatch.visits import Visits
    from fairbox.tables.stored_messages import StoredMessage


def relayed(app: App) -> Relay:
    relay: Relay = app._relay
    return relay


@pytest.mark.parametrize(("age", "sent"), [(0, True), (19, True), (22, False), (300, False)])
def test_records_under_20_s_are_sent_and_older_ones_rung_for_by_id(age: int, sent: bool) -> None:
    app = App("a")
    refs = app.add(3)
    app.clock.advance(age)
    app.relay()
    assert (sorted(app.at("a").ids) == [r.id for r in refs]) == sent
    assert [set(d.refs) for d in app.doorbells.now] == ([] if sent else [set(refs)])
    app.visit()
    assert sorted(app.at("a").ids) == [r.id for r in refs]


@pytest.mark.parametrize(("before", "sent"), [(30, True), (50, False)])
def test_what_was_made_long_before_it_was_added_is_left_to_visits(before: int, sent: bool) -> None:
    app = App("a")
    made = Message(topic="orders", body=b"x", id=app.ids.next())
    app.clock.advance(before)
    app.outbox.add(made)
    app.relay()
    assert app.at("a").ids == ([made.id] if sent else [])
    app.visit()
    assert app.at("a").ids == [made.id]


def test_what_is_over_the_quantum_of_a_topic_is_rung_for() -> None:
    app = App("a")
    app.add_topic("other", "a")
    app.add(QUANTUM_MESSAGES + 30)
    app.add(5, "other")
    report = relayed(app).handle(app.records(), deadline=app.deadline)
    assert len(app.at("a").ids) == QUANTUM_MESSAGES
    assert len(app.at("a", "other").ids) == 5
    assert report.rung == 30
    assert sum(len(d.refs) for d in app.doorbells.now) == 30


def test_large_messages_use_the_quantum_up_by_bytes() -> None:
    app = App("a")
    app.add(30, body=b"x" * 300_000)
    report = relayed(app).handle(app.records(), deadline=app.deadline)
    assert report.rung == 30 - 4 * 1024 * 1024 // 300_000
    app.visit()
    assert len(set(app.at("a").ids)) == 30


def test_slow_destinations_are_never_called_from_the_stream() -> None:
    app = App("a", "hook")
    app.at("hook").quick = False
    (ref,) = app.add()
    app.relay()
    assert app.at("hook").calls == 0
    assert [d.refs for d in app.doorbells.now] == [(ref,)]
    app.visit()
    assert app.at("hook").ids == [ref.id]


def test_fast_destinations_do_not_wait_for_slow_ones_of_their_topic() -> None:
    app = App("a", "hook")
    app.at("hook").quick = False
    refs = app.add(5)
    app.meter.reset()
    app.relay()
    assert app.at("a").ids == [ref.id for ref in refs]
    assert app.writes() == {"update_item": 5}  # who still lacks it
    app.run(60)
    assert app.at("a").ids == app.at("hook").ids == [ref.id for ref in refs]
    assert app.lying() == []


def test_a_destination_that_turns_slow_is_left_to_visits_and_tried_again_later() -> None:
    app = App("a", "b")

    def slowly(_: StoredMessage) -> Outcome:
        app.clock.advance(0.5)  # ten a call: five seconds
        return TAKEN

    app.at("a").answer = slowly
    refs = app.add(40)
    app.relay()
    assert (app.at("a").calls, app.at("b").calls) == (1, 4)
    assert sum(len(d.refs) for d in app.doorbells.now) == 30
    app.relay()
    more = app.add(10)
    app.relay()
    assert (app.at("a").calls, app.at("b").calls) == (1, 5)
    app.at("a").answer = lambda _: TAKEN
    app.visit()
    ids = sorted(ref.id for ref in (*refs, *more))
    assert sorted(app.at("a").ids) == sorted(app.at("b").ids) == ids
    app.clock.advance(60)
    (last,) = app.add()
    app.relay()
    assert app.at("a").ids[-1] == last.id
    assert app.lying() == []


def test_an_ordered_shard_is_rung_for_once_with_its_smallest_id() -> None:
    app = App("a", ordering="key")
    refs = app.add(9, partition_key="k")
    app.relay()
    assert app.at("a").ids == []
    assert [d.refs for d in app.doorbells.now] == [(min(refs),)]


def test_delayed_messages_are_rung_for_within_15_minutes_only() -> None:
    app = App("a")
    (soon,) = app.add(1, delay=30)
    app.add(1, delay=1000)
    app.relay()
    ((doorbell),) = app.doorbells.later
    assert doorbell.refs == (soon,)
    assert soon.due is not None
    assert 0 <= doorbell.not_before - soon.due < 1000
    app.clock.advance(29)
    app.visit()
    assert app.at("a").ids == []
    app.clock.advance(2)
    app.visit()
    assert app.at("a").ids == [soon.id]


def test_a_delay_beyond_any_doorbell_is_found_by_the_sweep() -> None:
    app = App("a")
    (ref,) = app.add(1, delay=2000)
    app.run(1990)
    assert app.at("a").ids == []
    app.run(90)
    assert app.at("a").ids == [ref.id]


def test_pulled_topics_are_not_touched() -> None:
    app = App()
    refs = app.add(5)
    app.clock.advance(500)
    before = app.lying()
    app.run(300)
    assert app.lying() == before
    assert not app.doorbells.now
    assert not app.doorbells.later
    assert [m.id for m in app.outbox.outstanding("orders")] == [r.id for r in refs]


def test_an_unreadable_record_is_buried_with_its_reason_and_stops_nobody() -> None:
    app = App("a")
    app.put_junk("junk")
    app.add(2)
    report = relayed(app).handle(app.records(), deadline=app.deadline)
    assert report.unreadable == 1
    assert len(app.at("a").ids) == 2
    (dead,) = app.dead()
    assert "00ff" in dead[RAW]["S"]
    assert dead[REASON]["S"]
    assert app.lying() == []
    app.run(1)
    assert (app.row().ready, app.row().dead) == (0, 1)


def test_an_unreadable_item_that_a_visit_meets_is_buried() -> None:
    app = App("a")
    app.relay()
    app.put_junk("junk")
    app.put_junk("000000000000000#junk", "later#orders#0#0")
    refs = app.add(2)
    app.clock.advance(100)
    app._relayed = app.records()[-1]["dynamodb"]["SequenceNumber"]  # the relay never saw them
    app.doorbells.ring([Doorbell("orders", 0, 0)])
    app.visit()
    assert sorted(app.at("a").ids) == [r.id for r in refs]
    assert app.lying() == []
    assert {i["pk"]["S"] for i in app.dead()} == {"dead#orders#0#0"}


def test_an_unreadable_shard_row_stops_no_visit_and_repair_takes_it_away() -> None:
    app = App("a")
    app.add(3)
    app.clock.advance(100)
    row = {
        "pk": {"S": "ready#orders#0#0"},
        "sk": {"S": "!"},
        "rc": {"N": "1.5"},
        "q": {"S": "0"},
        "l": {"N": "1"},
    }
    app.engine.put_item(TableName="outbox", Item=row)
    assert app.sweep().looked == 0
    assert app.repair().unreadable == 1
    app.doorbells.ring([Doorbell("orders", 0, 0)])
    app.visit()
    assert len(app.at("a").ids) == 3
    app.run(1)
    row_after = app.row()
    assert (row_after.ready, row_after.next_check, row_after.recount) == (0, None, None)


class TestVisits:
    def visits(self, app: App) -> Visits:
        visits: Visits = app._visits
        return visits

    def test_rung_by_the_sweep_it_sends_only_what_is_overdue(self) -> None:
        app = App("a")
        old = app.add(3)
        app.clock.advance(61)
        app.add(3)
        self.visits(app).handle(Doorbell("orders", 0, 0), deadline=app.deadline)
        assert sorted(app.at("a").ids) == [r.id for r in old]

    def test_a_doorbell_that_came_too_early_is_passed_on(self) -> None:
        app = App("a")
        refs = app.add(1)
        early = Doorbell("orders", 0, 0, tuple(refs), round(app.clock.now() * 1000) + 5000)
        self.visits(app).handle(early, deadline=app.deadline)
        assert app.at("a").ids == []
        assert list(app.doorbells.later) == [early]

    def test_at_its_time_limit_it_rings_again_behind_the_others(self) -> None:
        app = App("a")
        app.add(3)
        app.clock.advance(100)
        report = self.visits(app).handle(Doorbell("orders", 0, 0), deadline=app.clock.now())
        assert report.unfinished
        assert list(app.doorbells.now) == [Doorbell("orders", 0, 0)]
        app.visit()
        assert len(app.at("a").ids) == 3

    def test_one_that_can_send_nothing_looks_ever_later_up_to_ten_minutes(self) -> None:
        app = App("a")
        app.at("a").answer = lambda _: Outcome("refused", "busy", retry_after=100_000)
        app.add(2)
        app.run(1)
        app.clock.advance(200)
        waits = []
        for _ in range(6):
            self.visits(app).handle(Doorbell("orders", 0, 0), deadline=app.deadline)
            next_check = app.row().next_check
            assert next_check is not None
            waits.append(round(next_check / 1000 - app.clock.now()))
            app.clock.set(next_check / 1000)
        assert waits == [60, 120, 240, 480, 600, 600]

    def test_a_backlog_is_sent_whole_page_by_page(self) -> None:
        app = App("a")
        app.add(350)
        app.clock.advance(100)
        self.visits(app).handle(Doorbell("orders", 0, 0), deadline=app.deadline)
        assert len(set(app.at("a").ids)) == len(app.at("a").ids) == 350

    def test_one_stuck_message_does_not_stop_those_behind_it(self) -> None:
        app = App("a")
        refs = app.add(250)
        app.at("a").answer = lambda m: REFUSED if m.ref == refs[0] else TAKEN
        app.clock.advance(100)
        self.visits(app).handle(Doorbell("orders", 0, 0), deadline=app.deadline)
        assert len(app.at("a").ids) == 249

    def test_unknown_and_pulled_topics_are_left_alone(self) -> None:
        app = App()
        app.add(2)
        app.clock.advance(100)
        for topic in ("orders", "nowhere"):
            self.visits(app).handle(Doorbell(topic, 0, 0), deadline=app.deadline)
        assert len(app.lying()) == 2
