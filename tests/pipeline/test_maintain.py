"""Job `maintain`: one file a day, and what is old or erased is nowhere any more."""

from __future__ import annotations

import gzip
import json
import os
import time
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from fairbox_pipeline import ingest
from fairbox_pipeline.jobs import maintain
from fairbox_pipeline.schemas import EVENTS_TABLE
from fairbox_pipeline.warehouse import Warehouse

from tests.pipeline.writing import added, ended, write

if TYPE_CHECKING:
    from pathlib import Path

    from fairbox_pipeline.schemas import Table
    from pyspark.sql import Row

    from tests.pipeline.conftest import Pipeline

DAY = 86_400_000
START = 1_763_000_000_000 // DAY * DAY
TABLES = ("events", "messages", "malformed", "files")


def fill(pipeline: Pipeline, runs: int) -> None:
    """Add two days in some runs, each with a file of its own."""
    for n in range(runs):
        lines = [added(2 * n + day, at=START + day * DAY + n) for day in range(2)]
        lines += [ended("delivered", 2 * n + day, at=START + day * DAY + 1000) for day in range(2)]
        write(pipeline.archive, lines, f"run-{n}")
        pipeline.run("history")


def files(pipeline: Pipeline, table: str) -> list[Path]:
    return sorted((pipeline.warehouse / "fairbox" / table / "data").rglob("*.parquet"))


def keys(pipeline: Pipeline, table: str) -> set[str]:
    """Return the partition keys in all data files that there are, of any snapshot."""
    return {
        key
        for file in files(pipeline, table)
        for key in pq.read_table(file, columns=["partition_key"])["partition_key"].to_pylist()
        if key is not None
    }


def test_each_day_ends_as_one_file_and_nothing_is_lost(pipeline: Pipeline) -> None:
    fill(pipeline, 2)
    stray = files(pipeline, "events")[0].with_name("of-a-killed-run.parquet")
    stray.write_bytes(b"half")
    os.utime(stray, (START / 1000,) * 2)
    tables = pipeline.contents(*TABLES)

    told = {row["table"]: row for row in pipeline.run("maintain")["tables"]}

    assert (told["events"]["files_before"], told["events"]["files"]) == (4, 2)
    assert (told["messages"]["files"], told["files"]["files"]) == (2, 1)
    assert told["events"]["orphans"] == 1
    assert not stray.exists()
    assert pipeline.contents(*TABLES) == tables


@pytest.mark.extended  # runs of its own
def test_events_that_another_run_adds_meanwhile_are_folded(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(pipeline, 2)
    call = Warehouse.call

    def late(self: Warehouse, procedure: str, table: Table, arguments: str) -> list[Row]:
        if (procedure, table) == ("rewrite_data_files", EVENTS_TABLE):
            archive = write(pipeline.warehouse.parent / "other", [added(90, at=START)])
            uris = [str(file) for file in archive.rglob("*.json.gz")]
            with ingest.lines_at_hand(self.spark, uris) as lines:
                ingest.add_events(self, lines)
        return call(self, procedure, table, arguments)

    monkeypatch.setattr(Warehouse, "call", late)
    pipeline.run("maintain")
    monkeypatch.undo()
    assert pipeline.run("history")["messages"] == 5
    assert len(pipeline.rows("messages")) == 5


@pytest.mark.extended  # runs of every job
def test_a_daily_run_maintains_when_it_is_due(pipeline: Pipeline) -> None:
    fill(pipeline, 1)

    def maintained(*arguments: str) -> int | None:
        found = pipeline.run("daily", *arguments)["maintain"]
        assert bool(found["tables"]) == (found["maintained_at"] not in (None, before))
        at: int | None = found["maintained_at"]
        return at

    before: int | None = None
    assert maintained() is None
    first = maintained("--maintain-every", "7")
    assert first is not None
    before = first
    assert maintained("--maintain-every", "7") == first
    week = first - 7 * DAY + DAY // 2
    Warehouse(pipeline.spark).set_property(
        EVENTS_TABLE, maintain.MAINTAINED_PROPERTY, str(week - 1)
    )
    before = week - 1
    assert maintained("--maintain-every", "7") != before


def test_rows_older_than_is_asked_for_are_deleted(pipeline: Pipeline) -> None:
    later = START + 9 * DAY
    lines = [added(n, at=at) for n, at in enumerate((START, later))]
    lines += [ended("delivered", n, at=at + 1000) for n, at in enumerate((START, later))]
    write(pipeline.archive, lines)
    days = int(time.time() * 1000 // DAY - START // DAY - 5)  # whatever day it is by then
    found = pipeline.run("maintain", "--retain", str(days))
    assert found["retained_since"] == (found["maintained_at"] // DAY - days) * DAY
    assert [row["at"] // DAY for row in pipeline.rows("events")] == [later // DAY] * 2
    assert [row["added_at"] for row in pipeline.rows("messages")] == [later]
    assert len(pipeline.rows("files")) == 1


def test_a_key_is_erased_from_every_file_and_snapshot(pipeline: Pipeline) -> None:
    lines = [added(n, topic, at=START) for n in range(7) for topic in ("orders", "mail")]
    lines += [ended("delivered", n, at=START + 1000) for n in range(7)]
    write(pipeline.archive, lines)
    pipeline.run("history")
    assert keys(pipeline, "events") == {f"k{n}" for n in range(7)}

    assert pipeline.run("maintain", "--erase-key", "k3", "--topic", "mail")["erased"] == 1
    assert "k3" in keys(pipeline, "events")
    # what the same run has taken is erased with it
    write(pipeline.archive, [added(10, "mail", at=START)], "late")
    assert pipeline.run("maintain", "--erase-key", "k3")["erased"] == 2

    for table in ("events", "messages"):
        assert keys(pipeline, table) == {f"k{n}" for n in (0, 1, 2, 4, 5, 6)}
        assert len(pipeline.rows(f"{table}.snapshots")) == 1
    assert not [row for row in pipeline.rows("events") if row["id"] == lines[6]["id"]]
    # the next run folds what is new, and makes nothing anew
    write(pipeline.archive, [added(11, at=START)], "later")
    pipeline.run("history")
    assert len({row["folded"] for row in pipeline.rows("messages", "folded")}) == 2


def test_the_last_key_of_a_table_is_erased_as_well(pipeline: Pipeline) -> None:
    write(pipeline.archive, [added(3, at=START)])
    pipeline.run("history")
    pipeline.run("maintain", "--erase-key", "k3")
    assert [keys(pipeline, table) for table in ("events", "messages")] == [set(), set()]
    assert lines(pipeline.archive) == {"a": []}


@pytest.mark.guarantee("erase-key")
def test_a_key_is_erased_from_the_archive_and_all_other_lines_stay_as_they_are(
    pipeline: Pipeline,
) -> None:
    mine, others = [added(n, at=START) for n in (3, 10)], [added(n, at=START) for n in (1, 2)]
    write(pipeline.archive, [others[1], mine[0], others[0], mine[1]], "mixed")
    write(pipeline.archive, others, "without")
    write(pipeline.archive, [ended("delivered", 3, at=START + DAY)], "later", day="2026-11-27")
    odd = b'{"event":\r\xff "partition_key": "k3"}'  # no event: it stays, byte for byte
    whole = odd + b"\n" + json.dumps(mine[0]).encode()
    (pipeline.archive / "dt=2026-11-19" / "odd.json.gz").write_bytes(gzip.compress(whole))
    files = {file: file.read_bytes() for file in pipeline.archive.rglob("*.gz")}

    # over a part of the archive: the tables forget the messages, whose other lines are still there
    pipeline.run("history")
    part = pipeline.run("maintain", "--erase-key", "k3", archive=pipeline.archive / "dt=2026-11-27")
    assert (part["erased"], part["erased_files"]) == (2, 1)
    assert len(lines(pipeline.archive)["mixed"]) == 4
    found = pipeline.run("maintain", "--erase-key", "k3")

    assert (found["erased"], found["erased_files"]) == (0, 2)
    assert lines(pipeline.archive) == {
        "mixed": [json.dumps(line).encode() for line in (others[1], others[0])],
        "without": [json.dumps(line).encode() for line in others],
        "later": [],
        "odd": [odd],
    }
    unchanged = [file for file, content in files.items() if file.read_bytes() == content]
    assert [file.name for file in unchanged] == ["without.json.gz"]
    assert not list(pipeline.warehouse.rglob("erasure*"))
    # the files are taken again, and bring back nothing
    pipeline.run("history")
    assert keys(pipeline, "events") == {"k1", "k2"}


def lines(archive: Path) -> dict[str, list[bytes]]:
    """Return the lines of an archive's files."""
    return {
        file.name.partition(".")[0]: gzip.decompress(file.read_bytes()).split(b"\n")[:-1]
        for file in archive.rglob("*.json.gz")
    }


@pytest.mark.parametrize("arguments", [["--retain", "0"], ["--retain", "a"]])
def test_days_that_are_none_are_refused(pipeline: Pipeline, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended_:
        pipeline.code("maintain", *arguments)
    assert ended_.value.code == 2
    assert "not a number of days from 1" in pipeline.capsys.readouterr().err
