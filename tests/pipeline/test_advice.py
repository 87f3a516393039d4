"""Advice: present shards, the rule of a resize, and the commands that repair."""

from __future__ import annotations

import io
import json
import os
import pty
import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Topic
from fairbox.codec.topics import topic_item
from fairbox.model.epochs import Epoch, shard_number
from fairbox.model.topics import TopicState
from fairbox_pipeline.advice import Advice, part_of
from fairbox_pipeline.resizes import resize_of

from tests.pipeline.exporting import Bucket
from tests.pipeline.writing import added, ended, event, uid, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipeline.conftest import Pipeline


def load(needed: int, units: float = 1.0, messages: int = 100) -> dict[str, Any]:
    return {
        "shards_needed": needed,
        "units_per_second": units,
        "messages": messages,
        "skew": 1.5,
    }


@pytest.mark.parametrize(
    ("needed", "shards", "wanted"),
    [(8, 8, None), (9, 8, 9), (7, 8, None), (6, 8, 6), (1, 2, None), (2000, 999, 1000)],
)
def test_a_topic_grows_when_it_must_and_shrinks_when_two_shards_are_spare(
    needed: int, shards: int, wanted: int | None
) -> None:
    resize = resize_of(load(needed), shards, "topics", None)
    assert resize.wanted == wanted
    command = ["fairbox", "topic", "resize", "orders", "--shards", str(wanted)]
    assert resize.command("orders") == (command if wanted else [])
    of_a_day = resize_of(load(needed), shards, "topics", None, may_shrink=False)
    assert of_a_day.wanted == (wanted if needed > shards else None)


def test_a_key_of_more_than_a_shard_is_named_as_what_no_resize_spreads() -> None:
    key = {"partition_key": "big", "messages": 50}
    assert resize_of(load(2, 1400.0), 2, "seen", key).hot_key is None
    hot = resize_of(load(3, 1402.0), 2, "seen", key)
    assert hot.hot_key == "big"
    assert hot.why == (
        "the busiest minute wrote 1,402.0 WRU/s, which need 3 shards of 700, the topic has 2 "
        "(from: seen), and its fullest shard has 1.5 times the mean; key 'big' has 50% of the "
        "messages, which no resize spreads"
    )


def busy(n: int, topic: str = "orders", **more: Any) -> dict[str, Any]:
    """An `added` of 700 units a second, in its shard of eight."""
    key = f"k{n}"
    told = {"partition_key": key, "shard": shard_number(key, 8), "size": 1024 * 14_000}
    return added(n, topic) | told | more


def topics_file(folder: Path, **shards: int) -> Path:
    """Write the output of `fairbox topic list --json`."""
    rows = [
        {"name": name, "shards": n, "epochs": [{"number": 0, "shards": n, "since": 0}]}
        for name, n in shards.items()
    ]
    file = folder / "topics.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.extended  # three runs
def test_sizing_takes_the_present_shards_from_a_list_from_an_export_or_from_the_keys(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    write(pipeline.archive, [busy(n) for n in range(12)])

    def sized(*arguments: str) -> tuple[int, str, str | None]:
        (topic,) = pipeline.run("sizing", *arguments)["topics"]
        assert (topic["shards_needed"], topic["units_per_second"]) == (12, 8400)
        return topic["shards"], topic["shards_from"], topic["command"]

    resize = "fairbox topic resize orders --shards 12"
    assert sized() == (8, "seen", resize)
    listed = topics_file(tmp_path, orders=13, other=1)
    assert sized("--topics", str(listed)) == (13, "topics", None)
    state = TopicState(Topic("orders", shards=14), (Epoch(0, 4, 0), Epoch(1, 14, 9)))
    export = Bucket(tmp_path / "bucket").full([topic_item(state)])
    assert sized("--outstanding", str(export)) == (14, "export", resize)


@pytest.mark.extended  # a run each
@pytest.mark.parametrize("line", ["{", "[]", '{"name": "orders", "shards": "8", "epochs": []}'])
def test_a_list_of_topics_of_another_form_is_refused(
    pipeline: Pipeline, tmp_path: Path, line: str
) -> None:
    write(pipeline.archive, [added(1)])
    file = tmp_path / "topics.json"
    file.write_text(line)
    assert pipeline.code("sizing", "--topics", str(file)) == 2
    assert "fairbox topic list --json" in pipeline.capsys.readouterr().err


DAY = 86_400_000
START = 1_763_000_000_000


@pytest.fixture
def troubled(pipeline: Pipeline) -> Pipeline:
    """An archive of a topic that is busy, slow and loses messages, and of one that is unused."""
    lines = [busy(n, at=START) for n in range(12)]
    lines += [ended("dead", n, at=START + n, **lane(n), reason=reason(n)) for n in range(5)]
    lines.append(event("redriven", 4, at=START + 9, **lane(4)))
    lines += [added(100, "old", at=START - 31 * DAY), ended("delivered", 100, "old", at=START)]
    for n in range(200, 300):
        lines.append(added(n, "slow", at=START, size=1, due=START + 9000 * (n % 2)))
        for name, took in (("fast", 10), ("late", 2000)):
            at = START + 9000 * (n % 2) + took
            lines.append(ended("delivered", n, "slow", at=at, subscription=name))
    write(pipeline.archive, lines)
    pipeline.run("reconcile")
    return pipeline


def lane(n: int) -> dict[str, Any]:
    return {"shard": shard_number(f"k{n}", 8)}


def reason(n: int) -> str:
    return f"max_attempts: HTTP 503 for order {uid(n)}: it's down; rm -rf 'x'"


def commands(found: dict[str, Any]) -> list[tuple[str, str, str, str | None]]:
    return [(a["severity"], a["kind"], a["topic"], a["shell"]) for a in found["advice"]]


@pytest.mark.extended  # a run of every job
def test_advice_says_what_is_known_and_the_command(troubled: Pipeline, tmp_path: Path) -> None:
    found = troubled.run("advise")
    places = f"--archive {troubled.archive} --warehouse {troubled.warehouse}"
    lost = f"fairbox-pipeline replay {places} --findings lost --topic orders --ids same"
    fragment = ": it's down; rm -rf 'x'"
    redrive = ["fairbox", "dlq", "redrive", "orders", "--subscription", "billing"]
    resize = "fairbox topic resize orders --shards 12"
    dead = shlex.join([*redrive, f"--reason={fragment[2:]}", "--yes"])
    assert commands(found) == [
        ("now", "lost", "orders", lost),
        ("now", "resize", "orders", resize),
        ("soon", "dead", "orders", dead),
        ("note", "unused", "old", "fairbox topic show old"),
        ("note", "resize", "slow", "fairbox topic resize slow --shards 1"),
        ("note", "slow", "slow", "fairbox subscription show slow late"),
    ]
    assert all(shlex.split(a["shell"]) == a["command"] for a in found["advice"])
    why = {a["kind"]: a["why"] for a in found["advice"]}
    assert why["lost"] == "the last reconcile found 8 messages lost"
    assert why["dead"].startswith("4 messages died from 2025-11-13T02:13:20Z to ")
    assert "HTTP * for order *" in why["dead"]
    assert why["slow"] == (
        "1 % of 100 first deliveries took over 2,000 ms, and the topic's others 10 ms"
    )
    # what no longer exists needs nothing, and what never had a message is unused
    listed = topics_file(tmp_path, orders=12, never=3)
    found = troubled.run("advise", "--topics", str(listed))
    assert [a[1:3] for a in commands(found)] == [
        ("lost", "orders"),
        ("dead", "orders"),
        ("unused", "never"),
    ]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands of our names, first on PATH, which record their arguments; `dlq` fails."""
    folder, record = tmp_path / "bin", tmp_path / "record"
    folder.mkdir()
    for name in ("fairbox", "fairbox-pipeline"):
        script = folder / name
        script.write_text(
            f"#!{sys.executable}\nimport json, sys\n"
            f"open({str(record)!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n"
            "print('done')\nsys.exit(3 * ('dlq' in sys.argv))\n"
        )
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return record


@pytest.mark.extended  # a run of every job
def test_apply_runs_each_command_without_a_shell_and_tells_what_failed(
    troubled: Pipeline, recorded: Path
) -> None:
    assert troubled.code("advise", "--json", "--apply", "--yes") == 1
    told = troubled.capsys.readouterr()
    found = json.loads(told.out)
    ran = [json.loads(line) for line in recorded.read_text().splitlines()]
    assert ran == [a["command"][1:] for a in found["advice"]]
    assert found["applied"] == len(ran) - 1
    assert found["failed"].startswith(f"1 of {len(ran)} commands failed: fairbox dlq redrive")
    assert "failed, exit code 3: fairbox dlq redrive orders" in told.err


@pytest.mark.extended  # a run of every job
def test_apply_asks_and_without_a_terminal_refuses(
    troubled: Pipeline, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    assert troubled.code("advise", "--apply") == 2
    assert "there is no terminal, so pass --yes" in troubled.capsys.readouterr().err
    assert not recorded.exists()
    primary, secondary = pty.openpty()
    with os.fdopen(secondary) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        os.write(primary, b"n\ny\n\nno\nN\nyes\n")
        assert troubled.run("advise", "--apply")["applied"] == 2
    os.close(primary)
    ran = [json.loads(line)[:2] for line in recorded.read_text().splitlines()]
    assert ran == [["topic", "resize"], ["subscription", "show"]]


def test_a_name_that_looks_like_an_option_gets_no_command() -> None:
    row = Advice(severity="note", kind="slow", topic="--yes", why="", command=["fairbox"]).as_row()
    assert (row["command"], row["shell"]) == ([], None)


@pytest.mark.parametrize(
    ("normalised", "part"),
    [
        ("no such account", "no such account"),
        ("* of *", ""),
        ("*", ""),
        ("HTTP * from host", "from host"),
        ("first line\nsecond", "first line"),
        ("x" * 200, "x" * 80),
    ],
)
def test_the_reason_of_a_command_is_a_part_of_every_reason(normalised: str, part: str) -> None:
    assert part_of(normalised) == part
    assert part in normalised
