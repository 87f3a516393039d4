"""Given-up stream batches: their counts come right in one run, and none of them stops repair."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from fairbox.dispatch.maintenance.epoch_retirement import Retiring
from fairbox.dispatch.maintenance.recount import Recounts
from fairbox.dispatch.maintenance.repair_scan import LONGEST_WAIT_SECONDS
from fairbox.errors import NewerVersion, NotConfigured, Unavailable, Unreadable
from fairbox.tables import repair_cursor
from fairbox.tables.shard_rows import NEVER_MS

from tests.support.application import REFUSED, THROTTLED, App

SHARD = ("orders", 0, 0)


def give_up(app: App, name: str = "batch") -> None:
    """Let marking give up what the stream has, and go on behind it."""
    records = app.records(app._marked)
    app.given_up.kept[name] = records
    app._marked = records[-1]["dynamodb"]["SequenceNumber"]


def waiting(*subscriptions: str, **topic: Any) -> App:
    """An application whose destinations take nothing for now."""
    app = App(*subscriptions, **topic)
    for name in subscriptions:
        app.at(name).answer = lambda _: THROTTLED
    return app


class TestCounts:
    @pytest.mark.guarantee("recount-exact")
    def test_they_are_right_after_one_run_when_later_batches_were_counted(self) -> None:
        app = waiting("a")
        app.add(10)
        give_up(app)
        app.add(7)
        app.mark()
        assert app.row().ready == 7
        report = app.repair()
        assert (report.replayed, report.recounted, report.doubtful) == (10, 1, 0)
        assert app.row().ready == 17
        assert app.figures()["orders"].outstanding == 17
        assert app.repair().recounted == 0

    @pytest.mark.guarantee("recount-exact")
    def test_they_are_right_where_the_relay_gave_up_what_marking_has_not_reached(self) -> None:
        app = waiting("a", "b")
        app.at("a").answer = lambda _: REFUSED
        app.add()
        while not app.dead():
            app.relay()
            app.visit()
            app.clock.advance(20)
        app.mark()
        app.outbox.redrive("orders")
        app.add()
        app.given_up.kept["batch"] = app.records()[-1:]
        app.repair()
        assert (app.row().ready, app.row().dead) == (2, 0)

    def test_where_marking_stands_still_repair_ends_after_a_minute(self) -> None:
        app = waiting("a")
        app.add(10)
        give_up(app)
        app.add(7)
        app.mark()
        began = app.clock.now()
        assert app.repair(meanwhile=lambda: None).doubtful == 1
        assert LONGEST_WAIT_SECONDS <= app.clock.now() - began < LONGEST_WAIT_SECONDS + 10
        assert app.repair().recounted == 1
        assert app.row().ready == 17

    def test_they_are_right_in_a_shard_that_never_stands_still(self) -> None:
        app = waiting("a")
        app.add(10)
        give_up(app)
        app.add(7)
        app.mark()

        def busy() -> None:
            refs = app.add(3)
            app.outbox.mark_delivered(refs[:1])
            app.mark()

        assert app.repair(meanwhile=busy).doubtful == 0
        app.mark()
        assert app.row().ready == len(app.lying())

    @pytest.mark.guarantee("count-in-doubt")
    def test_removals_that_were_given_up_hide_no_message(self) -> None:
        app = waiting("a")
        first = app.add(10)
        give_up(app)
        app.outbox.mark_delivered(first)
        app.mark()
        assert app.row().ready == -10
        late = app.add(10)
        app.mark()
        assert app.row().ready == 0
        app.clock.advance(130)
        assert app.sweep().rung == 1, "ten messages are overdue"
        assert app.figures()["orders"].oldest_age > 100
        assert {m.id for m in app.outbox.outstanding()} == {ref.id for ref in late}
        assert app.repair().recounted == 1
        assert app.row().ready == 10

    @pytest.mark.guarantee("count-in-doubt")
    def test_a_delayed_message_behind_a_wrong_count_is_seen(self) -> None:
        app = waiting("a")
        app.add(3, delay=60)
        give_up(app)
        app.add(2)
        app.mark()
        app.tables.recounts.ask(SHARD)
        before = app.row()
        app.tables.rows.change(before.doubted(int(app.clock.now() * 1000)), before)
        app.clock.advance(61)
        assert app.row().later == 0
        assert app.sweep().rung == 1

    def test_a_row_that_marking_changes_meanwhile_is_doubted_as_it_is_then(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = waiting("a")
        app.add(3)
        update = app.engine.update_item

        def later(**request: Any) -> Any:
            monkeypatch.setattr(app.engine, "update_item", update)
            app.mark()
            return update(**request)

        monkeypatch.setattr(app.engine, "update_item", later)
        app.tables.recounts.doubt([SHARD], 1)
        assert (app.row().ready, app.row().recount, app.row().next_check) == (3, 0, 1)

    def test_dead_letters_are_counted_again_too(self) -> None:
        app = App("a")
        app.at("a").answer = lambda _: REFUSED
        app.add(4)
        app.mark()
        for _ in range(40):
            app.relay()
            app.visit()
            app.clock.advance(20)
        assert len(app.dead()) == 4
        give_up(app)
        app.add(1)
        app.mark()
        assert app.row().dead == 0
        app.repair()
        assert (app.row().ready, app.row().dead) == (1, 4)
        assert app.outbox.redrive("orders").count == 4
        app.mark()
        assert (app.row().ready, app.row().dead) == (5, 0)

    @pytest.mark.guarantee("recount-exact")
    @pytest.mark.parametrize("ready", [-4, 0, 900])
    def test_an_outbox_too_large_for_one_run_is_corrected(
        self, ready: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(repair_cursor, "_PAGE_LIMIT", 5)
        app = waiting("a", shards=4)
        app.add(60)
        app.add(20, delay=9000)
        app.mark()
        for shard in range(4):
            before = app.row(shard=shard)
            wrong = replace(before, ready=ready, later=3, next_check=before.next_check or NEVER_MS)
            assert app.tables.rows.change(wrong, before)
        scanned = []
        for _ in range(60):
            scanned.append(app.repair(seconds=0.02).scanned)
            app.mark()
            app.clock.advance(3600)
        assert max(scanned) < 84, "no run reads all"
        lying = [i["pk"]["S"] for i in app.lying()]
        for shard in range(4):
            row = app.row(shard=shard)
            assert (row.ready, row.later, row.recount) == (
                lying.count(f"ready#orders#0#{shard}"),
                lying.count(f"later#orders#0#{shard}"),
                None,
            )


class TestFailingObjects:
    @pytest.mark.guarantee("set-aside")
    @pytest.mark.parametrize(
        "error",
        [
            NotConfigured("FAIRBOX_ACK_QUEUE_URL"),
            Unavailable("put_record_batch", "no"),
            Unreadable({}, "no records"),
            NewerVersion({}, 2, 1),
            KeyError("dynamodb"),
            RecursionError(),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_one_stops_neither_the_others_nor_retiring_nor_the_scan(
        self, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        app = waiting("a")
        app.add(2)
        give_up(app, "bad")
        app.add(3)
        give_up(app, "good")
        read = app.given_up.read

        def refusing(name: str) -> Any:
            if name == "bad":
                raise error
            return read(name)

        monkeypatch.setattr(app.given_up, "read", refusing)
        app.add_topic("other", "a")
        app.outbox.resize("other", 2)
        app.clock.advance(7200)
        with caplog.at_level(logging.WARNING):
            report = app.repair()
        assert list(app.given_up.kept) == ["bad"]
        newer = isinstance(error, NewerVersion)
        assert (report.failed, report.newer, report.kept) == (not newer, newer, 1)
        assert report.kept_hours >= 0
        assert report.replayed == 3
        assert report.complete
        assert report.closed == 1
        if not newer:
            assert any(getattr(r, "object", "") == "bad" for r in caplog.records)

    def test_a_record_that_cannot_be_handled_stays_and_the_others_are_marked(self) -> None:
        app = waiting("a")
        app.add(3)
        records = app.records()
        del records[1]["eventID"]
        app.given_up.kept["batch"] = records
        app._marked = records[-1]["dynamodb"]["SequenceNumber"]
        report = app.repair()
        assert (report.failed, list(app.given_up.kept)) == (1, ["batch"])
        assert len(app.events("added")) == 2
        assert app.row().ready == 3

    def test_an_object_that_stays_is_known_by_its_age_long_before_it_expires(self) -> None:
        app = waiting("a")
        app.add(1)
        give_up(app)
        app.given_up.kept["batch"] = [{"nonsense": True}]
        assert app.repair().kept_hours == 0
        app.clock.advance(7 * 3600)
        assert app.repair().kept_hours == pytest.approx(7, abs=0.3)
        app.given_up.kept.clear()
        assert (app.repair().kept, app.repair().kept_hours) == (0, 0.0)

    def test_objects_that_take_all_the_time_are_tried_in_turn(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = waiting("a")
        tried: list[str] = []
        app.given_up.kept = {name: [] for name in "abcd"}

        def slow(name: str) -> Any:
            tried.append(name)
            app.clock.advance(300)
            raise Unavailable("get_object", "slow")

        monkeypatch.setattr(app.given_up, "read", slow)
        for _ in range(3):
            assert app.repair().complete
        assert tried == ["a", "b", "c", "d", "a", "b"]

    def test_a_listing_that_fails_stops_no_scan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        app = waiting("a")

        def fails() -> Any:
            raise Unavailable("list_objects_v2", "no")

        monkeypatch.setattr(app.given_up, "names", fails)
        assert app.repair().complete

    @pytest.mark.parametrize("part", [Retiring, Recounts])
    def test_a_part_that_fails_stops_no_scan(
        self, part: type, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = waiting("a")

        def fails(*_: object, **__: object) -> Any:
            raise NewerVersion({}, 2, 1)

        monkeypatch.setattr(part, "run", fails)
        assert app.repair().complete

    def test_a_request_for_a_recount_that_is_damaged_stops_no_other(self) -> None:
        app = waiting("a")
        app.add(2)
        app.mark()
        app.tables.recounts.ask(SHARD)
        item = {"pk": {"S": "recount"}, "sk": {"S": "no shard"}}
        app.engine.put_item(TableName="outbox", Item=item)
        assert app.repair().doubtful == 0
        assert app.row().ready == 2
