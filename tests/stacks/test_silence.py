"""Silence: a function that nothing invokes any more sets an alarm off, shown in virtual time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from local.triggers.filters import compile_pattern
from tests.functions.api_client import read_event
from tests.functions.running import Functions
from tests.stacks.assembly import plain
from tests.stacks.test_monitoring import alarms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.stacks.assembly import Assembly

DAY = 24 * 60  # minutes, as all times here
STOP, END = 2 * DAY, 4 * DAY
READERS = {"relay": "outbox", "mark_delivered": "outbox", "cascade_batches": "batches"}
# what is stopped, and the alarms that tell: minutes after the stop, at most
TOLD = {
    "relay": {"RelaySilence": 6},
    "mark_delivered": {"MarkDeliveredSilence": 7},
    "cascade_batches": {"CascadeBatchesSilence": 7},
    "sweep": {"SweepSilence": 6},
    "repair": {"RepairSilence": 240},
    "clean_orphans": {"CleanOrphansSilence": 240},
    "ack_batches": {"AckQueueAge": 20},
    "daily": {"RunSilence": 26 * 60},
    "count_outstanding": {
        "RelaySilence": 6,
        "MarkDeliveredSilence": 7,
        "CascadeBatchesSilence": 7,
        "OutstandingCount": 6,
    },
}


def test_readers_of_streams_take_a_heartbeat_and_leave_nothing(
    assembly: Assembly, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    functions = Functions(monkeypatch)
    for _ in range(2):  # the first inserts the row, the second replaces it
        functions.clock.advance(60)
        functions.invoke("count_outstanding", read_event("clock_count_outstanding"))
    tables = {name: functions.engine.items(name) for name in functions.tables.values()}
    capsys.readouterr()
    mappings = assembly.of_type("AWS::Lambda::EventSourceMapping")
    for name, table in READERS.items():
        records = functions.engine.stream(functions.tables[table]).take(None)
        (mapping,) = (m for m in mappings.values() if plain(m["FunctionName"]) == _function(name))
        filters = [compile_pattern(f["Pattern"]) for f in mapping["FilterCriteria"]["Filters"]]
        seen = [record for record in records if any(matches(record) for matches in filters)]
        assert [record["eventName"] for record in seen] == ["INSERT", "MODIFY"], name
        assert functions.invoke(name, {"Records": seen}) == {"batchItemFailures": []}
    assert {name: functions.engine.items(name) for name in tables} == tables
    assert (functions.sqs.sent, functions.firehose.lines, functions.s3.objects) == ({}, [], {})
    assert "Unreadable" not in capsys.readouterr().out


@pytest.mark.parametrize("stopped", ["", *TOLD])
def test_each_function_that_is_stopped_sets_its_alarm_off(assembly: Assembly, stopped: str) -> None:
    figures = _figures(assembly, stopped)
    told = {
        name: _first_told(alarm, figures[key])
        for name, alarm in alarms(assembly).items()
        if (key := _key(alarm)) in figures
    }
    after = {name: minute - STOP for name, minute in told.items() if minute is not None}
    expected = TOLD.get(stopped, {})
    assert after.keys() == expected.keys()
    assert all(0 < after[name] <= most for name, most in expected.items())


def test_nothing_is_told_of_what_has_not_run_since_its_deployment(assembly: Assembly) -> None:
    late = {"RepairSilence", "CleanOrphansSilence", "RunSilence", "OutstandingCount"}
    for name in late:
        assert alarms(assembly)[name]["TreatMissingData"] == "missing"  # INSUFFICIENT_DATA stays


def _figures(assembly: Assembly, stopped: str) -> dict[tuple[str, str], dict[int, float]]:
    """Return values by minute: of metrics, by their name and that of their resource."""
    runs = {}
    for rule in assembly.of_type("AWS::Events::Rule").values():
        (target,) = rule["Targets"]
        runs[plain(target["Arn"])] = rule["ScheduleExpression"]
    (daily,) = assembly.of_type("AWS::Scheduler::Schedule").values()
    machine = plain(daily["Target"]["Arn"])
    runs[machine] = daily["ScheduleExpression"]
    off = machine if stopped == "daily" else _function(stopped)
    at = {
        name: [minute for minute in _minutes(rate) if minute < STOP or name != off]
        for name, rate in runs.items()
    }
    counted = at[_function("count_outstanding")]
    for reader in map(_function, READERS):
        at[reader] = [minute for minute in counted if minute < STOP or reader != off]

    waits = {m: 60.0 * max(0, m - STOP) if stopped == "ack_batches" else 9 for m in range(END)}
    figures = {("Invocations", name): dict.fromkeys(minutes, 1.0) for name, minutes in at.items()}
    figures["ExecutionsStarted", machine] = figures.pop(("Invocations", machine))
    figures["OutstandingCount", "fairbox"] = dict.fromkeys(counted, 0.0)
    figures["ApproximateAgeOfOldestMessage", "AcksQueue.QueueName"] = waits
    return figures


def _first_told(alarm: Mapping[str, Any], values: Mapping[int, float]) -> int | None:
    """Return the first minute, once all has run, in which an alarm notifies of trouble."""
    period = alarm["Period"] // 60
    periods: dict[int, float] = {}
    for minute, value in values.items():
        part = periods.get(minute // period, 0.0)
        periods[minute // period] = (
            part + value if alarm["Statistic"] == "Sum" else max(part, value)
        )

    for minute in range(STOP - DAY // 2, END):
        now = minute // period
        last = [periods.get(now - back) for back in range(1, alarm["EvaluationPeriods"] + 1)]
        if alarm["TreatMissingData"] == "missing" and set(last) == {None}:
            return minute if alarm["InsufficientDataActions"] else None
        if all(_breaches(alarm, value) for value in last):
            return minute
    return None


def _breaches(alarm: Mapping[str, Any], value: float | None) -> bool:
    if value is None:
        return bool(alarm["TreatMissingData"] == "breaching")
    if alarm["ComparisonOperator"] == "LessThanThreshold":
        return bool(value < alarm["Threshold"])
    return bool(value > alarm["Threshold"])


def _minutes(schedule: str) -> Iterable[int]:
    """Return the minutes in which `rate(...)`, or a daily `cron(0 H ...)`, starts something."""
    if rate := re.fullmatch(r"rate\(1 (minute|hour)\)", schedule):
        return range(0, END, {"minute": 1, "hour": 60}[rate[1]])
    daily = re.fullmatch(r"cron\(0 (\d+) \* \* \? \*\)", schedule)
    assert daily is not None, schedule
    return range(60 * int(daily[1]), END, DAY)


def _key(alarm: Mapping[str, Any]) -> tuple[str, str]:
    dimensions = alarm.get("Dimensions", [])
    return alarm.get("MetricName", ""), plain(dimensions[0]["Value"]) if dimensions else ""


def _function(name: str) -> str:
    return f"{''.join(map(str.capitalize, name.split('_')))}Function"
