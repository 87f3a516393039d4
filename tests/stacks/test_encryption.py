"""A customer's key: on all that holds messages, and for each user no more than he needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox_cdk.components.encryption import key_actions

from tests.stacks.assembly import listed, plain
from tests.stacks.conftest import synthesise

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stacks.assembly import Assembly

READ = {"kms:Decrypt", "kms:DescribeKey"}
WRITE = READ | {"kms:Encrypt", "kms:GenerateDataKey", "kms:ReEncryptFrom", "kms:ReEncryptTo"}
SEND = {"kms:Decrypt", "kms:GenerateDataKey"}
PUT, GET = {"kms:GenerateDataKey"}, {"kms:Decrypt"}
USERS: dict[str, dict[str, set[str]]] = {
    "Producer": {"dynamodb": WRITE, "s3": PUT},
    "Consumer": {"dynamodb": WRITE, "s3": GET, "sqs": SEND},
    "Operator": {"dynamodb": WRITE, "s3": GET | PUT, "sqs": SEND},
    "Reader": {"dynamodb": READ, "s3": GET},
}
FUNCTIONS: dict[str, dict[str, set[str]]] = {
    "Relay": {"dynamodb": WRITE, "s3": GET | PUT, "sqs": SEND},
    "MarkDelivered": {"dynamodb": WRITE, "s3": PUT, "sqs": SEND},
    "AckBatches": {"dynamodb": WRITE, "sqs": GET},
    "CascadeBatches": {"dynamodb": WRITE, "s3": PUT},
    "CleanOrphans": {"dynamodb": WRITE},
    "Sweep": {"dynamodb": WRITE, "sqs": SEND},
    "DeliverShard": {"dynamodb": WRITE, "s3": GET | PUT, "sqs": SEND},
    "Repair": {"dynamodb": WRITE, "s3": GET | PUT, "sqs": SEND},
    "Api": {"dynamodb": WRITE, "s3": GET | PUT, "sqs": SEND},
    "CountOutstanding": {"dynamodb": WRITE},
}


def uses(statements: list[dict[str, Any]]) -> dict[str, set[str]]:
    """The actions on the key, by service; each statement must name the key and the service."""
    found: dict[str, set[str]] = {}
    for one in statements:
        actions = {a for a in listed(one["Action"]) if a.startswith("kms:")}
        if not actions:
            continue
        assert one["Effect"] == "Allow"
        assert [plain(resource) for resource in listed(one["Resource"])] == ["Key"]
        (through,) = one["Condition"]["StringEquals"].values()
        assert list(one["Condition"]["StringEquals"]) == ["kms:ViaService"]
        found.setdefault(plain(through).split(".")[0], set()).update(actions)
    return found


def test_the_key_turns_every_year_is_kept_and_is_the_account_s_to_give(
    keyed: Assembly,
) -> None:
    ((name, key),) = keyed.of_type("AWS::KMS::Key").items()
    assert key["EnableKeyRotation"] is True
    assert keyed.resources[name]["DeletionPolicy"] == "Retain"
    (statement,) = key["KeyPolicy"]["Statement"]
    assert plain(statement["Principal"]["AWS"]).endswith(":root")


def test_without_the_setting_there_is_no_key_and_no_use_of_one(assembly: Assembly) -> None:
    assert not [r for r in assembly.resources.values() if r["Type"].startswith("AWS::KMS")]
    for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for policy in assembly.of_type(kind).values():
            assert uses(policy["PolicyDocument"]["Statement"]) == {}


def test_tables_queues_buckets_and_the_archive_s_stream_are_under_it(keyed: Assembly) -> None:
    for table in keyed.of_type("AWS::DynamoDB::Table").values():
        encryption = table["SSESpecification"]
        assert (encryption["SSEEnabled"], encryption["SSEType"]) == (True, "KMS")
        assert plain(encryption["KMSMasterKeyId"]) == "Key"
    for queue in keyed.of_type("AWS::SQS::Queue").values():
        assert plain(queue["KmsMasterKeyId"]) == "Key"
        assert queue["KmsDataKeyReusePeriodSeconds"] == 3600
    plainly = []
    for name, bucket in keyed.of_type("AWS::S3::Bucket").items():
        (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        if rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}:
            plainly.append(name)
            continue
        assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
        assert plain(rule["ServerSideEncryptionByDefault"]["KMSMasterKeyID"]) == "Key"
        assert rule["BucketKeyEnabled"] is True
    assert plainly == ["FairboxStorage/AccessLogs"]  # S3 writes no access logs under such a key
    for stream in keyed.of_type("AWS::KinesisFirehose::DeliveryStream").values():
        encryption = stream["DeliveryStreamEncryptionConfigurationInput"]
        key_of = (encryption["KeyType"], plain(encryption["KeyARN"]))
        assert key_of == ("CUSTOMER_MANAGED_CMK", "Key")


def test_the_key_has_a_stack_of_its_own_that_outlives_the_setting(keyed: Assembly) -> None:
    ((name, _),) = keyed.of_type("AWS::KMS::Key").items()
    assert name == "FairboxKey/Key"
    assert keyed.artifacts["FairboxKey"]["properties"]["terminationProtection"] is True


@pytest.mark.extended  # a synthesis of its own
def test_older_data_stay_readable_when_the_setting_no_longer_names_their_key(
    tmp_path: Path,
) -> None:
    former = "arn:aws:kms:us-east-1:111122223333:key/former"
    found = {
        name: resource["Properties"]["PolicyDocument"]["Statement"]
        for name, resource in synthesise(tmp_path, {"other_keys": former}).resources.items()
        if resource["Type"] in {"AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"}
    }
    for name, statements in found.items():
        asked = [action for one in statements for action in listed(one["Action"])]
        granted = {
            action
            for one in statements
            if one["Resource"] == former and "kms:ViaService" in str(one["Condition"])
            for action in listed(one["Action"])
        }
        assert granted == set().union(*key_actions(asked).values()), name
    assert any("kms:Decrypt" in str(statements) for statements in found.values())


@pytest.mark.parametrize("user", USERS)
def test_a_user_may_use_it_as_far_as_what_he_does_asks(keyed: Assembly, user: str) -> None:
    policy = keyed.of_type("AWS::IAM::ManagedPolicy")[f"FairboxAccess/{user}"]
    assert uses(policy["PolicyDocument"]["Statement"]) == USERS[user]


def test_a_producer_may_write_bodies_under_it_and_decrypt_none_of_them(
    keyed: Assembly,
) -> None:
    policy = keyed.of_type("AWS::IAM::ManagedPolicy")["FairboxAccess/Producer"]
    assert "kms:Decrypt" not in uses(policy["PolicyDocument"]["Statement"])["s3"]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_may_use_it_as_far_as_what_it_does_asks(keyed: Assembly, function: str) -> None:
    assert uses(keyed.statements(f"{function}Role")) == FUNCTIONS[function]


def test_firehose_and_the_pipeline_may_use_it_through_s3(keyed: Assembly) -> None:
    assert uses(keyed.statements("ArchiveRole")) == {"s3": GET | PUT}
    assert uses(keyed.statements("SparkJobRole")) == {"s3": GET | PUT}
    assert uses(keyed.statements("DailyRunRole")) == {"dynamodb": READ, "s3": GET | PUT}


def test_every_action_on_items_objects_and_messages_is_known_to_ask_for_the_key(
    keyed: Assembly,
) -> None:
    without = {
        *("s3:ListBucket", "s3:PutObjectTagging", "s3:DeleteObject", "s3:GetBucketLocation"),
        *("s3:ListBucketMultipartUploads", "sqs:DeleteMessage"),
        *("sqs:GetQueueAttributes", "dynamodb:DescribeStream", "dynamodb:GetShardIterator"),
        *("dynamodb:ListStreams", "dynamodb:DescribeExport", "dynamodb:DescribeTable"),
        *("dynamodb:DescribeContinuousBackups", "dynamodb:DescribeTimeToLive", "sqs:GetQueueUrl"),
        "s3:PutObjectAcl",
    }
    granted = {
        action
        for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
        for policy in keyed.of_type(kind).values()
        for statement in policy["PolicyDocument"]["Statement"]
        for action in listed(statement["Action"])
        if action.split(":")[0] in ("dynamodb", "s3", "sqs")
    }
    assert {action for action in granted if not key_actions([action])} == without
