"""Job `daily`: all jobs in one session, one that fails among them, and before the first event."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox_pipeline.errors import Exit
from fairbox_pipeline.schemas import DAY_MS, HOUR_MS

from tests.pipeline.archives import random_archive
from tests.pipeline.writing import added, ended, uid, write

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

    assert pipeline.run("daily", "--since", "0", *arguments["reconcile"]) == alone
    assert pipeline.contents(*TABLES) == tables
    assert pipeline.run("daily", "--since", "0", *arguments["reconcile"]) == alone


NOON = 20_400 * DAY_MS + 12 * HOUR_MS
BATCH = f"{uid(0, NOON - 4 * DAY_MS)}"


def told(kind: str, n: int, at: int, began: int, **more: Any) -> dict[str, Any]:
    """An event of message `n`, which has the id of its time."""
    event = added(n, at=at, **more) if kind == "added" else ended(kind, n, at=at, **more)
    return {**event, "id": uid(n, began), "event_id": f"{n}-{kind}-{at}"}


def test_a_day_s_run_shows_the_day_and_what_of_before_is_not_settled(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    old, new = NOON - 3 * DAY_MS, NOON - 2 * HOUR_MS
    began = dict.fromkeys(range(1, 7), old) | dict.fromkeys(range(7, 10), new)
    items = {5: f"{BATCH}:0:5", 8: f"{BATCH}:0:8"}

    def lines(kind: str, at: int, *numbers: int, **more: Any) -> list[dict[str, Any]]:
        fields = [more | {"batch_item": items.get(n)} if kind == "added" else more for n in numbers]
        return [told(kind, n, at, began[n], **f) for n, f in zip(numbers, fields, strict=True)]

    # of 1 to 6: delivered, lost, dead, delivered again in the day, of a batch, delivered late
    first = lines("added", old, 1, 2, 3, 4, 5, 6) + lines("delivered", old + 100, 1, 4, 5)
    first += lines("dead", old + 900, 3, reason="HTTP 503")
    write(pipeline.archive, first, "first")
    before = pipeline.run("daily", "--until", str(NOON - 2 * DAY_MS))
    assert before["history"]["messages"] == 6
    second = lines("added", new, 7, 8, 9) + lines("delivered", new + 200, 7, 8)
    write(pipeline.archive, second + lines("delivered", new, 4, 6), "second")
    held = tmp_path / "held.ndjson"
    held.write_text(json.dumps({n: second[2][n] for n in ("topic", "epoch", "shard", "id")}))
    export = ("--outstanding", str(held), "--as-of", str(NOON))

    found = pipeline.run("daily", "--until", str(NOON), *export)

    assert found["history"]["messages"] == 3
    assert [shard["messages"] for shard in found["sizing"]["shards"]] == [1, 1, 1]
    counts = found["reconcile"]
    names = ("delivered", "outstanding", "lost", "dead", "cancelled", "purged", "expired")
    assert [counts[name] for name in names] == [2, 1, 1, 1, 0, 0, 0]
    assert counts["added"] == 5
    assert [counts[name] for name in ("duplicated", "stuck", "out_of_order")] == [1, 1, 0]
    assert {(f["kind"], f["id"]) for f in pipeline.rows("findings") if f["kind"] == "lost"} == {
        ("lost", uid(2, old))
    }
    (batch,) = found["batches"]["batches"]
    assert (batch["id"], batch["items_seen"]) == (BATCH, 2)
    why = {advice["kind"]: advice["why"] for advice in found["advise"]["advice"]}
    assert {"lost", "dead", "stuck"} <= why.keys()
    assert "HTTP *" in why["dead"]
    hours = {row["hour"]: (row["count"], row["max_ms"]) for row in pipeline.rows("latency_hourly")}
    assert hours == {old: (3, 100), new: (3, new - old)}
    page = (pipeline.warehouse / "report.html").read_text()
    assert "Not all is well. Of 5 messages: 1 lost, 1 stuck" in page
    assert ">Latency in the days before</h2>" in page
    assert "<dt>delivered</dt><dd>2</dd>" in page
    assert "<dt>outstanding</dt><dd>1</dd>" in page


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
