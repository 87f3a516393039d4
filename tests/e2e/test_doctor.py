"""The doctor at the running application: nothing is wrong with it, until something is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.cli.command_line import app as fairbox
from typer.testing import CliRunner

from tests.e2e.stage import Stage, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.engine, pytest.mark.e2e]


@pytest.fixture
def doctor(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, list[Any]]]:
    """Examine the application, by the environment that a shell has."""
    monkeypatch.setenv("TERM", "dumb")

    def examine(*arguments: str) -> tuple[int, list[Any]]:
        run = CliRunner().invoke(
            fairbox, ["doctor", *arguments, "--json"], env=stage.app.env, catch_exceptions=False
        )
        return run.exit_code, [json.loads(line) for line in run.stdout.splitlines()]

    return examine


def test_what_the_emulators_answer_is_sound_and_the_rest_is_not_checked(
    doctor: Callable[..., tuple[int, list[Any]]],
) -> None:
    # what lies in the tables is other tests'
    theirs = {"destinations", "dead-letters", "dead-letter-queues", "sweep", "topics", "lag"}
    _, found = doctor()
    failed = [one for one in found if one["status"] == "fail" and one["check"] not in theirs]
    assert failed == []
    status = {one["check"]: one["status"] for one in found}
    assert {status[n] for n in ("settings", "indexes", "streams", "expiry", "queues")} == {"ok"}
    unseen = {"stacks", "version", "functions", "triggers", "schedules", "alarms", "placement"}
    assert {status[name] for name in unseen} == {"not checked"}
    assert all(one["detail"] for one in found if one["status"] == "not checked")
    assert doctor("--check", "streams", "--check", "permissions")[0] == 0


@pytest.mark.extended  # tests/stacks/test_doctor has each finding
def test_what_is_broken_is_found_and_found_whole_again(
    stage: Stage, doctor: Callable[..., tuple[int, list[Any]]]
) -> None:
    topic = stage.topic("doctor")
    queue = stage.queue()
    stage.subscribe(topic, {"gone": f"sqs:{queue.url}"})
    gone = ("--check", "destinations")

    def failing() -> list[str]:
        return [one["subject"] for one in doctor(*gone)[1] if one["status"] == "fail"]

    assert f"sqs:{queue.url}" not in failing()
    queue.client.delete_queue(QueueUrl=queue.url)
    assert f"sqs:{queue.url}" in failing()
    assert doctor(*gone)[0] == 1
    stage.outbox.remove_subscription(topic, "gone")
    assert f"sqs:{queue.url}" not in failing()


def test_expiry_that_was_switched_is_found(
    stage: Stage, doctor: Callable[..., tuple[int, list[Any]]]
) -> None:
    table = stage.app.env["FAIRBOX_DELIVERIES_TABLE"]

    def switch(*, on: bool) -> None:
        stage.dynamodb.update_time_to_live(
            TableName=table, TimeToLiveSpecification={"Enabled": on, "AttributeName": "x"}
        )

    switch(on=False)
    try:
        code, found = doctor("--check", "expiry")
        (bad,) = [one for one in found if one["status"] == "fail"]
        assert (code, bad["subject"]) == (1, f"deliveries {table}")
    finally:
        switch(on=True)
    eventually(
        lambda: doctor("--check", "expiry")[0] == 0, failing=lambda: doctor("--check", "expiry")
    )
