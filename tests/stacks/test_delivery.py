"""The stack of delivery: bounded repetition, no loss of given-up batches, filters that fit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.tables.keys import PK, SK
from fairbox.tables.shard_rows import READY_COUNT
from fairbox.tables.stored_messages import SIZE
from fairbox.testing.doorbell_queues import QUEUES

from local.triggers.filters import compile_pattern
from tests.stacks.assembly import Assembly, plain, variables
from tests.stacks.conftest import ROOT, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping


def mappings(assembly: Assembly) -> dict[str, dict[str, Any]]:
    return {
        name.removeprefix("FairboxDelivery/"): properties
        for name, properties in assembly.of_type("AWS::Lambda::EventSourceMapping").items()
    }


def streams(assembly: Assembly) -> dict[str, dict[str, Any]]:
    """The mappings of the outbox's stream, by function."""
    return {
        plain(one["FunctionName"]): one
        for one in mappings(assembly).values()
        if plain(one["EventSourceArn"]) == "Outbox.StreamArn"
    }


def queues(assembly: Assembly) -> dict[str, dict[str, Any]]:
    return {
        name.partition("/")[2]: one for name, one in assembly.of_type("AWS::SQS::Queue").items()
    }


def test_the_stream_has_its_two_readers_and_no_third(assembly: Assembly) -> None:
    assert set(streams(assembly)) == {"RelayFunction", "MarkDeliveredFunction"}


def test_stream_repetition_is_bounded_halved_and_partial(assembly: Assembly) -> None:
    retries = {name: one["MaximumRetryAttempts"] for name, one in streams(assembly).items()}
    # what marking gives up is not counted: it sets bad records aside, and the rest comes again
    # until the stream drops it
    assert retries == {"RelayFunction": 3, "MarkDeliveredFunction": -1}
    for mapping in streams(assembly).values():
        assert mapping["BisectBatchOnFunctionError"] is True
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert mapping["StartingPosition"] == "TRIM_HORIZON"


def test_what_a_stream_reader_gives_up_is_kept_with_its_records_in_s3(assembly: Assembly) -> None:
    for mapping in streams(assembly).values():
        assert plain(mapping["DestinationConfig"]["OnFailure"]["Destination"]) == "Failures"
    assert "FairboxStorage/Failures" in assembly.of_type("AWS::S3::Bucket")


def test_counts_are_kept_one_batch_of_a_stream_shard_at_a_time(assembly: Assembly) -> None:
    mapping = streams(assembly)["MarkDeliveredFunction"]
    assert mapping["ParallelizationFactor"] == 1
    assert mapping["MaximumBatchingWindowInSeconds"] == 20
    assert mapping["BatchSize"] == 1000
    # an event that nobody has recorded is never too old to be recorded
    assert "MaximumRecordAgeInSeconds" not in mapping


def test_the_relay_takes_a_hundred_records_at_once_and_waits_for_none(assembly: Assembly) -> None:
    mapping = streams(assembly)["RelayFunction"]
    assert mapping["BatchSize"] == 100
    assert mapping["MaximumBatchingWindowInSeconds"] == 0
    assert mapping["MaximumRecordAgeInSeconds"] == 3600


MESSAGE = {SIZE: {"N": "17"}}
SHARD_ROW = {READY_COUNT: {"N": "1"}}


def record(
    lane: str, *, new: Mapping[str, Any] | None = None, old: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    keys = {PK: {"S": f"{lane}#orders#0#3"}, SK: {"S": "0198f"}}
    images = {"NewImage": new, "OldImage": old}
    given = {name: {**keys, **image} for name, image in images.items() if image is not None}
    return {"dynamodb": {"Keys": keys, "SequenceNumber": "1", **given}}


def taken(assembly: Assembly, function: str, one: dict[str, Any]) -> bool:
    filters = streams(assembly)[function]["FilterCriteria"]["Filters"]
    return any(compile_pattern(each["Pattern"])(one) for each in filters)


@pytest.mark.parametrize(
    ("what", "one", "relay", "mark_delivered"),
    [
        ("a message added", record("ready", new=MESSAGE), True, True),
        ("a delayed message added", record("later", new=MESSAGE), True, True),
        ("an attempt noted", record("ready", new=MESSAGE, old=MESSAGE), False, True),
        ("a message delivered", record("ready", old=MESSAGE), False, True),
        ("a message of another lane", record("dead", new=MESSAGE), False, True),
        ("a shard row made", record("ready", new=SHARD_ROW), False, False),
        ("a shard row changed", record("ready", new=SHARD_ROW, old=SHARD_ROW), False, False),
        ("a shard row removed", record("ready", old=SHARD_ROW), False, False),
        ("a topic row made", record("topic", new={}), False, False),
    ],
)
def test_stream_readers_are_woken_by(
    assembly: Assembly,
    what: str,
    one: dict[str, Any],
    relay: bool,
    mark_delivered: bool,
) -> None:
    assert taken(assembly, "RelayFunction", one) is relay, what
    assert taken(assembly, "MarkDeliveredFunction", one) is mark_delivered, what


def test_every_queue_is_encrypted_and_closed_to_plain_http(assembly: Assembly) -> None:
    closed = {
        plain(queue)
        for policy in assembly.of_type("AWS::SQS::QueuePolicy").values()
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny"
        and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        for queue in policy["Queues"]
    }
    assert set(queues(assembly)) == closed
    for queue in queues(assembly).values():
        assert queue["SqsManagedSseEnabled"] is True


@pytest.mark.parametrize("name", ["DoorbellsNow", "DoorbellsApart", "DoorbellsLater"])
def test_a_doorbell_that_fails_five_times_is_put_aside(assembly: Assembly, name: str) -> None:
    queue = queues(assembly)[name]
    assert queue["RedrivePolicy"]["maxReceiveCount"] == 5
    aside = queues(assembly)[plain(queue["RedrivePolicy"]["deadLetterTargetArn"])]
    assert aside.get("FifoQueue") == queue.get("FifoQueue")
    assert aside["MessageRetentionPeriod"] == 14 * 86_400


@pytest.mark.parametrize("name", ["DoorbellsNow", "DoorbellsApart"])
def test_doorbells_are_in_groups_that_do_not_limit_each_other(
    assembly: Assembly, name: str
) -> None:
    queue = queues(assembly)[name]
    assert queue["FifoQueue"] is True
    assert queue["ContentBasedDeduplication"] is False
    assert queue["DeduplicationScope"] == "messageGroup"
    assert queue["FifoThroughputLimit"] == "perMessageGroupId"
    assert "FifoQueue" not in queues(assembly)["DoorbellsLater"]


def _attributes(queue: dict[str, Any]) -> dict[str, Any]:
    """Return what decides which messages come, and when; dead letters by number of receives."""
    names = ("VisibilityTimeout", "MessageRetentionPeriod", "FifoQueue", "DeduplicationScope")
    policy = queue.get("RedrivePolicy", {})
    policy = json.loads(policy) if isinstance(policy, str) else policy
    chosen = {name: str(queue.get(name)).lower() for name in (*names, "FifoThroughputLimit")}
    return chosen | {"receives": policy.get("maxReceiveCount")}


@pytest.mark.parametrize(
    ("modelled", "deployed"),
    [
        ("doorbells.fifo", "DoorbellsNow"),
        ("doorbells-apart.fifo", "DoorbellsApart"),
        ("doorbells-later", "DoorbellsLater"),
        ("doorbells-dead.fifo", "DoorbellsNowDeadLetters"),
        ("doorbells-apart-dead.fifo", "DoorbellsApartDeadLetters"),
        ("doorbells-later-dead", "DoorbellsLaterDeadLetters"),
    ],
)
def test_the_queues_of_tests_are_the_deployed_ones(
    assembly: Assembly, modelled: str, deployed: str
) -> None:
    assert _attributes(QUEUES[modelled]) == _attributes(queues(assembly)[deployed])


def test_a_visit_ends_long_before_its_doorbell_is_seen_again(assembly: Assembly) -> None:
    timeout = assembly.functions()["deliver_shard"]["Timeout"]
    for name in ("DoorbellsNow", "DoorbellsApart", "DoorbellsLater"):
        assert queues(assembly)[name]["VisibilityTimeout"] >= 2 * timeout


def test_all_doorbell_queues_start_visits_that_fail_one_by_one(assembly: Assembly) -> None:
    found = {
        plain(one["EventSourceArn"]): one
        for one in mappings(assembly).values()
        if plain(one["FunctionName"]) == "DeliverShardFunction"
    }
    assert set(found) == {"DoorbellsNow", "DoorbellsApart", "DoorbellsLater"}
    for mapping in found.values():
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert mapping["ScalingConfig"] == {"MaximumConcurrency": 50}
    assert found["DoorbellsNow"]["BatchSize"] == 1
    # a visit apart is slow: doorbells of another subscription must not wait for it in its batch
    assert found["DoorbellsApart"]["BatchSize"] == 1
    assert found["DoorbellsLater"]["BatchSize"] == 10


@pytest.mark.extended  # a synthesis of its own
def test_visits_apart_take_no_workers_of_shared_visits(local_assembly: Assembly) -> None:
    found = {
        plain(one["EventSourceArn"]): one["ScalingConfig"]["MaximumConcurrency"]
        for one in mappings(local_assembly).values()
        if plain(one["FunctionName"]) == "DeliverShardFunction"
    }
    assert found == {"DoorbellsNow": 4, "DoorbellsLater": 4, "DoorbellsApart": 6}


def test_a_visit_may_ring_for_the_next_one_without_being_taken_for_a_loop(
    assembly: Assembly,
) -> None:
    functions = assembly.functions()
    assert functions["deliver_shard"]["RecursiveLoop"] == "Allow"
    assert [name for name, one in functions.items() if "RecursiveLoop" in one] == ["deliver_shard"]


def test_schedules_run_often_enough_and_are_not_repeated(assembly: Assembly) -> None:
    rates = {
        plain(rule["Targets"][0]["Arn"]): rule["ScheduleExpression"]
        for rule in assembly.of_type("AWS::Events::Rule").values()
    }
    assert rates == {
        "SweepFunction": "rate(1 minute)",
        "RepairFunction": "rate(1 hour)",
        "CountOutstandingFunction": "rate(1 minute)",
        "CleanOrphansFunction": "rate(1 hour)",
    }
    retries = {
        plain(one["FunctionName"]): one["MaximumRetryAttempts"]
        for one in assembly.of_type("AWS::Lambda::EventInvokeConfig").values()
    }
    assert retries == dict.fromkeys(rates, 0)
    for rule in assembly.of_type("AWS::Events::Rule").values():
        assert rule["Targets"][0]["RetryPolicy"]["MaximumRetryAttempts"] == 0


def test_mappings_wait_for_the_permissions_that_they_need(assembly: Assembly) -> None:
    for name, resource in assembly.resources.items():
        if resource["Type"] == "AWS::Lambda::EventSourceMapping":
            assert any("DefaultPolicy" in one for one in resource["DependsOn"]), name


SHARED = {
    "FAIRBOX_OUTBOX_TABLE": "Outbox",
    "FAIRBOX_DELIVERIES_TABLE": "Deliveries",
    "FAIRBOX_METRICS_NAMESPACE": "Fairbox",
    "POWERTOOLS_LOG_LEVEL": "INFO",
}
RINGS = {"FAIRBOX_DOORBELL_QUEUE_URL": "DoorbellsNow"}
RINGS_LATER = {"FAIRBOX_LATER_QUEUE_URL": "DoorbellsLater"}
BODIES = {"FAIRBOX_BODIES_BUCKET": "Bodies"}
ARCHIVES = {
    "FAIRBOX_ARCHIVE_STREAM": "ArchiveMembers",
    "FAIRBOX_ARCHIVE_BUCKET": "ArchiveBucket",
    "FAIRBOX_ARCHIVE_BODIES": "true",
    "FAIRBOX_FAILURES_BUCKET": "Failures",
}
BATCHES = {"FAIRBOX_BATCHES_TABLE": "Batches"}
ACKS = {"FAIRBOX_ACK_QUEUE_URL": "AcksQueue"}
DETAIL = {"FAIRBOX_METRICS_DETAIL": "busiest"}
ENVIRONMENTS = {
    "relay": RINGS | RINGS_LATER | BODIES | BATCHES | DETAIL,
    "mark_delivered": ARCHIVES | BODIES | ACKS,
    "ack_batches": BATCHES,
    "cascade_batches": BATCHES,
    "clean_orphans": BATCHES
    | {
        "FAIRBOX_OPEN_BATCH_DAYS": "7",
        "FAIRBOX_SEALED_BATCH_DAYS": "14",
        "FAIRBOX_STALLED_BATCH_HOURS": "24",
        "FAIRBOX_CLEAN_ORPHANS_DRY_RUN": "false",
    },
    "sweep": RINGS | RINGS_LATER | BATCHES | DETAIL,
    "deliver_shard": RINGS
    | RINGS_LATER
    | BODIES
    | BATCHES
    | DETAIL
    | {"FAIRBOX_APART_QUEUE_URL": "DoorbellsApart", "FAIRBOX_WEBHOOK_ALLOW_PRIVATE": "false"},
    "repair": RINGS | ARCHIVES | BODIES | BATCHES | ACKS,
    "api": RINGS | RINGS_LATER | BODIES | BATCHES,
    "count_outstanding": BATCHES | DETAIL,
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_functions_are_told_what_they_use_and_no_more(assembly: Assembly, name: str) -> None:
    found = {key: plain(value) for key, value in variables(assembly.functions()[name]).items()}
    service = {"POWERTOOLS_SERVICE_NAME": f"fairbox-{name}"}
    assert found == SHARED | service | ENVIRONMENTS[name]


@pytest.mark.extended  # a synthesis of its own
def test_the_local_application_tells_functions_what_a_deployment_tells_them(
    assembly: Assembly, local_assembly: Assembly
) -> None:
    deployed, local = (
        {name: set(variables(one)) for name, one in found.functions().items()}
        for found in (assembly, local_assembly)
    )
    there = {
        name: {variable for variable in told if "_FEEDS_" not in variable}
        for name, told in local.items()
        if name in deployed
    }
    assert there == deployed
    feeds = {f"feeds_{name}" for name in ("authorize", "connect", "poll", "ring", "visit")}
    assert local.keys() - deployed == feeds


def test_there_is_a_function_for_each_folder(assembly: Assembly) -> None:
    assert set(assembly.functions()) == set(ENVIRONMENTS)


def test_a_release_is_one_change_of_a_functions_configuration(assembly: Assembly) -> None:
    """No code changes: CloudFormation would change it apart, and mix two releases meanwhile."""
    for name, function in assembly.functions().items():
        assert function["Handler"] == f"fairbox.functions.{name}.handler"
        code = assembly.folder / f"asset.{function['Code']['S3Key'].removesuffix('.zip')}"
        # what this says stays: a text of the next release would be the change to avoid
        assert {path.name: path.read_text() for path in code.iterdir()} == {
            "handler.py": '"""Names the handler, which is in the library: a release changes no '
            'function\'s code."""\n\n'
            f"from fairbox.functions.{name} import handler\n\n"
            '__all__ = ["handler"]\n'
        }


def test_functions_are_placed_where_the_settings_say(
    assembly: Assembly, checked: tuple[Assembly, object]
) -> None:
    for function in checked[0].functions().values():
        assert function["VpcConfig"] == {
            "SubnetIds": ["subnet-0a1b2c3d", "subnet-0a1b2c3e"],
            "SecurityGroupIds": ["sg-0a1b2c3d"],
        }
    assert not any("VpcConfig" in one for one in assembly.functions().values())


def test_logs_and_alarms_are_encrypted_under_the_keys_of_the_settings(
    assembly: Assembly, checked: tuple[Assembly, object]
) -> None:
    for group in checked[0].of_type("AWS::Logs::LogGroup").values():
        assert group["KmsKeyId"] == SETTINGS["log_key"]
    (topic,) = checked[0].of_type("AWS::SNS::Topic").values()
    assert topic["KmsMasterKeyId"] == SETTINGS["alarm_topic_key"]
    assert not any("KmsKeyId" in one for one in assembly.of_type("AWS::Logs::LogGroup").values())


def test_functions_run_alike(assembly: Assembly) -> None:
    groups = {
        name.split("/")[1]: one for name, one in assembly.of_type("AWS::Logs::LogGroup").items()
    }
    for function in assembly.functions().values():
        assert function["Runtime"] == "python3.13"
        assert function["Architectures"] == ["arm64"]
        assert "TracingConfig" not in function
        assert [plain(one) for one in function["Layers"]] == ["DependenciesLayer", "FairboxLayer"]
        logging = function["LoggingConfig"]
        assert groups[plain(logging["LogGroup"])]["RetentionInDays"] == 30
        assert (logging["LogFormat"], logging["SystemLogLevel"]) == ("JSON", "WARN")
        assert "ApplicationLogLevel" not in logging  # INFO: the SDK writes bodies at DEBUG


@pytest.mark.extended  # a synthesis of its own
def test_a_new_account_need_reserve_nothing_and_scheduled_work_reserves_where_it_is_told_to(
    assembly: Assembly, checked: tuple[Assembly, object]
) -> None:
    def reserved(of: Assembly) -> dict[str, int]:
        return {
            name: one["ReservedConcurrentExecutions"]
            for name, one in of.functions().items()
            if "ReservedConcurrentExecutions" in one
        }

    assert reserved(assembly) == {}
    scheduled = dict.fromkeys(("sweep", "repair", "count_outstanding", "clean_orphans"), 1)
    assert reserved(checked[0]) == scheduled


def test_the_page_of_quotas_says_how_many_functions_run_at_once(assembly: Assembly) -> None:
    new_table = 4  # stream shards
    at_once = len(assembly.of_type("AWS::Events::Rule"))
    for mapping in assembly.of_type("AWS::Lambda::EventSourceMapping").values():
        parallel = mapping.get("ParallelizationFactor", 0) * new_table
        at_once += mapping.get("ScalingConfig", {}).get("MaximumConcurrency", parallel)
    page = (ROOT / "docs/how-to/quotas.md").read_text(encoding="utf-8")
    assert f"{at_once} functions at once" in page


@pytest.mark.extended  # a synthesis of its own
def test_webhook_secrets_are_named_to_visits_where_there_are_any(
    checked: tuple[Assembly, object],
) -> None:
    functions = checked[0].functions()
    named = variables(functions["deliver_shard"])["FAIRBOX_WEBHOOK_SECRETS"]
    secret, parameter = named.split(",")
    assert secret.endswith(":secret:webhook-AbCdEf")
    assert parameter.endswith(":parameter/webhooks")
