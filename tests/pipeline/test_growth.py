"""A run costs what is new, whatever the tables already hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox_pipeline.ingest import ingest
from fairbox_pipeline.progress import Teller
from fairbox_pipeline.runs import Work, WorkMeter
from fairbox_pipeline.schemas import DAY_MS, EVENTS_TABLE, FILES_TABLE, MESSAGES_TABLE
from fairbox_pipeline.warehouse import Warehouse

from tests.pipeline.writing import added, ended, uid, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipeline.conftest import Pipeline

FIRST = 1_763_000_000_000 // DAY_MS
DAYS = 40
A_DAY = 50


def archive_of(days: int, folder: Path) -> None:
    """Write days of messages, all delivered within them, and all events of a day in one file."""
    for day in range(days):
        lines = []
        for number in range(A_DAY):
            at = (FIRST + day) * DAY_MS + number * 1000
            of = {"id": uid(number, at), "event_id": f"{day}-{number}"}
            lines.append({**added(number, at=at), **of})
            delivered = {**of, "event_id": f"{day}-{number}-delivered"}
            lines.append({**ended("delivered", number, at=at + 5), **delivered})
        write(folder, lines, f"{day}")


def work_of(pipeline: Pipeline, warehouse: Warehouse) -> Work:
    """Take what is new in the archive; return the work of it."""
    meter = WorkMeter(pipeline.spark)
    ingest(warehouse, str(pipeline.archive), Teller(pipeline.spark))
    return meter.read()


def test_one_new_line_reads_its_day_and_not_the_history(pipeline: Pipeline) -> None:
    archive_of(DAYS, pipeline.archive)
    warehouse = Warehouse(pipeline.spark)
    warehouse.prepare()
    work_of(pipeline, warehouse)
    idle = work_of(pipeline, warehouse)
    late = (FIRST + 3) * DAY_MS
    line = {**ended("delivered", 7, at=late + 99), "id": uid(7, late + 7000), "event_id": "late"}
    write(pipeline.archive, [line], "late")

    one = work_of(pipeline, warehouse)

    assert warehouse.count(EVENTS_TABLE) == 2 * DAYS * A_DAY + 1
    assert warehouse.count(MESSAGES_TABLE) == DAYS * A_DAY
    files = warehouse.count(FILES_TABLE)
    touched = 2 * A_DAY + A_DAY  # the events of the day, and its messages
    # the files are listed, and merged into their table
    assert one.input_rows - idle.input_rows - 2 * files <= 3 * touched
    assert one.output_rows <= A_DAY + files + 10
    again = pipeline.rows("messages", "id", "deliveries")
    assert {r["deliveries"] for r in again if r["id"] == line["id"]} == {2}
