"""The smoke test against the running application: sound, then with a function that is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.smoke.run import DESTINATIONS, OTHERS

from tests.functions.api_client import load_handler
from tests.functions.running import Context

if TYPE_CHECKING:
    from tests.e2e.stage import Stage

pytestmark = [pytest.mark.engine, pytest.mark.e2e]


def smoke(stage: Stage, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run the command as a shell would; return its exit code and its steps by name."""
    environment = {
        name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ
    }
    done = subprocess.run(
        [sys.executable, "-m", "fairbox.cli", "smoke", "--json", *arguments],
        env=environment | stage.app.env,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, {
        step["name"]: step for step in map(json.loads, done.stdout.splitlines())
    }


def names(stage: Stage) -> set[str]:
    """Return everything that a smoke test may have left behind."""
    clients = stage.app.clients
    queues = clients["sqs"].list_queues(QueueNamePrefix="Fairbox-smoke-").get("QueueUrls", [])
    topics = [t["TopicArn"] for t in clients["sns"].list_topics()["Topics"]]
    buses = [b["Name"] for b in clients["events"].list_event_buses()["EventBuses"]]
    own = [state.topic.name for state in stage.outbox.topics()]
    return {name for name in (*queues, *topics, *buses, *own) if "smoke-" in name}


@pytest.mark.extended  # a topic's deletion waits for a minute
def test_every_kind_arrives_and_nothing_is_left(stage: Stage) -> None:
    code, steps = smoke(stage, "--webhook", stage.sink.url("smoke"))
    assert {step["status"] for step in steps.values()} == {"ok"}, steps
    assert (code, set(steps)) == (0, {*DESTINATIONS, *OTHERS})
    assert steps["delayed"]["seconds"] >= 5
    assert names(stage) == set()


def test_the_canary_finds_all_well_twice_in_a_row(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in stage.app.env.items():
        monkeypatch.setenv(name, value)
    canary = load_handler("canary")
    for _ in range(2):
        took = canary.handler({}, Context.of("canary"))
        assert set(took) == {"sqs", "topic", "delayed", "dead letter", "batch", "clean-up"}
