"""Advice: present shards, the rule of a resize, and the commands that repair."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Topic
from fairbox.model.epochs import Epoch, shard_number
from fairbox.model.topic_states import TopicState
from fairbox.tables.topic_rows import topic_item
from fairbox_pipeline.advice import Advice, part_of
from fairbox_pipeline.jobs.sizing import resize_of

from tests.pipeline.exporting import Bucket
from tests.pipeline.writing import added, ended, event, uid, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipeline.conftest import Pipeline


def load(needed: int, units: float = 1.0, messages: int = 100, **more: Any) -> dict[str, Any]:
    return {
        "topic": "orders",
        "shards_needed": needed,
        "units_per_second": units,
        "messages": messages,
        "skew": 1.5,
        "may_shrink": True,
        **more,
    }


@pytest.mark.parametrize(
    ("needed", "shards", "wanted"),
    [(8, 8, None), (9, 8, 9), (7, 8, None), (6, 8, 6), (1, 2, None), (2000, 999, 1000)],
)
def test_a_topic_grows_when_it_must_and_shrinks_when_two_shards_are_spare(
    needed: int, shards: int, wanted: int | None
) -> None:
    command = f"fairbox topic resize orders --shards {wanted}" if wanted else None
    sized = resize_of(load(needed), shards, "topics", None)
    assert (sized["shards"], sized["shards_from"], sized["command"]) == (shards, "topics", command)
    of_a_day = resize_of(load(needed, may_shrink=False), shards, "topics", None)
    assert of_a_day["command"] == (command if needed > shards else None)


def test_a_key_of_more_than_a_shard_is_named_as_what_no_resize_spreads() -> None:
    key = {"partition_key": "big", "messages": 50}
    assert resize_of(load(2, 1400.0), 2, "seen", key)["hot_key"] is None
    hot = resize_of(load(3, 1402.0), 2, "seen", key)
    assert hot["hot_key"] == "big"
    assert hot["why"] == (
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
    assert sized("--outstanding", str(export)) == (14, "export", None)  # not of a day's load


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


START = 1_763_000_000_000


def lane(n: int) -> dict[str, Any]:
    return {"shard": shard_number(f"k{n}", 8)}


def reason(n: int) -> str:
    return f"max_attempts: HTTP 503 for order {uid(n)}: it's down; rm -rf 'x'"


def test_advice_says_what_is_known_and_the_command(pipeline: Pipeline, tmp_path: Path) -> None:
    lines = [busy(n, at=START) for n in range(12)]
    lines += [ended("dead", n, at=START + n, **lane(n), reason=reason(n)) for n in range(5)]
    lines.append(event("redriven", 4, at=START + 9, **lane(4)))
    lines += [added(100, "quiet", at=START), ended("delivered", 100, "quiet", at=START)]
    write(pipeline.archive, lines)
    pipeline.run("reconcile")

    found = pipeline.run("advise")["advice"]

    places = f"--archive {pipeline.archive} --warehouse {pipeline.warehouse}"
    redrive = ["fairbox", "dlq", "redrive", "orders", "--subscription", "billing"]
    assert [(a["severity"], a["kind"], a["topic"], a["shell"]) for a in found] == [
        (
            *("now", "lost", "orders"),
            f"fairbox-pipeline replay {places} --findings lost --topic orders --ids same",
        ),
        ("now", "resize", "orders", "fairbox topic resize orders --shards 12"),
        (
            *("soon", "dead", "orders"),
            shlex.join([*redrive, "--reason=it's down; rm -rf 'x'", "--yes"]),
        ),
    ]
    assert all(shlex.split(a["shell"]) == a["command"] for a in found)
    why = {a["kind"]: a["why"] for a in found}
    assert why["lost"] == "the last reconcile found 8 messages lost"
    assert why["dead"].startswith("4 messages died from 2025-11-13T02:13:20.000Z to ")
    assert "HTTP * for order *" in why["dead"]
    # what no longer exists needs nothing
    listed = topics_file(tmp_path, orders=12)
    found = pipeline.run("advise", "--topics", str(listed))["advice"]
    assert [(a["kind"], a["topic"]) for a in found] == [("lost", "orders"), ("dead", "orders")]
    listed = topics_file(tmp_path, other=12)
    assert pipeline.run("advise", "--topics", str(listed)) == {"advice": []}


def test_a_name_that_looks_like_an_option_gets_no_command() -> None:
    row = Advice("note", "dead", "--yes", "", ["fairbox"]).as_row()
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
