"""Sweep, repair and marking: what they find, what they write, and what an idle one costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fairbox.dispatch.burials import Burials
from fairbox.dispatch.maintenance.shard_sweep import Sweep
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.tables.shard_rows import ShardRow
from fairbox.tables.stored_messages import read_message

from tests.support.application import THROTTLED, App


def unseen(app: App) -> None:
    """Let the streams be read by nobody."""
    app._relayed = app._marked = app.records()[-1]["dynamodb"]["SequenceNumber"]


class TestSweep:
    def test_an_idle_sweep_costs_the_queries_of_the_index_whatever_there_is(self) -> None:
        app = App("a")
        for n in range(20):
            app.add_topic(f"t{n}", "a", shards=10)
        app.add(5)
        app.run(1)
        app.meter.reset()
        report = app.sweep()
        assert (report.looked, report.rung) == (0, 0)
        assert app.meter.reading().rru <= 4
        assert app.meter.reading().wru == 0

    def test_a_busy_healthy_shard_is_looked_at_and_not_written(self) -> None:
        app = App("a")
        app.add(3)
        app.mark()
        app.clock.advance(61)
        app.relay()
        app.visit()
        app.add(3)  # young ones
        app.meter.reset()
        report = app.sweep()
        assert (report.looked, report.rung) == (1, 0)
        assert app.meter.reading().wru == 0

    def test_overdue_and_due_messages_are_rung_for(self) -> None:
        app = App("a")
        app.add_topic("later", "a")
        app.add(1)
        app.add(1, "later", delay=70)
        app.mark()
        app.clock.advance(61)
        assert app.sweep().rung == 1
        app.clock.advance(10)
        assert {d.topic for d in app.doorbells.now} == {"orders"}
        app.sweep()
        assert {d.topic for d in app.doorbells.now} == {"orders", "later"}

    def test_marked_and_unreadable_heads_are_rung_for_while_they_are_young(self) -> None:
        app = App("a")
        (ref,) = app.add()
        app.mark()
        app.clock.advance(59)
        app.outbox.tables.lanes.mark_gone(ref, "cancelled", "")
        app.add(1)
        app.clock.advance(2)
        assert app.sweep().rung == 1
        app.visit()
        assert ref.id not in {i["sk"]["S"] for i in app.lying()}

    def test_at_its_time_limit_it_says_so(self) -> None:
        app = App("a")
        app.add(1)
        app.mark()
        app.clock.advance(100)
        report = Sweep(app.tables, app.doorbells, app.clock).run(deadline=app.clock.now())
        assert report.unfinished
        assert report.looked == 0

    def test_while_the_relay_is_down_for_a_day_the_sweep_delivers(self) -> None:
        app = App("a")
        refs = app.add(30)
        app.mark()
        app._relayed = app.records()[-1]["dynamodb"]["SequenceNumber"]
        app.run(200)
        assert sorted(app.at("a").ids) == [r.id for r in refs]
        assert app.row().next_check is None


class TestRepair:
    def test_an_overdue_shard_that_no_row_shows_is_flagged(self) -> None:
        app = App("a")
        refs = app.add(3)
        unseen(app)
        app.clock.advance(200)
        assert app.sweep().looked == 0
        assert app.repair().flagged == 1
        app.sweep()
        app.visit()
        assert sorted(app.at("a").ids) == [r.id for r in refs]

    def test_pulled_topics_are_not_flagged(self) -> None:
        app = App()
        app.add(3)
        unseen(app)
        app.clock.advance(200)
        assert app.repair().flagged == 0

    def test_marked_messages_are_finished_and_their_dead_letters_written(self) -> None:
        app = App("a")
        app.at("a").answer = lambda _: Outcome("refused", "no")
        dead, cancelled = app.add(2)
        app.outbox.tables.lanes.mark_gone(cancelled, "cancelled", "")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Burials, "bury", _killed)
            for _ in range(3):
                try:
                    app.run(20)
                except KeyboardInterrupt:
                    continue
        assert {read_message(i).gone for i in app.lying()} <= {"dead", "cancelled"}
        assert app.dead() == []
        assert app.repair().finished >= 1
        assert [read_message(i).ref.id for i in app.dead()] == [dead.id]
        assert app.lying() == []

    def test_given_up_batches_are_marked_and_rung_for(self) -> None:
        app = App("a")
        refs = app.add(3)
        app.given_up.kept["batch"] = app.records()
        unseen(app)
        assert app.repair().replayed == 3
        assert app.given_up.kept == {}
        assert app.row().ready == 3
        app.visit()
        assert sorted(app.at("a").ids) == [r.id for r in refs]
        assert len(app.events("added")) == 3

    def test_counts_of_a_still_shard_are_corrected_in_one_run(self) -> None:
        app = App("a")
        app.at("a").answer = lambda _: THROTTLED
        app.add(3)
        app.run(1)
        before = app.row()
        app.tables.rows.change(replace(before, ready=7), before)
        assert app.repair().recounted == 1
        assert app.row().ready == 3
        assert app.row().recount is None
        assert app.repair().recounted == 0

    def test_a_shard_that_moves_while_it_is_recounted_is_corrected_all_the_same(self) -> None:
        app = App("a")
        app.at("a").answer = lambda _: THROTTLED
        app.add(3)
        app.run(1)
        before = app.row()
        app.tables.rows.change(replace(before, ready=7), before)

        def busy() -> None:
            app.add(2)
            app.mark()

        assert app.repair(meanwhile=busy).recounted == 1
        assert app.row().ready == 5
        assert app.row().recount is None


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


class TestFigures:
    def test_outstanding_and_oldest_age_by_topic(self) -> None:
        app = App("a")
        app.add_topic("other")
        app.at("a").answer = lambda _: THROTTLED
        app.add(3)
        app.clock.advance(30)
        app.add(2, "other")
        app.add(1, "other", delay=600)
        app.run(10)
        figures = app.figures()
        assert (figures["orders"].outstanding, figures["other"].outstanding) == (3, 3)
        assert (figures["other"].ready, figures["other"].later) == (2, 1)
        assert 40 <= figures["orders"].oldest_age <= 42
        assert 10 <= figures["other"].oldest_age <= 12


class TestMarking:
    def test_repeated_batches_change_nothing_that_is_read(self) -> None:
        app = App("a", "b")
        app.add(40)
        app.run(1)
        once = list(app.outbox.delivered("orders"))
        events = {kind: len(app.events(kind)) for kind in ("added", "delivered")}
        app._marked = None
        app.mark(batch=7)
        assert list(app.outbox.delivered("orders")) == once
        assert len(once) == 80
        assert {kind: len(app.events(kind)) for kind in events} == events
        assert app.row().ready == 0

    def test_a_body_expires_when_its_message_left_and_not_when_it_died(self) -> None:
        app = App("a")
        poison = app.rng.randbytes(400_000)
        app.at("a").answer = lambda m: (
            Outcome("refused", "no") if m.message.body == poison else TAKEN
        )
        app.add(1, body=app.rng.randbytes(400_000))
        app.add(1, body=poison)
        app.run(300)
        (dead,) = map(read_message, app.dead())
        assert dead.offloaded is not None
        assert dead.offloaded.key not in app.bodies.expired
        assert len(app.bodies.expired) == 1
        assert app.outbox.fetch(dead).message.body == poison

    def test_a_row_that_somebody_else_changes_is_counted_from_what_it_says_then(self) -> None:
        app = App("a")
        app.add(2)
        before = ShardRow("orders", 0, 0)
        assert app.tables.rows.change(replace(before, next_check=7), before)
        assert not app.tables.rows.change(replace(before, next_check=8), before)
        app.mark()
        assert (app.row().ready, app.row().next_check) == (2, 7)
