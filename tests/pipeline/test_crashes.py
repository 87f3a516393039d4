"""Runs that are cut off or race another: what stands is whole, and the next run completes it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fairbox_pipeline import ingest
from fairbox_pipeline.errors import Exit
from fairbox_pipeline.schemas import (
    EVENTS_TABLE,
    MESSAGES_TABLE,
    Table,
)
from fairbox_pipeline.warehouse import FOLDED_PROPERTY, Warehouse

from tests.pipeline.archives import Archive, random_archive
from tests.pipeline.oracle import Oracle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tests.pipeline.conftest import Pipeline

TABLES = ("events", "messages", "malformed", "files")


class Crash(Exception):
    """The error that ends a run in the middle."""


def crash(*_: object, **__: object) -> None:
    raise Crash


@pytest.fixture
def archive(pipeline: Pipeline) -> Archive:
    made = random_archive(11, messages=40, files=3)
    made.write(pipeline.archive)
    return made


@pytest.mark.extended  # several runs for one rule
def test_a_crash_between_events_and_messages_is_repaired_by_the_next_run(
    pipeline: Pipeline, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = list(archive.files)
    first = archive.write(pipeline.archive.with_name("first"), names[:1])
    pipeline.run("history", archive=first)
    with monkeypatch.context() as patched:
        patched.setattr(ingest, "refresh_messages", crash)
        with pytest.raises(Crash):
            pipeline.run("history")
    expected = Oracle(archive.lines()).history()
    assert len(pipeline.rows("events", "event_id")) == expected["events"]
    assert len(pipeline.rows("messages", "id")) < expected["messages"]

    assert pipeline.run("history") == expected

    assert "no file is new or changed" in pipeline.said


@pytest.mark.extended  # two runs for one rule
def test_a_run_that_loses_a_race_says_so_and_the_next_adds_no_event_twice(
    pipeline: Pipeline, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Warehouse.append_after
    other: list[str] = []

    def late(self: Warehouse, table: Table, rows: DataFrame, snapshot: int) -> None:
        if table is EVENTS_TABLE and not other:
            other.append("ran")
            uris = [str(path) for path in sorted(pipeline.archive.rglob("*.gz"))[:2]]
            with ingest.lines_at_hand(self.spark, uris) as lines:
                ingest.add_events(self, lines)
        append(self, table, rows, snapshot)

    monkeypatch.setattr(Warehouse, "append_after", late)
    assert pipeline.code("history") == Exit.CONFLICT
    assert "run one at a time" in pipeline.capsys.readouterr().err
    assert not pipeline.rows("files")
    assert pipeline.run("history") == Oracle(archive.lines()).history()


def parts(pipeline: Pipeline, archive: Archive) -> list[Path]:
    """Return folders of the archive's files, one file each."""
    folder = pipeline.archive.with_name("parts")
    return [archive.write(folder / str(n), [name]) for n, name in enumerate(archive.files)]


@pytest.mark.extended  # four runs for one rule
def test_a_commit_that_is_folded_again_changes_nothing(
    pipeline: Pipeline, archive: Archive
) -> None:
    warehouse = Warehouse(pipeline.spark)
    marks = []
    for part in parts(pipeline, archive):
        pipeline.run("history", archive=part)
        marks.append(warehouse.property_of(MESSAGES_TABLE, FOLDED_PROPERTY))
    before = pipeline.contents("messages")
    warehouse.set_property(MESSAGES_TABLE, FOLDED_PROPERTY, str(marks[0]))
    assert ingest.refresh_messages(warehouse)
    assert warehouse.property_of(MESSAGES_TABLE, FOLDED_PROPERTY) == marks[-1]
    assert pipeline.contents("messages") == before


@pytest.mark.extended  # two runs for a rare repair
@pytest.mark.parametrize("mark", ["0", "12345"])
def test_messages_are_rebuilt_where_the_history_of_events_is_gone(
    pipeline: Pipeline, archive: Archive, mark: str
) -> None:
    pipeline.run("history", archive=parts(pipeline, archive)[0])
    Warehouse(pipeline.spark).set_property(MESSAGES_TABLE, FOLDED_PROPERTY, mark)
    assert pipeline.run("history") == Oracle(archive.lines()).history()


@pytest.mark.extended  # a JVM of its own, with the settings that users get
def test_the_command_prints_one_object_and_nothing_else(
    pipeline: Pipeline, archive: Archive
) -> None:
    command = Path(sys.executable).with_name("fairbox-pipeline")
    places = ["--archive", str(pipeline.archive), "--warehouse", str(pipeline.warehouse)]
    done: Any = subprocess.run(
        [command, "history", *places, "--json"], capture_output=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == Oracle(archive.lines()).history()
    assert done.stdout.count(b"\n") == 1
    assert b"fairbox: history: " in done.stderr
