"""The permissions of each function, listed whole, so that none is added unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stacks.assembly import listed, plain
from tests.stacks.conftest import ACCOUNT
from tests.support.iam.deployment import Deployment
from tests.support.iam.policy import grants_of

if TYPE_CHECKING:
    from tests.stacks.assembly import Assembly

Permissions = dict[str, set[str]]

READ = {"dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"}
WRITE = {
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
    "dynamodb:DeleteItem",
    "dynamodb:BatchWriteItem",
}
ADD = {"dynamodb:PartiQLInsert"}
CHECK = {"dynamodb:ConditionCheckItem"}
SEND = {"sqs:SendMessage"}
RECEIVE = {
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
}
STREAM: Permissions = {
    "Outbox.StreamArn": {
        "dynamodb:DescribeStream",
        "dynamodb:GetRecords",
        "dynamodb:GetShardIterator",
    },
    "Outbox/stream/*": {"dynamodb:ListStreams"},
    "Failures": {"s3:ListBucket"},
    "Failures/*": {"s3:PutObject"},
}
BATCHES_STREAM: Permissions = {
    "Batches.StreamArn": STREAM["Outbox.StreamArn"],
    "Batches/stream/*": STREAM["Outbox/stream/*"],
    "Failures": STREAM["Failures"],
    "Failures/*": STREAM["Failures/*"],
}
SETTLE: Permissions = {
    "Batches": {"dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:PutItem"},
    "Outbox": {"dynamodb:Query", "dynamodb:PutItem", "dynamodb:UpdateItem"},
}
OPEN_BATCHES: Permissions = {"Batches/index/OpenBatches": {"dynamodb:Query"}}
DISPATCH: Permissions = {
    "Batches": {"dynamodb:GetItem", "dynamodb:PutItem"},
    "Outbox": READ | WRITE | ADD,
    "Deliveries": {"dynamodb:PutItem", "dynamodb:UpdateItem"},
    "Bodies": {"s3:ListBucket"},
    "Bodies/*": {"s3:GetObject", "s3:PutObject"},
}
ARCHIVE: Permissions = {
    "ArchiveMembers": {"firehose:PutRecordBatch"},
    "ArchiveBucket/archive/*": {"s3:PutObject"},
    "Failures/archive/waiting/*": {"s3:PutObject"},
}
ERASE: Permissions = {"Batches": SETTLE["Batches"] | {"dynamodb:Query", "dynamodb:BatchWriteItem"}}
_SMOKE = "arn:AWS::Partition:{}:AWS::Region:AWS::AccountId:{}Fairbox-smoke-*"
SMOKE: Permissions = {
    _SMOKE.format("sqs", ""): SEND,
    _SMOKE.format("sns", ""): {"sns:Publish"},
    _SMOKE.format("events", "event-bus/"): {"events:PutEvents"},
    _SMOKE.format("kinesis", "stream/"): {"kinesis:PutRecords"},
}
EXPIRE_BODIES: Permissions = {"Bodies": {"s3:ListBucket"}, "Bodies/*": {"s3:PutObjectTagging"}}
OUTSTANDING: Permissions = {
    "Outbox": {"dynamodb:GetItem", "dynamodb:Query"},
    "Outbox/index/OutstandingAllTopics": {"dynamodb:Query"},
}
EXPECTED: dict[str, Permissions] = {
    "Relay": DISPATCH | STREAM | SMOKE | {"DoorbellsNow": SEND, "DoorbellsLater": SEND},
    "MarkDelivered": STREAM
    | {
        "Outbox": READ | {"dynamodb:UpdateItem"},
        "Deliveries": {"dynamodb:BatchWriteItem"},
        **ARCHIVE,
        **EXPIRE_BODIES,
        "AcksQueue": SEND,
    },
    "AckBatches": SETTLE | {"AcksQueue": RECEIVE},
    "CascadeBatches": SETTLE | BATCHES_STREAM | ERASE,
    "CleanOrphans": SETTLE | OPEN_BATCHES | ERASE,
    "Sweep": OUTSTANDING
    | {
        # expired messages, and their items of batches
        "Outbox": OUTSTANDING["Outbox"]
        | {"dynamodb:UpdateItem", "dynamodb:PartiQLUpdate", "dynamodb:PartiQLDelete"},
        "Batches": {"dynamodb:GetItem", "dynamodb:PutItem"},
        "DoorbellsNow": SEND,
        "DoorbellsLater": SEND,
    },
    "DeliverShard": DISPATCH
    | SMOKE
    | {
        "DoorbellsNow": SEND | RECEIVE,
        "DoorbellsApart": SEND | RECEIVE,
        "DoorbellsLater": SEND | RECEIVE,
        "SweepFunction": {"lambda:InvokeFunction"},
    },
    "Repair": {
        "Outbox": READ | WRITE | {"dynamodb:Scan"},
        # whether old epochs have dead letters; what is dead, and the ledger of batches given up
        "Deliveries": WRITE - {"dynamodb:DeleteItem"} | {"dynamodb:Query"},
        **ERASE,
        "AcksQueue": SEND,
        "DoorbellsNow": SEND,
        **ARCHIVE,
        **EXPIRE_BODIES,
        "Failures": {"s3:ListBucket"},
        "Failures/archive/waiting/*": {"s3:PutObject", "s3:GetObject", "s3:DeleteObject"},
        "Failures/aws/lambda/*": {"s3:GetObject", "s3:DeleteObject"},
    },
    "Api": {
        "Outbox": READ | WRITE | ADD | CHECK | {"dynamodb:PartiQLUpdate", "dynamodb:PartiQLDelete"},
        "Outbox/index/OutstandingAllTopics": {"dynamodb:Query"},
        "Batches": READ | CHECK | {"dynamodb:PutItem", "dynamodb:BatchWriteItem"},
        **OPEN_BATCHES,
        "Deliveries": READ | WRITE - {"dynamodb:BatchWriteItem"} | ADD,
        "Deliveries/index/DeliveredAllTopics": {"dynamodb:Query"},
        "Bodies": {"s3:ListBucket"},
        "Bodies/*": {"s3:GetObject", "s3:PutObject", "s3:PutObjectTagging"},
        "DoorbellsNow": SEND,
        "DoorbellsLater": SEND,
    },
    "CountOutstanding": OUTSTANDING
    | OPEN_BATCHES
    | {
        "Batches": {"dynamodb:GetItem", "dynamodb:BatchGetItem"},
        "Outbox": {"dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"},
        "Deliveries": {"dynamodb:BatchGetItem"},
        "Deliveries/index/DeliveredAllTopics": {"dynamodb:Query"},
    },
}
"""By function, without what all have: their own logs, and traces."""


def own(function: str) -> Permissions:
    return {
        f"{function}Logs": {"logs:CreateLogStream", "logs:PutLogEvents"},
        "*": {"xray:PutTraceSegments", "xray:PutTelemetryRecords"},
    }


@pytest.mark.parametrize("function", EXPECTED)
def test_a_function_may_do_what_is_listed_and_no_more(assembly: Assembly, function: str) -> None:
    assert assembly.permissions(f"{function}Role") == EXPECTED[function] | own(function)


def test_every_function_has_a_role_of_its_own_that_is_listed(assembly: Assembly) -> None:
    roles = [plain(one["Role"]) for one in assembly.functions().values()]
    assert sorted(roles) == sorted(f"{function}Role" for function in EXPECTED)


def test_no_statement_has_a_wildcard_action_and_no_role_a_managed_policy(
    assembly: Assembly,
) -> None:
    for properties in assembly.of_type("AWS::IAM::Policy").values():
        for statement in properties["PolicyDocument"]["Statement"]:
            assert not any("*" in action for action in listed(statement["Action"]))
    for properties in assembly.of_type("AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in properties


def test_the_local_application_grants_what_a_deployment_grants(
    assembly: Assembly, local_assembly: Assembly
) -> None:
    local, deployed = (
        {name: grants_of(statements) for name, statements in principals.items()}
        for principals in (
            Deployment(found.folder).principals for found in (local_assembly, assembly)
        )
    )
    assert local == deployed


def test_firehose_may_write_the_archive_and_its_log(assembly: Assembly) -> None:
    assert assembly.permissions("ArchiveRole") == {
        "ArchiveBucket": {
            "s3:GetBucketLocation",
            "s3:ListBucket",
            "s3:ListBucketMultipartUploads",
        },
        "ArchiveBucket/*": {"s3:PutObject", "s3:GetObject", "s3:AbortMultipartUpload"},
        "ArchiveLogs": {"logs:PutLogEvents"},
    }


def arn(service: str, rest: str) -> str:
    return f"arn:aws:{service}:us-east-1:{ACCOUNT}:{rest}"


FAST: Permissions = {
    arn("sqs", "billing"): SEND,
    arn("sqs", "shipping"): SEND,
    arn("sns", "news"): {"sns:Publish"},
    arn("events", "event-bus/orders"): {"events:PutEvents"},
    arn("kinesis", "stream/clicks"): {"kinesis:PutRecords"},
    arn("kms", "key/5b1c"): {"kms:GenerateDataKey", "kms:Decrypt"},
}
SLOW: Permissions = {
    arn("lambda", "function:enrich"): {"lambda:InvokeFunction"},
    arn("secretsmanager", "secret:webhook-AbCdEf"): {"secretsmanager:GetSecretValue"},
    arn("ssm", "parameter/webhooks"): {"ssm:GetParameter"},
}


@pytest.mark.parametrize(("function", "added"), [("Relay", FAST), ("DeliverShard", FAST | SLOW)])
def test_destinations_of_the_settings_are_opened_to_those_who_deliver(
    checked: tuple[Assembly, object], function: str, added: Permissions
) -> None:
    allowed = checked[0].permissions(f"{function}Role")
    assert allowed == EXPECTED[function] | own(function) | added


@pytest.mark.parametrize("function", sorted(set(EXPECTED) - {"Relay", "DeliverShard"}))
def test_destinations_of_the_settings_are_opened_to_nobody_else(
    checked: tuple[Assembly, object], function: str
) -> None:
    assert checked[0].permissions(f"{function}Role") == EXPECTED[function] | own(function)
