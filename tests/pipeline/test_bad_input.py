"""Archives and warehouses as they should not be: a clear message, an exit code, whole tables."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox_pipeline.errors import Exit
from fairbox_pipeline.schemas import EVENTS_TABLE, MESSAGES_TABLE, TABLES
from fairbox_pipeline.warehouse import (
    NAMESPACE_SETTING,
    VERSION,
    VERSION_PROPERTY,
    Warehouse,
    failure,
)

from tests.pipeline.archives import START

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipeline.conftest import Pipeline

TRACEBACK = "Traceback (most recent call last):"
DAY = "dt=2025-11-18/hour=21"


def line(event: str, number: int, at: int = START, **fields: Any) -> dict[str, Any]:
    key = {"topic": "orders", "epoch": 0, "shard": 0, "id": f"m{number}"}
    return {"event": event, "at": at, **key, "event_id": f"{event}-{number}-{at}", **fields}


def put(pipeline: Pipeline, name: str, *lines: dict[str, Any] | bytes, day: str = DAY) -> Path:
    file = pipeline.archive / day / f"{name}.json.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    raw = [told if isinstance(told, bytes) else json.dumps(told).encode() for told in lines]
    file.write_bytes(gzip.compress(b"".join(r + b"\n" for r in raw)))
    return file


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"\n  In a worker.\n{TRACEBACK}\n  x\nE: deep\nmore", "E: deep"),
        (f"{TRACEBACK}\n x\nA\n{TRACEBACK}\n x\nB: b", "B: b"),
        ("An error ...\n: java.io.IOException: full\n\tat x", "java.io.IOException: full"),
        ("An error ...\n: a.B: b\n\tSuppressed: x\nCaused by: c.D\n\tat x\nCaused by: e.F", "e.F"),
        ("[ARITHMETIC_OVERFLOW] long\n== DataFrame ==", "[ARITHMETIC_OVERFLOW] long"),
        ("\n \n", "OSError"),
    ],
)
def test_an_error_of_spark_names_its_innermost_cause(text: str, told: str) -> None:
    assert str(failure(OSError(text))) == f"Spark failed: {told}"


def test_no_archive_and_an_empty_one_are_told_apart(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pipeline.code("history") == Exit.USAGE
    assert "there is no archive at" in capsys.readouterr().err
    (pipeline.archive / DAY).mkdir(parents=True)
    (pipeline.archive / DAY / "readme.txt").write_text("not an archive file")
    assert pipeline.code("history", "--json") == Exit.EMPTY
    said = capsys.readouterr()
    assert "the archive is empty" in said.err
    assert not said.out


def test_a_cut_file_is_named_and_nothing_of_its_portion_is_taken(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    put(pipeline, "other", line("added", 999), b"broken")
    file = put(pipeline, "half", *(line("added", n, text=f"{n * 7919:x}") for n in range(500)))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])

    assert pipeline.code("history", "--json") == Exit.USAGE

    told = capsys.readouterr()
    assert not told.out
    *_, said = told.err.splitlines()
    assert said.startswith("fairbox: file:")
    assert said.endswith(
        "half.json.gz cannot be read, replace or remove it: Compressed file ended before "
        "the end-of-stream marker was reached"
    )
    assert not [table for table in ("events", "malformed", "files") if pipeline.rows(table)]
    file.write_bytes(whole)
    assert pipeline.run("history")["events"] == 501
    assert [row["text"] for row in pipeline.rows("malformed")] == ["broken"]


@pytest.mark.extended  # a run of its own
def test_a_malformed_line_is_kept_with_its_file_and_number(pipeline: Pipeline) -> None:
    deep = json.dumps(line("added", 3)).encode()[:-1] + b',"x":' + b"[" * 300 + b"]" * 300 + b"}"
    wide = [line("added", 4, -(2**53), size=2**53, due=2**53), line("delivered", 4, 2**53)]
    beyond = line("added", 5, 2**63 - 1)
    wrong = (b"\xffgarbage", line("added", 2) | {"at": "1"}, deep, beyond)
    put(pipeline, "a", line("added", 1), *wrong, *wide)
    daily = pipeline.run("daily", f"--since={-(2**53)}")
    assert not [job for job, figures in daily.items() if "failed" in figures]
    assert (daily["history"]["events"], daily["history"]["malformed"]) == (3, 4)
    rows = sorted(pipeline.rows("malformed"), key=lambda row: row["line"])
    assert [(row["file"], row["line"]) for row in rows] == [
        (f"{DAY}/a.json.gz", number) for number in (2, 3, 4, 5)
    ]
    assert rows[0]["text"] == "\\xffgarbage"
    assert rows[1]["reason"] == "at is not an integer"


@pytest.mark.extended  # three runs for one filter
def test_a_window_is_what_a_run_shows_not_what_it_takes(pipeline: Pipeline) -> None:
    # the folders lie about the times
    put(
        pipeline, "a", *(line("added", n, START + n) for n in range(10)), day="dt=1999-01-01/hour=1"
    )
    since, until = str(START + 2), "2025-11-18T21:06:40.005Z"
    shown = pipeline.run("history", "--since", since, "--until", until)
    assert (shown["events"], shown["messages"]) == (3, 3)
    assert len(pipeline.rows("events", "id")) == 10
    later = pipeline.run("sizing", "--until", str(START + 7))
    assert "no file is new" in pipeline.said
    assert sum(shard["messages"] for shard in later["shards"]) == 7
    assert pipeline.run("history")["events"] == 10


@pytest.mark.parametrize(
    "arguments", [["--since", "soon"], ["--since", "9" * 20], ["--since", "5", "--until", "5"]]
)
def test_a_time_that_is_none_is_refused(pipeline: Pipeline, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        pipeline.code("history", *arguments)
    assert ended.value.code == Exit.USAGE


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_warehouse_of_another_version_is_refused_untouched(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], version: int
) -> None:
    put(pipeline, "a", line("added", 1))
    warehouse = Warehouse(pipeline.spark)
    warehouse.prepare()
    warehouse.set_property(MESSAGES_TABLE, VERSION_PROPERTY, str(version))
    before = warehouse.current(EVENTS_TABLE)
    assert pipeline.code("history") == Exit.VERSION
    said = capsys.readouterr().err
    assert f"is of version {version}" in said
    assert "history over the whole archive with another --warehouse" in said
    assert warehouse.current(EVENTS_TABLE) == before


def test_the_tables_of_a_named_deployment_lie_in_a_namespace_of_their_own(
    pipeline: Pipeline,
) -> None:
    others = Warehouse(pipeline.spark)
    others.prepare()
    pipeline.spark.conf.set(NAMESPACE_SETTING, "shop")
    shop = Warehouse(pipeline.spark)
    shop.prepare()
    found = {row.tableName for row in pipeline.spark.sql("SHOW TABLES IN shop").collect()}
    assert found == {table.name for table in TABLES}
    shop.set_property(EVENTS_TABLE, "theirs", "yes")
    assert shop.property_of(EVENTS_TABLE, "theirs") == "yes"
    assert others.property_of(EVENTS_TABLE, "theirs") is None


@pytest.mark.extended  # a run each
def test_a_list_of_outstanding_messages_of_another_form_is_refused(
    pipeline: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(pipeline, "a", line("added", 1))
    held = tmp_path / "held.ndjson"
    assert pipeline.code("reconcile", "--outstanding", str(held)) == Exit.USAGE
    held.write_text('{"topic":"orders","epoch":0,"shard":0,"id":"m1"}\n{"topic":"orders"}\n')
    assert pipeline.code("reconcile", "--outstanding", str(held)) == Exit.USAGE
    assert '{"topic":"orders"}' in capsys.readouterr().err
