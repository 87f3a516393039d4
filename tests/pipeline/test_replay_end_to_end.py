"""Job `replay` against DynamoDB Local: killed in the middle, run again, nothing twice or lost."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import boto3
import pytest
from fairbox import Outbox, Topic
from fairbox.tables.definitions import table_definitions
from fairbox_pipeline.putting_back import BY, OF

from tests.pipeline.writing import added, ended, uid, write
from tests.support.small_spark import small_jvm

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipeline.conftest import Pipeline

MESSAGES = 600
PATIENCE = 600
"""Seconds for Spark to start on a machine that is busy."""
_numbers = itertools.count()


@pytest.fixture
def tables() -> dict[str, str]:
    number = next(_numbers)
    return {name: f"replayed-{name}-{number}" for name in ("outbox", "deliveries")}


@pytest.fixture
def environment(dynamodb_local_endpoint: str, tables: dict[str, str]) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL_DYNAMODB": dynamodb_local_endpoint,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "FAIRBOX_OUTBOX_TABLE": tables["outbox"],
        "FAIRBOX_DELIVERIES_TABLE": tables["deliveries"],
        "FAIRBOX_PIPELINE_MEMORY": "1g",
    }


@pytest.fixture
def outbox(environment: dict[str, str], tables: dict[str, str]) -> Outbox:
    client = boto3.client(
        "dynamodb",
        endpoint_url=environment["AWS_ENDPOINT_URL_DYNAMODB"],
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    for definition in table_definitions(**tables):
        definition.pop("StreamSpecification", None)
        client.create_table(**definition)
    outbox = Outbox(client, table=tables["outbox"], deliveries_table=tables["deliveries"])
    outbox.create_topic(Topic("orders", shards=4))
    outbox.create_topic(Topic("ledger", shards=2, ordering="key"))
    return outbox


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    lines = []
    for n in range(MESSAGES):
        topic = "ledger" if n % 10 == 0 else "orders"
        ordering = "key" if topic == "ledger" else "none"
        lines.append(added(n, topic, ordering=ordering))
        if n % 3 == 0:
            lines.append(ended("dead", n, topic, at=1_763_000_001_000))
        else:
            lines.append(ended("delivered", n, topic, at=1_763_000_001_000))
    return write(tmp_path / "archive", lines)


def command(archive: Path, *arguments: str) -> list[str]:
    where = ["--archive", str(archive), "--warehouse", str(archive.parent / "warehouse"), "--json"]
    return [sys.executable, "-m", "fairbox_pipeline.cli", "replay", *where, *arguments]


def kill_when(process: subprocess.Popen[str], outbox: Outbox, count: int) -> None:
    """SIGKILL a job with its JVM and its workers, when so many messages have come."""
    end = time.monotonic() + PATIENCE
    while outbox.outstanding_count() < count:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < end, f"not {count} messages in {PATIENCE} s"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.extended  # a JVM of its own; test_putting_back resumes in memory
@pytest.mark.engine
@pytest.mark.timeout(1200)
def test_a_replay_that_is_killed_goes_on_and_puts_everything_back_once(
    pipeline: Pipeline,
    outbox: Outbox,
    archive: Path,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    chosen = command(archive, "--state", "delivered", "--replay", "r1")
    expected = [n for n in range(MESSAGES) if n % 3]
    process = subprocess.Popen(
        [*chosen, "--rate", "100"],
        env=small_jvm(archive.parent),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    kill_when(process, outbox, 120)
    before = outbox.outstanding_count()
    assert before < len(expected)
    # by its id alone
    resumed = pipeline.run("replay", "--replay", "r1", "--rate", "100000")

    # a step that was under way when the job was killed may have been written since
    outcome = resumed["outcome"]
    assert outcome.keys() == {"added", "done_before"}
    assert outcome["added"] + outcome["done_before"] == len(expected)
    assert outcome["done_before"] >= before
    put_back = list(outbox.scan_outstanding())
    told = Counter(message.headers[OF].split("/")[-1] for message in put_back)
    assert told == Counter(uid(n) for n in expected)
    assert {message.headers[BY] for message in put_back} == {"r1"}


@pytest.mark.extended  # a run of its own
def test_a_dry_run_counts_and_costs_and_writes_nothing(pipeline: Pipeline, archive: Path) -> None:
    pipeline.archive = archive
    dry = pipeline.run("replay", "--state", "delivered", "--dry-run")
    expected = [n for n in range(MESSAGES) if n % 3]
    assert (dry["chosen"], dry["dry_run"], dry["without_body"]) == (len(expected), True, 0)
    assert dry["topics"] == {"ledger": 40, "orders": 360}
    assert dry["wru"] >= 3 * len(expected)
    assert dry["cost_usd"] == pytest.approx(dry["wru"] * 0.625e-6, abs=1e-6)
    assert "outcome" not in dry
    assert pipeline.rows("replays") == []
    dead = pipeline.run(
        "replay", "--state", "dead", "--key", "k0", "--topic", "orders", "--dry-run"
    )
    assert dead["chosen"] == len([n for n in range(MESSAGES) if n % 21 == 0 and n % 10])


@pytest.mark.extended  # a run of its own
def test_what_does_not_fit_is_one_line_and_an_exit_code(
    pipeline: Pipeline, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.archive = archive
    monkeypatch.delenv("FAIRBOX_OUTBOX_TABLE", raising=False)
    for arguments, told, code in (
        ([], "choose what to replay", 2),
        (["--replay", "never"], "no replay never to go on with", 2),
        (["--replay", "no slash/", "--everything"], "letters, digits", 2),
        (["--topic", "orders"], "FAIRBOX_OUTBOX_TABLE", 1),
    ):
        assert pipeline.code("replay", *arguments) == code
        written = pipeline.capsys.readouterr()
        assert written.out == ""
        assert told in written.err.splitlines()[-1]
    assert pipeline.rows("replays") == []


@pytest.mark.extended  # a run of its own
@pytest.mark.engine
def test_a_topic_that_is_gone_stops_the_replay_before_it_begins(
    pipeline: Pipeline,
    outbox: Outbox,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    write(pipeline.archive, [added(1), added(2, "gone")])
    assert pipeline.code("replay", "--everything") == 1
    assert "no topic gone" in pipeline.capsys.readouterr().err.splitlines()[-1]
    assert outbox.outstanding_count() == 0
    assert pipeline.rows("replays") == []
