"""Clean orphans: what nobody goes on with is reaped and told of; a dry run changes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import BatchEnded
from fairbox.errors import InvalidInput
from fairbox.observability.metrics import OLDEST_BATCH_AGE, OPEN_BATCHES, STALLED_BATCHES
from fairbox.tables.batch_values import ORPHANED_TOPIC
from fairbox.testing import CostMeter

from tests.functions.running import Context, Functions, figures

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR = 3600.0
DAY = 24 * HOUR
QUARTER_HOUR = Context(900_000)


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Functions:
    return Functions(monkeypatch)


def clean(functions: Functions, event: dict[str, Any] | None = None) -> dict[str, Any]:
    report: dict[str, Any] = functions.invoke("clean_orphans", event or {}, QUARTER_HOUR)
    json.dumps(report)  # as Lambda does with an answer
    return report


@pytest.mark.guarantee("reaped-told")
def test_an_orphan_is_reaped_and_told_of_with_its_progress(functions: Functions) -> None:
    batch = functions.batch(4, user_key="nightly", metadata={"run": 7}, seal=False)
    functions.batches.ack([f"{batch}:0:0"])
    functions.batches.fail([f"{batch}:0:1"])
    functions.clock.advance(7 * DAY)
    report = clean(functions)
    assert (report["looked"], report["reaped"], report["orphans"]) == (1, [batch], 1)
    assert (report["pending"], report["finished"], report["dry_run"]) == (2, True, False)
    (message,) = functions.announced(ORPHANED_TOPIC)
    figures_ = [message[k] for k in ("id", "total", "acked", "failed", "pending")]
    assert figures_ == [batch, 4, 1, 1, 2]
    assert message["metadata"] == {"run": 7}
    assert functions.announced() == []


def test_an_ack_after_the_reaping_resurrects_nothing(functions: Functions) -> None:
    batch = functions.batch(2)
    functions.clock.advance(14 * DAY)
    clean(functions)
    clean(functions)  # erases
    before = functions.engine.items(functions.tables["batches"])
    with pytest.raises(BatchEnded):
        functions.batches.ack([f"{batch}:0:0"])
    assert functions.engine.items(functions.tables["batches"]) == before
    assert [item["sk"]["S"] for item in before] == ["root"]
    assert len(functions.announced(ORPHANED_TOPIC)) == 1


@pytest.mark.parametrize("by", ["event", "setting"])
def test_a_dry_run_reports_the_same_and_changes_nothing(functions: Functions, by: str) -> None:
    orphan = functions.batch(2)
    ended = functions.batches.open().id
    functions.batches.add(ended, 150, request_id="r", group_size=1)
    cancel_and_die(functions, ended)
    functions.clock.advance(14 * DAY)
    before = functions.engine.items(functions.tables["batches"])
    if by == "setting":
        functions.settings["FAIRBOX_CLEAN_ORPHANS_DRY_RUN"] = "true"
    dry = clean(functions, {"dry_run": True} if by == "event" else {})
    assert functions.engine.items(functions.tables["batches"]) == before
    assert functions.announced(ORPHANED_TOPIC) == []
    functions.settings.pop("FAIRBOX_CLEAN_ORPHANS_DRY_RUN", None)
    wet = clean(functions)
    assert (dry.pop("dry_run"), wet.pop("dry_run")) == (True, False)
    stalled = [report.pop(k) for report in (dry, wet) for k in ("stalled", "stalled_batches")]
    assert stalled == [1, [orphan], 0, []]
    assert dry == wet
    assert (wet["reaped"], wet["erased"]) == ([orphan], 1)


@pytest.mark.parametrize(
    ("seal", "setting", "days"),
    [
        (False, "FAIRBOX_OPEN_BATCH_DAYS", 7),
        (True, "FAIRBOX_SEALED_BATCH_DAYS", 14),
        (False, "FAIRBOX_OPEN_BATCH_DAYS", 9),
        (True, "FAIRBOX_SEALED_BATCH_DAYS", 3),
    ],
)
def test_limits_are_the_settings_in_days(
    functions: Functions, seal: bool, setting: str, days: int
) -> None:
    functions.settings[setting] = str(days)
    batch = functions.batch(2, seal=seal)
    functions.clock.advance(days * DAY - 2 * HOUR)
    assert clean(functions)["reaped"] == []
    functions.clock.advance(2 * HOUR)
    assert clean(functions)["reaped"] == [batch]


def test_a_setting_that_is_no_number_of_days_is_refused(functions: Functions) -> None:
    for text in ("0", "-1", "a week", "1.5"):
        functions.settings["FAIRBOX_OPEN_BATCH_DAYS"] = text
        with pytest.raises(InvalidInput, match="FAIRBOX_OPEN_BATCH_DAYS"):
            clean(functions)


def test_the_last_ack_of_a_group_is_activity_of_its_batch(functions: Functions) -> None:
    batch = functions.batch(1, 1)
    functions.clock.advance(13 * DAY)
    functions.batches.ack([f"{batch}:0:0"])
    functions.clock.advance(2 * DAY)
    report = clean(functions)
    assert (report["kept"], report["reaped"]) == (1, [])
    functions.clock.advance(12 * DAY)
    assert clean(functions)["reaped"] == [batch]


def test_what_a_crash_left_is_finished_and_not_reaped(functions: Functions) -> None:
    batch = functions.batch(1)
    cascade: Any = functions.batches._context.cascade
    cascade.cascade = lambda _: []
    functions.batches.ack([f"{batch}:0:0"])
    functions.clock.advance(30 * DAY)
    report = clean(functions)
    assert (report["ended"], report["reaped"], report["erased"]) == (1, [], 0)
    assert [m["id"] for m in functions.announced()] == [batch]
    functions.clock.advance(8 * DAY)
    assert clean(functions)["erased"] == 1


def test_it_stops_in_time_and_the_next_run_goes_on(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {functions.batch(1) for _ in range(10)}
    functions.clock.advance(14 * DAY)
    slow_down(functions, monkeypatch, seconds=80)
    reaped: list[str] = []
    while not (report := clean(functions))["finished"]:
        assert 0 < report["looked"] < 10
        reaped += report["reaped"]
    assert 0 < len(reaped) < 10
    reaped += report["reaped"]
    assert sorted(reaped) == sorted(made)
    assert len(functions.announced(ORPHANED_TOPIC)) == 10


def test_erasing_stops_in_time_and_goes_on_where_it_stopped(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = functions.batches.open().id
    functions.batches.add(batch, 3000, request_id="r", group_size=1)
    cancel_and_die(functions, batch)
    slow_down(functions, monkeypatch, seconds=10)
    runs = 0
    while not (report := clean(functions))["finished"]:
        runs += 1
        assert runs < 20
    assert (runs > 0, report["erased"]) == (True, 1)
    assert [item["sk"]["S"] for item in functions.engine.items(functions.tables["batches"])] == [
        "root"
    ]


def cancel_and_die(functions: Functions, batch: str) -> None:
    """Cancel as a process that is killed before it erases."""
    lifecycle: Any = functions.batches._context.lifecycle
    lifecycle.fence = lambda *_: True
    functions.batches.cancel(batch)
    del lifecycle.fence


def slow_down(functions: Functions, monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> None:
    """Let every write of a batch's items take so long."""
    for name in ("transact_write_items", "batch_write_item"):
        monkeypatch.setattr(functions.engine, name, slowly(functions, name, seconds))


def slowly(functions: Functions, name: str, seconds: float) -> Callable[..., Any]:
    operation = getattr(functions.engine, name)

    def call(**request: Any) -> Any:
        functions.clock.advance(seconds)
        return operation(**request)

    return call


def test_batches_in_which_nothing_happens_are_counted_as_stalled(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    still = functions.batch(2, 2)
    emptied = functions.batch(1, 2)
    grown = functions.batch(2, seal=False)
    empty = functions.batch(seal=False)
    functions.clock.advance(30 * HOUR)
    functions.batches.ack([f"{emptied}:0:0"])
    functions.batches.add(grown, 2, request_id="more")
    functions.batch(2)  # too young
    report = clean(functions)
    assert figures(capsys)[STALLED_BATCHES] == 2
    assert (report["stalled"], sorted(report["stalled_batches"])) == (2, sorted([still, empty]))
    functions.batches.ack([f"{still}:1:1"])
    functions.batches.seal(empty)
    assert clean(functions)["stalled"] == 0
    functions.settings["FAIRBOX_STALLED_BATCH_HOURS"] = "6"
    functions.clock.advance(7 * HOUR)
    assert clean(functions)["stalled"] == 4


def test_looking_for_stalled_batches_costs_one_read_of_a_young_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meters: list[CostMeter] = []

    def wrap(client: Any) -> CostMeter:
        meters.append(CostMeter(client))
        return meters[0]

    functions = Functions(monkeypatch, wrap)

    def cost() -> float:
        meters[0].reset()
        clean(functions)
        return meters[0].reading().rru

    idle = cost()
    for _ in range(10):
        functions.batch(1, 1, 1)
    assert cost() == idle + 10
    functions.clock.advance(23 * HOUR)  # not due to be looked at, and old enough to be stalled
    functions.settings["FAIRBOX_STALLED_BATCH_HOURS"] = "2"
    assert cost() == idle + 10 + 30


def test_a_batch_of_many_groups_is_alive_when_one_of_them_is(functions: Functions) -> None:
    batch = functions.batches.open().id
    functions.batches.add(batch, 600, request_id="r", group_size=2)
    functions.clock.advance(30 * HOUR)
    assert clean(functions)["stalled"] == 1
    functions.batches.ack([f"{batch}:233:1"])
    assert clean(functions)["stalled"] == 0
    functions.clock.advance(30 * HOUR)
    assert clean(functions)["stalled"] == 1
    functions.batches.ack([f"{batch}:233:0"])  # gone from the node: the node has its hour
    assert clean(functions)["stalled"] == 0


def test_open_batches_and_the_oldest_of_them_are_counted_each_minute(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    first = functions.batch(1, id="0198f7a2-0000-4000-8000-000000000001", seal=False)
    functions.clock.advance(100)
    functions.batch(1)
    functions.clock.advance(20)
    counter = functions.load("count_outstanding")
    counter.handler({}, Context.of("count_outstanding"))
    found = figures(capsys)
    assert (found[OPEN_BATCHES], found[OLDEST_BATCH_AGE]) == (2, pytest.approx(120, abs=1))
    functions.batches.cancel(first)
    counter.handler({}, Context.of("count_outstanding"))
    found = figures(capsys)
    assert (found[OPEN_BATCHES], found[OLDEST_BATCH_AGE]) == (1, pytest.approx(20, abs=1))


def test_counting_reads_each_root_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    meters: list[CostMeter] = []

    def wrap(client: Any) -> CostMeter:
        meters.append(CostMeter(client))
        return meters[0]

    functions = Functions(monkeypatch, wrap)
    for _ in range(50):
        functions.batch(1)
    counter = functions.load("count_outstanding")
    units = []
    for _ in range(3):
        meters[0].reset()
        counter.handler({}, Context.of("count_outstanding"))
        costs = meters[0].reading().costs
        units.append(
            sum(c.rru for (_, table, _), c in costs.items() if table == functions.tables["batches"])
        )
    assert units[0] == units[1] + 50
    assert units[1] == units[2]
    assert 8 <= units[1] <= 12
