"""The pipeline's stack: what it costs when idle, in which order jobs run, and what they may do."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.stacks.assembly import plain
from tests.stacks.conftest import ROOT

if TYPE_CHECKING:
    from tests.stacks.assembly import Assembly

JOBS = ["history", "latency", "sizing", "reconcile", "batches", "report"]
READ_AND_WRITE = {"s3:GetObject", "s3:PutObject", "s3:DeleteObject"}


@pytest.fixture(scope="module")
def application(assembly: Assembly) -> dict[str, Any]:
    (found,) = assembly.of_type("AWS::EMRServerless::Application").values()
    return found


@pytest.fixture(scope="module")
def machine(assembly: Assembly) -> dict[str, Any]:
    """The state machine's definition, references replaced by plain names."""
    (found,) = assembly.of_type("AWS::StepFunctions::StateMachine").values()
    parts = found["DefinitionString"]["Fn::Join"][1]
    text = "".join(part if isinstance(part, str) else name(part) for part in parts)
    definition: dict[str, Any] = json.loads(text)
    return definition


def name(reference: dict[str, Any]) -> str:
    return plain(reference).replace("AWS::Partition", "aws")


def order(definition: dict[str, Any]) -> list[str]:
    """The states from the first to the last, by the way of success."""
    states, at = definition["States"], definition["StartAt"]
    seen = [at]
    while not states[at].get("End"):
        state = states[at]
        if state["Type"] == "Choice":
            done = [c for c in state["Choices"] if c.get("StringEquals") == "COMPLETED"]
            at = done[0]["Next"]
        else:
            at = state["Next"]
        assert at not in seen
        seen.append(at)
    return seen


def jobs(definition: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The job states by the job's name."""
    return {
        state["Parameters"]["Name"].removeprefix("fairbox-"): state
        for state in definition["States"].values()
        if "emr-serverless" in state.get("Resource", "")
    }


def test_nothing_is_kept_warm_and_what_runs_has_an_upper_bound(
    application: dict[str, Any],
) -> None:
    assert "InitialCapacity" not in application
    assert application["AutoStopConfiguration"]["Enabled"] is True
    assert application["AutoStopConfiguration"]["IdleTimeoutMinutes"] <= 15
    assert application["MaximumCapacity"]["Cpu"] == "32 vCPU"
    assert application["MaximumCapacity"]["Memory"] == "256 GB"


def test_the_release_is_pinned_and_runs_on_arm(application: dict[str, Any]) -> None:
    assert application["ReleaseLabel"] == "emr-spark-8.0.0"
    assert application["Architecture"] == "ARM64"


def test_the_snapshot_comes_first_and_history_before_every_other_job(
    machine: dict[str, Any],
) -> None:
    passed = order(machine)
    assert passed[0] == "ExportOutbox"
    assert passed.index("ArchiveCatchesUp") < passed.index("History")
    assert [state.lower() for state in passed if state.lower() in JOBS] == JOBS


def test_the_archive_has_time_to_hold_what_the_snapshot_no_longer_has(
    machine: dict[str, Any],
) -> None:
    config = json.loads((ROOT / "cdk.json").read_text())["context"]["profiles"]["default"]
    buffered = config["archive_buffer_seconds"] + config["mark_delivered_window_seconds"]
    assert machine["States"]["ArchiveCatchesUp"]["Seconds"] >= buffered + 300


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_bounded_tried_again_and_started_once_for_the_same_work(
    machine: dict[str, Any], job: str
) -> None:
    state = jobs(machine)[job]
    assert state["Resource"].endswith("emr-serverless:startJobRun.sync")
    assert 0 < state["Retry"][0]["MaxAttempts"] <= 5
    assert state["TimeoutSeconds"] > state["Parameters"]["ExecutionTimeoutMinutes"] * 60
    token = state["Parameters"]["ClientToken.$"]
    assert token.startswith("States.Hash(States.Format(")
    assert token.endswith("'SHA-256')")
    # EMR answers a token that it knows with the run that it started: a failed one, on a retry
    for part in (f"'{job} ", "$.window", "$$.State.RetryCount", "$$.Execution.RedriveCount"):
        assert part in token
    # as many marks as values
    assert token.count("{}") == len(re.findall(r", \$", token))


def test_jobs_are_the_command_line_s_with_the_archive_and_the_warehouse(
    machine: dict[str, Any],
) -> None:
    for job, state in jobs(machine).items():
        submit = state["Parameters"]["JobDriver"]["SparkSubmit"]
        arguments = submit["EntryPointArguments.$"]
        assert arguments.startswith(f"States.Array('{job}', '--archive', 's3://ArchiveBucket")
        assert "'--warehouse', 's3://Warehouse" in arguments
        assert "/tables'" in arguments
        settings = dict(
            pair.split("=", 1) for pair in submit["SparkSubmitParameters"].split("--conf ")[1:]
        )
        assert settings["spark.archives"].strip().endswith("#environment")
        assert settings["spark.executorEnv.PYTHONPATH"].strip() == "./environment"
        # a default catalog of another name: the session makes none of its own
        assert settings["spark.sql.defaultCatalog"].strip() == "glue"
        assert settings["spark.sql.catalog.glue.catalog-impl"].strip().endswith("GlueCatalog")
        assert settings["spark.submit.pyFiles"].strip().endswith(".zip")


def test_reconcile_is_given_the_snapshot_that_was_just_made(machine: dict[str, Any]) -> None:
    parameters = jobs(machine)["reconcile"]["Parameters"]
    arguments = parameters["JobDriver"]["SparkSubmit"]["EntryPointArguments.$"]
    assert arguments.endswith("'--outstanding', $.outbox.uri)")
    assert "$.outbox.uri" in parameters["ClientToken.$"]
    for state in jobs(machine).values():
        arguments = state["Parameters"]["JobDriver"]["SparkSubmit"]["EntryPointArguments.$"]
        # a message that was added after the snapshot would else be taken for lost
        assert "'--until', $.outbox.time" in arguments
    selected = machine["States"]["ExportOutbox"]["ResultSelector"]
    assert selected["time.$"] == "$.ExportDescription.ExportTime"
    made = machine["States"]["ExportOutbox"]["ResultSelector"]["uri.$"]
    assert "exports/outbox/AWSDynamoDB/" in made
    assert machine["States"]["ExportOutbox"]["ResultPath"] == "$.outbox"


def test_an_export_that_fails_fails_the_run(machine: dict[str, Any]) -> None:
    choices = machine["States"]["IsOutboxExportDone"]["Choices"]
    failed = [c["Next"] for c in choices if c["StringEquals"] == "FAILED"]
    assert [machine["States"][one]["Type"] for one in failed] == ["Fail"]


def test_it_runs_once_a_day_and_says_for_which_time(assembly: Assembly) -> None:
    (schedule,) = assembly.of_type("AWS::Scheduler::Schedule").values()
    assert schedule["ScheduleExpression"] == "cron(0 3 * * ? *)"
    assert json.loads(schedule["Target"]["Input"]) == {"window": "<aws.scheduler.scheduled-time>"}


def test_a_run_that_fails_hangs_or_is_stopped_tells_somebody(assembly: Assembly) -> None:
    found = {
        one["MetricName"]: one
        for one in assembly.of_type("AWS::CloudWatch::Alarm").values()
        if one.get("Namespace") == "AWS/States"
    }
    assert set(found) == {"ExecutionsFailed", "ExecutionsTimedOut", "ExecutionsAborted"}
    for alarm in found.values():
        assert [plain(one) for one in alarm["AlarmActions"]] == ["AlarmTopic"]
        assert alarm["Threshold"] == 0


def tables(assembly: Assembly, role: str) -> dict[str, set[str]]:
    """The permissions of a role, without the package's own objects and Glue."""
    allowed = assembly.permissions(role)
    return {name: what for name, what in allowed.items() if "cdk-" not in name}


def test_a_job_reads_the_archive_writes_the_warehouse_and_touches_nothing_else(
    assembly: Assembly,
) -> None:
    allowed = tables(assembly, "SparkJobRole")
    glue = {name for name in allowed if ":glue:" in name}
    assert {name.rpartition(":")[2] for name in glue} == {
        "catalog",
        "database/fairbox",
        "table/fairbox/*",
    }
    assert {name: what for name, what in allowed.items() if name not in glue} == {
        "ArchiveBucket": {"s3:ListBucket"},
        "ArchiveBucket/archive/*": {"s3:GetObject"},
        "Warehouse": {"s3:ListBucket"},
        "Warehouse/*": READ_AND_WRITE,
        "SparkLogs": {"logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"},
        "*": {"logs:DescribeLogGroups"},
    }


def test_only_the_role_for_replays_may_write_to_the_outbox(assembly: Assembly) -> None:
    allowed = tables(assembly, "SparkReplayRole")
    assert allowed["Outbox"] == {
        "dynamodb:GetItem",
        "dynamodb:Query",
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
    }
    assert "Outbox" not in tables(assembly, "SparkJobRole")
    passed = [
        statement
        for statement in assembly.statements("DailyRunRole")
        if statement["Action"] == "iam:PassRole"
    ]
    assert [plain(one["Resource"]) for one in passed] == ["SparkJobRole"]
    assert passed[0]["Condition"] == {
        "StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}
    }


def test_snapshots_leave_the_warehouse_and_tables_stay(assembly: Assembly) -> None:
    bucket = assembly.resources["FairboxStorage/Warehouse"]["Properties"]
    rules = bucket["LifecycleConfiguration"]["Rules"]
    assert [r["Prefix"] for r in rules if "ExpirationInDays" in r] == ["exports/"]


def test_the_local_profile_has_no_pipeline(local_assembly: Assembly) -> None:
    assert "FairboxPipeline" not in local_assembly.templates
