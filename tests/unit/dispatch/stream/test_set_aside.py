"""Records that marking cannot handle are set aside; it stops no others, and ends in time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
from fairbox.dispatch.parallel import THREADS, in_threads
from fairbox.dispatch.stream.marking import Marking
from fairbox.errors import NewerVersion, Throttled, Unavailable, Unreadable

from tests.support.application import THROTTLED, App

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.model.bodies import BodyStore


def stream_of(count: int, **more: Any) -> tuple[App, list[dict[str, Any]]]:
    app = App("a")
    app.at("a").answer = lambda _: THROTTLED
    app.add(count, **more)
    return app, app.records()


class TestRecords:
    @pytest.mark.guarantee("set-aside")
    @pytest.mark.parametrize(
        ("reason", "spoil"),
        [
            ("NewerVersion", lambda r: r["dynamodb"]["NewImage"].update(v={"N": "2"})),
            ("KeyError", lambda r: r.pop("eventID")),
            ("KeyError", lambda r: r["dynamodb"].pop("ApproximateCreationDateTime")),
            ("ValueError", lambda r: r["dynamodb"].update(ApproximateCreationDateTime="soon")),
        ],
    )
    def test_one_is_kept_and_counted_and_the_others_are_marked(
        self, reason: str, spoil: Callable[[dict[str, Any]], object]
    ) -> None:
        app, records = stream_of(3)
        spoil(records[1])
        report = app._marking.handle(records)
        (name,) = report.kept
        assert app.given_up.kept[name] == [records[1]]
        assert reason in name
        assert (report.newer, report.failed) == ((1, 0) if reason == "NewerVersion" else (0, 1))
        assert len(app.events("added")) == 2
        assert app.row().ready == 3
        assert app.row().recount == 0, "its shard is asked to be counted again"
        assert app.repair(meanwhile=lambda: app._marking.handle(app.records()[3:])).doubtful == 0
        assert (app.row().ready, app.row().recount) == (3, None)

    @pytest.mark.parametrize("record", [{}, {"dynamodb": {}}, {"dynamodb": None}])
    def test_one_without_a_key_is_kept_all_the_same(self, record: dict[str, Any]) -> None:
        app, records = stream_of(2)
        report = app._marking.handle([record, *records])
        assert (report.failed, len(report.kept), app.row().ready) == (1, 1, 2)

    def test_a_topic_that_only_a_newer_release_reads_stops_no_other(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app, _ = stream_of(2)
        app.add_topic("other")
        app.add(1, "other")
        topic = app._marking._tables.topic_cache.get

        def newer(name: str) -> Any:
            if name == "orders":
                raise NewerVersion({}, 2, 1)
            return topic(name)

        monkeypatch.setattr(app._marking._tables.topic_cache, "get", newer)
        report = app._marking.handle(app.records())
        assert (report.newer, len(app.events("added"))) == (2, 1)
        assert (app.row().ready, app.row("other").ready) == (2, 1)

    @pytest.mark.parametrize("damage", [{"rc": {"N": "1.5"}}, {"cv": {"N": "2"}}])
    def test_a_row_that_cannot_be_read_stops_no_other_and_is_counted_again(
        self, damage: dict[str, Any]
    ) -> None:
        app, _ = stream_of(2)
        app.add_topic("other")
        app.add(1, "other")
        row = {"pk": {"S": "ready#orders#0#0"}, "sk": {"S": "!"}} | damage
        app.engine.put_item(TableName="outbox", Item=row)
        app.mark()
        assert app.row("other").ready == 1
        assert len(app.events("added")) == 3
        app.engine.delete_item(
            TableName="outbox", Key={"pk": {"S": "ready#orders#0#0"}, "sk": {"S": "!"}}
        )
        assert app.repair().recounted == 1
        assert app.row().ready == 2

    @pytest.mark.parametrize("error", [Throttled("batch_write_item"), Unavailable("a", "b")])
    def test_what_may_pass_comes_again_and_sets_nothing_aside(
        self, error: Exception, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app, records = stream_of(1)

        def fails(*_: object) -> None:
            raise error

        monkeypatch.setattr(app.archive, "write", fails)
        with pytest.raises(type(error)):
            app._marking.handle(records)
        assert app.given_up.kept == {}

    def test_what_fails_behind_the_records_is_set_aside_once_the_record_is_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app, records = stream_of(3)

        def poisoned(lines: Sequence[bytes]) -> None:
            if any(records[1]["eventID"].encode() in line for line in lines):
                raise OverflowError("the line cannot be written")

        monkeypatch.setattr(app.archive, "write", poisoned)
        with pytest.raises(OverflowError):  # the mapping halves the batch
            app._marking.handle(records)
        for record in records:
            app._marking.handle([record])
        assert list(app.given_up.kept.values()) == [[records[1]]]
        assert app.row().ready == 3

    def test_without_a_place_the_others_are_marked_and_the_error_is_raised(self) -> None:
        app, records = stream_of(3)
        del records[1]["eventID"]
        with pytest.raises(KeyError):
            app.marking_of(app.clock).handle(records)
        assert len(app.events("added")) == 2


class TestOrder:
    def test_counts_then_ledger_and_acks_then_archive_then_bodies(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app, _ = delivered(1)
        app.add(1)
        steps: list[str] = []
        tables = app._marking._tables
        for owner, name in (
            (tables.rows, "change"),
            (tables.ledger, "write"),
            (app.bodies, "expire"),
        ):
            inner = getattr(owner, name)

            def step(*given: Any, name: str = name, inner: Any = inner) -> Any:
                steps.append(name)
                return inner(*given)

            monkeypatch.setattr(owner, name, step)
        monkeypatch.setattr(app.archive, "write", lambda _: steps.append("archive"))
        app.mark()
        assert steps == ["change", "write", "archive", "expire"]

    def test_an_archive_that_takes_nothing_leaves_the_counts_exact(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app, records = stream_of(5)

        def full(_: object) -> None:
            raise Unavailable("put_record_batch", "ServiceUnavailable")

        monkeypatch.setattr(app.archive, "write", full)
        for _ in range(3):
            with pytest.raises(Unavailable):
                app._marking.handle(records)
            assert app.row().ready == 5


class SlowBodies:
    """Bodies that take a while on the clock to be tagged, the first two together."""

    bucket = "bodies"

    def __init__(self, app: App, seconds: float) -> None:
        self._app = app
        self._seconds = seconds
        self._two = threading.Event()
        self.most = self._running = 0
        self.expired: set[str] = set()
        self._lock = threading.Lock()

    def marking(self) -> Marking:
        """Return a marking over tables with these bodies."""
        app = self._app
        tables = app.tables_of(app.clock)
        tables.bodies = cast("BodyStore", self)
        return Marking(tables, app.archive, app.clock, app.acks, aside=app.given_up, run=in_threads)

    def expire(self, bucket: str, key: str) -> None:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        if self.most == 2:
            self._two.set()
        assert self._two.wait(60)
        with self._lock:
            self._app.clock.advance(self._seconds)
            self._running -= 1
            self.expired.add(key)


def delivered(count: int) -> tuple[App, list[dict[str, Any]]]:
    """The records of messages with offloaded bodies that were added and delivered."""
    app = App()
    app.outbox.mark_delivered(app.add(count, body=app.rng.randbytes(400_000)))
    return app, app.records()


class TestTime:
    def test_bodies_are_let_expire_by_several_threads(self) -> None:
        app, records = delivered(40)
        bodies = SlowBodies(app, 0.02)
        bodies.marking().handle(records, deadline=app.clock.now() + 60)
        assert 2 <= bodies.most <= THREADS
        assert len(bodies.expired) == 40

    def test_what_is_late_is_set_aside_and_replayed_and_the_invocation_ends_in_time(self) -> None:
        app, records = delivered(60)
        bodies = SlowBodies(app, 0.1)
        marking = bodies.marking()
        began = app.clock.now()
        report = marking.handle(records, deadline=began + 0.25)
        assert app.clock.now() - began < 0.25 + THREADS * 0.1 + 0.1
        assert 0 < len(bodies.expired) < 60
        (name,) = report.kept
        assert len(app.given_up.kept[name]) == 60 - len(bodies.expired)
        assert len(app.events("delivered")) == 60
        app.repair()
        assert app.given_up.kept == {}
        assert len(app.bodies.expired | bodies.expired) == 60

    def test_a_body_that_may_not_be_tagged_blocks_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app, records = delivered(2)
        bad = next(r for r in records if r["eventName"] == "REMOVE")

        def expire(bucket: str, key: str) -> None:
            if key in str(bad):
                raise Unavailable("put_object_tagging", "NoSuchBucket")

        monkeypatch.setattr(app.bodies, "expire", expire)
        report = app._marking.handle(records)
        assert [app.given_up.kept[name] for name in report.kept] == [[bad]]
        assert app.tables.rows.get_many([("orders", 0, 0)]) == [], (
            "it is counted: nothing is in doubt"
        )

    def test_rows_that_are_not_written_in_time_come_again(self) -> None:
        app, records = stream_of(3)
        with pytest.raises(Unavailable, match="time"):
            app._marking.handle(records, deadline=app.clock.now())
        app._marking.handle(records)
        assert app.row().ready == 3

    def test_calls_in_threads_raise_their_error_when_all_have_ended(self) -> None:
        done: list[int] = []

        def call(n: int) -> Callable[[], None]:
            def run() -> None:
                if n == 1:
                    raise Unreadable({}, "one")
                done.append(n)

            return run

        with pytest.raises(Unreadable):
            in_threads([call(n) for n in range(30)])
        assert len(done) == 29
