"""A day's run costs its day and what is new, whatever the tables already hold."""

from __future__ import annotations

import shutil
from datetime import date, timedelta
from typing import TYPE_CHECKING

import pytest
from fairbox_pipeline.errors import EmptyArchiveError
from fairbox_pipeline.ingest import ingest
from fairbox_pipeline.schemas import DAY_MS, EVENTS_TABLE
from fairbox_pipeline.warehouse import Warehouse

from tests.pipeline.writing import added, ended, uid, write

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.pipeline.conftest import Pipeline

EPOCH = date(1970, 1, 1)
FIRST = 1_763_000_000_000 // DAY_MS
DAYS = 12
A_DAY = 200


def archive_of(days: Iterable[int], folder: Path) -> None:
    """Write days of messages, nearly all delivered within them, and a file of each."""
    for day in days:
        lines = []
        for number in range(A_DAY):
            at = (FIRST + day) * DAY_MS + number * 425_000
            of = {"id": uid(number, at), "event_id": f"{day}-{number}"}
            lines.append({**added(number, at=at), **of})
            delivered = {**of, "event_id": f"{day}-{number}-delivered"}
            if number or day % 10:
                lines.append({**ended("delivered", number, at=at + 5), **delivered})
        write(folder, lines, f"{day}", day=str(EPOCH + timedelta(days=FIRST + day)))


def rows_of_a_day(pipeline: Pipeline) -> int:
    """Run `daily`; return how many rows it read."""
    pipeline.run("daily")
    runs = pipeline.rows("runs", "job", "began", "input_rows")
    daily = [run for run in runs if run["job"] == "daily"]
    return int(max(daily, key=lambda run: run["began"])["input_rows"])


def test_a_day_s_run_reads_its_day_and_not_the_history(pipeline: Pipeline) -> None:
    archive_of(range(3), pipeline.archive)
    pipeline.run("history")
    short = rows_of_a_day(pipeline)
    archive_of(range(3, DAYS), pipeline.archive)
    pipeline.run("history")
    assert rows_of_a_day(pipeline) <= 1.2 * short
    late = (FIRST + 3) * DAY_MS
    line = {**ended("delivered", 7, at=late + 99), "id": uid(7, late + 2_975_000)}
    write(pipeline.archive, [line], "late", day=str(EPOCH + timedelta(days=FIRST + DAYS - 1)))
    # the events of its day, and its messages in two steps
    assert rows_of_a_day(pipeline) <= 1.2 * short + 3 * 2 * A_DAY
    again = pipeline.rows("messages", "id", "deliveries")
    assert {r["deliveries"] for r in again if r["id"] == line["id"]} == {2}


def test_a_day_s_run_looks_at_the_last_folders_and_any_other_at_all(pipeline: Pipeline) -> None:
    warehouse = Warehouse(pipeline.spark)
    warehouse.prepare()
    today = (FIRST + 20) * DAY_MS

    def taken(*days: int, later: int = 0, of_a_day: bool = True) -> int:
        for day in days:
            file = f"{warehouse.count(EVENTS_TABLE)}"
            line = {**added(day), "event_id": f"{file}-{day}"}
            name = str(EPOCH + timedelta(days=FIRST + day))
            write(pipeline.archive, [line], f"{file}-{day}", day=name)
        now = today + later * DAY_MS
        return ingest(warehouse, str(pipeline.archive), now, of_a_day=of_a_day).files

    assert taken(1, 10) == 2
    assert taken(1, 8, 12) == 2
    assert taken() == 0
    assert taken(of_a_day=False) == 1
    # once a week it looks at all
    assert taken(1, later=6) == 0
    assert taken(later=7) == 1
    shutil.rmtree(pipeline.archive)
    pipeline.archive.mkdir()
    with pytest.raises(EmptyArchiveError):
        taken()
