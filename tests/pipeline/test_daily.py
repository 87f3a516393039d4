"""Job `daily`: all jobs in one session, one that fails among them, and before the first event."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from fairbox_pipeline.errors import Exit

from tests.pipeline.archives import random_archive
from tests.pipeline.writing import added, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipeline.conftest import Pipeline

JOBS = ["history", "latency", "sizing", "reconcile", "batches", "advise", "report", "maintain"]
TABLES = ("events", "messages", "findings", "batches")


@pytest.mark.extended  # eight runs; test_a_job_that_fails... has the figures of one
def test_it_says_what_each_job_says_alone_and_again_when_it_is_repeated(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    archive = random_archive(3, messages=120)
    archive.write(pipeline.archive)
    held = str(archive.write_outstanding(tmp_path / "held.ndjson"))
    arguments = {"reconcile": ("--outstanding", held)}
    alone = {job: pipeline.run(job, *arguments.get(job, ())) for job in JOBS[:-1]}
    alone["maintain"] = {"maintained_at": None, "tables": []}
    tables = pipeline.contents(*TABLES)

    assert pipeline.run("daily", *arguments["reconcile"]) == alone
    assert pipeline.contents(*TABLES) == tables
    assert pipeline.run("daily", *arguments["reconcile"]) == alone


def test_a_job_that_fails_stops_only_those_that_need_it_and_the_code_tells(
    pipeline: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(pipeline.archive, [added(1), added(2)])
    broken = tmp_path / "held.ndjson"
    broken.write_text("{")

    code = pipeline.code("daily", "--json", "--outstanding", str(broken))

    told = capsys.readouterr()
    found = json.loads(told.out)
    assert list(found) == JOBS
    assert found["history"]["messages"] == 2
    assert found["latency"] == {"rows": []}
    assert [topic["messages"] for topic in found["sizing"]["topics"]] == [2]
    assert found["reconcile"] == {"failed": found["reconcile"]["failed"], "code": code}
    assert found["batches"]["batches"] == []
    assert found["advise"] == {"failed": "not run, because reconcile failed", "code": Exit.FAILED}
    assert found["report"] == {"failed": "not run, because reconcile failed", "code": Exit.FAILED}
    assert code == Exit.USAGE
    assert f"reconcile: {found['reconcile']['failed']}" in told.err
    assert not (pipeline.warehouse / "report.html").exists()
    # the next run has what it needs
    assert pipeline.run("daily")["reconcile"]["added"] == 2
    assert (pipeline.warehouse / "report.html").exists()


@pytest.mark.parametrize("made", [False, pytest.param(True, marks=pytest.mark.extended)])
def test_before_the_first_event_there_is_a_report_and_no_failure(
    pipeline: Pipeline, *, made: bool
) -> None:
    if made:
        (pipeline.archive / "dt=2025-11-18").mkdir(parents=True)
    found = pipeline.run("daily")
    assert "nothing has been archived yet" in pipeline.said
    assert list(found) == JOBS
    assert found["history"]["messages"] == found["reconcile"]["added"] == 0
    assert (pipeline.warehouse / "report.html").exists()


@pytest.mark.parametrize("gone", [False, pytest.param(True, marks=pytest.mark.extended)])
def test_an_archive_that_was_there_and_is_gone_is_a_failure(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], tmp_path: Path, *, gone: bool
) -> None:
    write(pipeline.archive, [added(1)])
    pipeline.run("history")
    other = tmp_path / "other"
    if not gone:
        other.mkdir()
    assert pipeline.code("daily", "--json", archive=other) == (Exit.USAGE if gone else Exit.EMPTY)
    told = capsys.readouterr()
    assert str(other) in told.err
    assert not told.out
