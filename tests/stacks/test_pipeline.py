"""The pipeline's stack: what it costs when idle, how its jobs run, and what they may do."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from fairbox_cdk.config import Config

from tests.stacks.assembly import plain

if TYPE_CHECKING:
    from tests.stacks.assembly import Assembly

READ_AND_WRITE = {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"}
NEW_ACCOUNT_VCPU = 16
"""EMR Serverless's quota of an account that has asked for no more."""


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


@pytest.fixture(scope="module")
def jobs(machine: dict[str, Any]) -> dict[str, Any]:
    """The one state that starts the application."""
    (found,) = [s for s in machine["States"].values() if "emr-serverless" in s.get("Resource", "")]
    state: dict[str, Any] = found
    return state


@pytest.fixture(scope="module")
def settings(jobs: dict[str, Any]) -> dict[str, str]:
    """The parameters of `spark-submit`."""
    text = jobs["Parameters"]["JobDriver"]["SparkSubmit"]["SparkSubmitParameters"]
    return dict(pair.strip().split("=", 1) for pair in text.split("--conf ")[1:])


def test_nothing_is_kept_warm_and_what_runs_has_an_upper_bound(
    application: dict[str, Any],
) -> None:
    assert "InitialCapacity" not in application
    assert application["AutoStopConfiguration"]["Enabled"] is True
    assert application["AutoStopConfiguration"]["IdleTimeoutMinutes"] <= 15
    assert application["MaximumCapacity"] == {
        "Cpu": f"{NEW_ACCOUNT_VCPU} vCPU",
        "Memory": "128 GB",
        "Disk": "320 GB",
    }


def test_a_small_run_has_a_driver_and_one_executor_and_a_large_one_fits_a_new_account(
    settings: dict[str, str],
) -> None:
    sizes = {}
    for one in ("driver", "executor"):
        cores, heap = int(settings[f"spark.{one}.cores"]), settings[f"spark.{one}.memory"]
        overhead = float(settings["spark.emr-serverless.memoryOverheadFactor"])
        sizes[one] = (cores, int(heap.removesuffix("g")) * (1 + overhead))
    assert sizes == {"driver": (2, 8), "executor": (2, 8)}  # 2 vCPU have 4 to 16 GB
    # Spark begins with the greatest of these
    assert settings["spark.dynamicAllocation.initialExecutors"] == "1"
    assert settings["spark.executor.instances"] == "1"
    assert "spark.dynamicAllocation.minExecutors" not in settings
    most = int(settings["spark.dynamicAllocation.maxExecutors"])
    assert 2 + most * 2 == NEW_ACCOUNT_VCPU


def test_the_release_is_pinned_and_runs_on_arm(application: dict[str, Any]) -> None:
    assert application["ReleaseLabel"] == "emr-spark-8.1.0"
    assert application["Architecture"] == "ARM64"


def test_the_snapshot_comes_first_and_one_run_of_all_jobs_last(machine: dict[str, Any]) -> None:
    passed = order(machine)
    assert passed[0] == "ExportOutbox"
    assert passed[-2:] == ["BatchesExportDone", "Jobs"]
    assert passed.index("ArchiveCatchesUp") < passed.index("Jobs")


def test_the_archive_has_time_to_hold_what_the_snapshot_no_longer_has(
    machine: dict[str, Any],
) -> None:
    buffered = Config().archive_buffer_seconds + Config().mark_delivered_window_seconds
    assert machine["States"]["ArchiveCatchesUp"]["Seconds"] >= buffered + 300


def test_jobs_are_bounded_tried_again_and_started_once_for_the_same_work(
    machine: dict[str, Any], jobs: dict[str, Any]
) -> None:
    assert jobs["Resource"].endswith("emr-serverless:startJobRun.sync")
    tries = 1 + jobs["Retry"][0]["MaxAttempts"]
    assert 1 < tries <= 6
    assert jobs["TimeoutSeconds"] > jobs["Parameters"]["ExecutionTimeoutMinutes"] * 60
    assert tries * jobs["TimeoutSeconds"] < machine["TimeoutSeconds"] - 3 * 3600
    token = jobs["Parameters"]["ClientToken.$"]
    assert token.startswith("States.Hash(States.Format(")
    assert token.endswith("'SHA-256')")
    # EMR answers a token that it knows with the run that it started: a failed one, on a retry
    again = ("$$.State.RetryCount", "$$.Execution.RedriveCount")
    # a token is the account's: two deployments do the same work at the same hour
    for part in ("'Fairbox daily ", "$.window", *again):
        assert part in token
    # as many marks as values
    assert token.count("{}") == len(re.findall(r", \$", token))


def test_jobs_are_the_command_line_s_with_the_archive_and_the_warehouse(
    jobs: dict[str, Any], settings: dict[str, str]
) -> None:
    arguments = jobs["Parameters"]["JobDriver"]["SparkSubmit"]["EntryPointArguments.$"]
    assert arguments.startswith("States.Array('daily', '--archive', 's3://ArchiveBucket")
    assert "'--warehouse', 's3://Warehouse" in arguments
    assert "/tables'" in arguments
    assert "'--maintain-every', '7', '--retain', '730'" in arguments
    assert settings["spark.archives"].endswith("#environment")
    assert settings["spark.executorEnv.PYTHONPATH"] == "./environment"
    # a default catalog of another name: the session makes none of its own
    assert settings["spark.sql.defaultCatalog"] == "glue"
    assert settings["spark.sql.catalog.glue.catalog-impl"].endswith("GlueCatalog")
    # Hive's catalog would make database `default` where there is none, and may not
    assert settings["spark.sql.catalogImplementation"] == "in-memory"
    assert settings["spark.submit.pyFiles"].endswith(".zip")


def test_jobs_are_given_the_snapshots_that_were_just_made(
    machine: dict[str, Any], jobs: dict[str, Any]
) -> None:
    arguments = jobs["Parameters"]["JobDriver"]["SparkSubmit"]["EntryPointArguments.$"]
    # a message that was added after the snapshot would else be taken for lost
    assert "'--until', $.outbox.time, '--outstanding', $.outbox.uri" in arguments
    assert arguments.endswith("'--trackers', $.batches.uri)")
    for path in ("$.outbox.time", "$.outbox.uri", "$.batches.uri"):
        assert path in jobs["Parameters"]["ClientToken.$"]
    selected = machine["States"]["ExportOutbox"]["ResultSelector"]
    assert selected["time.$"] == "$.ExportDescription.ExportTime"
    assert "exports/outbox/AWSDynamoDB/" in selected["uri.$"]
    assert machine["States"]["ExportOutbox"]["ResultPath"] == "$.outbox"


def test_logs_of_the_machine_take_no_space_of_the_account_s_policy(assembly: Assembly) -> None:
    found = [
        group["LogGroupName"]["Fn::Join"][1][0]
        for name, group in assembly.of_type("AWS::Logs::LogGroup").items()
        if name.startswith("FairboxPipeline/DailyRun")
    ]
    assert found == ["/aws/vendedlogs/states/FairboxPipeline-"]


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
        if one.get("Namespace") == "AWS/States" and one["MetricName"] != "ExecutionsStarted"
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
        "database/default",
    }
    actions = {name.rpartition(":")[2]: what for name, what in allowed.items() if name in glue}
    assert actions["database/default"] == {"glue:GetDatabase"}
    # no table is ever dropped
    assert actions["table/fairbox/*"] == {
        *("glue:GetDatabase", "glue:GetTable", "glue:GetTables"),
        *("glue:CreateTable", "glue:UpdateTable"),
    }
    assert {name: what for name, what in allowed.items() if name not in glue} == {
        "ArchiveBucket": {"s3:ListBucket"},
        "ArchiveBucket/archive/*": {"s3:GetObject"},
        "Warehouse": {"s3:ListBucket"},
        "Warehouse/*": READ_AND_WRITE,
        "SparkLogs": {"logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"},
        "*": {"logs:DescribeLogGroups"},
    }


def test_only_the_role_for_replays_may_write_to_outbox_and_archive(assembly: Assembly) -> None:
    allowed = tables(assembly, "SparkReplayRole")
    assert allowed["Outbox"] == {
        "dynamodb:BatchGetItem",
        "dynamodb:GetItem",
        "dynamodb:Query",
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
    }
    assert allowed["ArchiveBucket/archive/*"] == {
        "s3:GetObject",
        "s3:PutObject",
        "s3:AbortMultipartUpload",
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


def test_the_run_may_do_what_an_export_needs_and_no_more(assembly: Assembly) -> None:
    allowed = assembly.permissions("DailyRunRole")
    for table in ("outbox", "batches"):
        assert allowed[f"Warehouse/exports/{table}/*"] == {
            "s3:PutObject",
            "s3:PutObjectAcl",
            "s3:AbortMultipartUpload",
        }


def test_snapshots_leave_the_warehouse_and_tables_stay(assembly: Assembly) -> None:
    bucket = assembly.resources["FairboxStorage/Warehouse"]["Properties"]
    rules = bucket["LifecycleConfiguration"]["Rules"]
    assert [r["Prefix"] for r in rules if "ExpirationInDays" in r] == ["exports/"]


def test_the_local_profile_has_no_pipeline(local_assembly: Assembly) -> None:
    assert "FairboxPipeline" not in local_assembly.templates
