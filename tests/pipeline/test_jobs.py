"""The jobs end to end on random archives, against the definitions in plain Python."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from fairbox_pipeline import ingest

from tests.pipeline.archives import random_archive
from tests.pipeline.oracle import Oracle
from tests.pipeline.writing import added, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipeline.conftest import Pipeline


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.extended) for seed in (2, 3))]
)
def test_all_jobs_say_what_the_definitions_say(
    pipeline: Pipeline, tmp_path: Path, seed: int
) -> None:
    archive = random_archive(seed, messages=120)
    archive.write(pipeline.archive)
    oracle = Oracle(archive.lines(), archive.outstanding)
    held = str(archive.write_outstanding(tmp_path / "held.ndjson"))

    assert pipeline.run("history") == oracle.history()
    check_latency(pipeline.run("latency"), oracle)
    check_sizing(pipeline.run("sizing"), oracle)
    counts, findings = oracle.reconcile(stuck_after=86_400)
    figures = pipeline.run("reconcile", "--outstanding", held, "--stuck-after", "86400")
    assert figures == counts
    found = Counter(
        (f["kind"], (f["topic"], f["epoch"], f["shard"], f["id"]), f["subscription"])
        for f in pipeline.rows("findings")
    )
    assert found == findings
    assert all(count for count in counts.values()), "the archive has none of something"


def check_latency(figures: dict[str, Any], oracle: Oracle) -> None:
    assert list(figures) == ["rows"]
    expected = oracle.latency()
    for row in figures["rows"]:
        text = row.pop("hour")
        hour = datetime.fromisoformat(text).timestamp() // 3600 if text else None
        wanted = expected.pop((row.pop("topic"), row.pop("subscription"), hour))
        assert row == pytest.approx(wanted)
    assert not expected


def check_sizing(figures: dict[str, Any], oracle: Oracle) -> None:
    expected = oracle.sizing()
    shards = {
        (s["topic"], s["epoch"], s["shard"]): [s["messages"], s["bytes"]]
        for s in figures.pop("shards")
    }
    assert shards == expected["shards"]
    told = ("hot_key", "command", "why", "shards_from", "shards")
    topics = {t.pop("topic"): t for t in figures.pop("topics")}
    for topic in topics.values():
        words = {name: topic.pop(name) for name in told}
        assert (words["shards"], words["shards_from"], words["hot_key"]) == (4, "seen", None)
    assert topics == {t: pytest.approx(wanted) for t, wanted in expected["topics"].items()}
    keys = {(k["topic"], k["partition_key"]): k["messages"] for k in figures.pop("hot_keys")}
    assert keys == expected["keys"]
    assert not figures


@pytest.mark.extended  # three runs; a second run is below
def test_parts_in_any_order_give_the_tables_of_the_whole(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    archive = random_archive(7)
    names = list(archive.files)
    part = tmp_path / "part"
    archive.write(part, names[3:])
    pipeline.run("history", archive=part)
    archive.write(pipeline.archive, names[:4])  # one file again, from another place
    pipeline.run("history")
    in_parts = pipeline.contents("events", "messages", "malformed")

    whole = archive.write(tmp_path / "whole")
    figures = pipeline.run("history", archive=whole)

    assert figures == Oracle(archive.lines()).history()
    assert pipeline.contents("events", "messages", "malformed") == in_parts
    assert "0 lines" not in pipeline.said


@pytest.mark.extended  # portions of six files
def test_a_load_in_portions_gives_the_tables_of_the_whole(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = random_archive(7)
    archive.write(pipeline.archive)
    size = max(file.stat().st_size for file in pipeline.archive.rglob("*.json.gz"))
    monkeypatch.setattr(ingest, "PORTION_BYTES", size)
    figures = pipeline.run("history")
    assert figures == Oracle(archive.lines()).history()
    portions = {row["folded"] for row in pipeline.rows("messages", "folded")}
    assert len(portions) > 2
    assert len(pipeline.rows("files")) == 6
    assert "of 6 files" in pipeline.said


@pytest.mark.extended  # runs of every job
def test_a_second_run_reads_no_file_and_prints_the_same(pipeline: Pipeline) -> None:
    random_archive(8).write(pipeline.archive)
    first = pipeline.run("history")
    tables = pipeline.contents("events", "messages", "malformed", "files")

    assert pipeline.run("history") == first

    assert "no file is new or changed" in pipeline.said
    assert pipeline.contents("events", "messages", "malformed", "files") == tables
    assert [r["files"] for r in sorted(pipeline.rows("runs"), key=lambda r: r["began"])] == [6, 0]


def test_a_file_that_has_changed_is_read_once_more(pipeline: Pipeline) -> None:
    write(pipeline.archive, [added(1)])
    pipeline.run("history")
    write(pipeline.archive, [added(1), added(2)])
    assert pipeline.run("history")["messages"] == 2
    assert "2 lines of 1 files" in pipeline.said
    assert pipeline.run("history")["messages"] == 2
    assert "no file is new or changed" in pipeline.said
