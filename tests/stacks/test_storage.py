"""The stack of storage: no loss by a mistake, no access for others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox.aws.s3_archive import WAITING
from fairbox.tables import batch_records as batch_codec
from fairbox.tables.batch_values import Root
from fairbox.tables.definitions import batches_definition
from fairbox.tables.keys import EXPIRES_AT, PK, SK
from fairbox.tables.ledger import DELIVERED_INDEX, LEDGER_DAY, LEDGER_TIME
from fairbox.tables.shard_rows import (
    BUCKET,
    LATER_COUNT,
    LATER_DEATHS,
    LOOK_AT,
    OUTSTANDING_INDEX,
    PURGED_DEAD,
    READY_COUNT,
    READY_DEATHS,
)
from fairbox_cdk.components.archive import ageing
from fairbox_cdk.config import Config

from tests.stacks.assembly import plain

if TYPE_CHECKING:
    from tests.stacks.assembly import Assembly

BATCH = "0198f7a2-0000-7000-8000-000000000001"


def table(assembly: Assembly, name: str) -> dict[str, Any]:
    return assembly.of_type("AWS::DynamoDB::Table")[f"FairboxStorage/{name}"]


def keys(schema: list[dict[str, str]]) -> dict[str, str]:
    return {key["KeyType"]: key["AttributeName"] for key in schema}


def test_tables_are_encrypted_recoverable_and_protected_from_deletion(assembly: Assembly) -> None:
    tables = assembly.of_type("AWS::DynamoDB::Table")
    assert set(tables) == {
        "FairboxStorage/Outbox",
        "FairboxStorage/Deliveries",
        "FairboxStorage/Batches",
    }
    for name, properties in tables.items():
        # the key that AWS owns: `aws/dynamodb` in the account would bill each request to KMS
        assert properties["SSESpecification"] == {"SSEEnabled": False}
        recovery = properties["PointInTimeRecoverySpecification"]
        assert recovery["PointInTimeRecoveryEnabled"] is True
        assert properties["DeletionProtectionEnabled"] is True
        assert properties["BillingMode"] == "PAY_PER_REQUEST"
        assert assembly.resources[name]["DeletionPolicy"] == "Retain"
        assert assembly.resources[name]["UpdateReplacePolicy"] == "Retain"


def test_what_holds_data_outlives_its_stack_and_no_failed_creation(assembly: Assembly) -> None:
    kinds = ("AWS::S3::Bucket", "AWS::Logs::LogGroup", "AWS::Glue::Database")
    for name in [name for kind in kinds for name in assembly.of_type(kind)]:
        assert assembly.resources[name]["DeletionPolicy"] == "RetainExceptOnCreate", name
        assert assembly.resources[name]["UpdateReplacePolicy"] == "Retain", name


def test_services_assume_their_roles_for_this_account_alone(assembly: Assembly) -> None:
    trusted = [
        statement
        for role in assembly.of_type("AWS::IAM::Role").values()
        for statement in role["AssumeRolePolicyDocument"]["Statement"]
        # Lambda's own calls to take a role name no account, and Scheduler's have its condition
        if statement["Principal"]["Service"] != "lambda.amazonaws.com"
    ]
    assert {statement["Principal"]["Service"] for statement in trusted} >= {
        *("firehose.amazonaws.com", "states.amazonaws.com", "emr-serverless.amazonaws.com")
    }
    for statement in trusted:
        assert "aws:SourceAccount" in statement["Condition"]["StringEquals"]


def test_the_topic_of_alarms_is_an_output(assembly: Assembly) -> None:
    value = assembly.templates["FairboxStorage"]["Outputs"]["AlarmTopicArn"]["Value"]
    assert plain(value) == "AlarmTopic"


def test_nothing_expires_from_the_outbox_and_its_partitions_can_split(assembly: Assembly) -> None:
    outbox = table(assembly, "Outbox")
    assert "TimeToLiveSpecification" not in outbox
    assert "LocalSecondaryIndexes" not in outbox


def test_the_outbox_is_streamed_with_both_images(assembly: Assembly) -> None:
    stream = table(assembly, "Outbox")["StreamSpecification"]
    assert stream["StreamViewType"] == "NEW_AND_OLD_IMAGES"


def test_the_outstanding_index_finds_shards_by_the_time_to_look_at_them(
    assembly: Assembly,
) -> None:
    outbox = table(assembly, "Outbox")
    (index,) = outbox["GlobalSecondaryIndexes"]
    assert index["IndexName"] == OUTSTANDING_INDEX
    assert keys(index["KeySchema"]) == {"HASH": BUCKET, "RANGE": LOOK_AT}
    assert index["Projection"]["ProjectionType"] == "INCLUDE"
    assert set(index["Projection"]["NonKeyAttributes"]) == {
        READY_COUNT,
        LATER_COUNT,
        READY_DEATHS,
        LATER_DEATHS,
        PURGED_DEAD,
    }
    types = {one["AttributeName"]: one["AttributeType"] for one in outbox["AttributeDefinitions"]}
    assert types == {PK: "S", SK: "S", BUCKET: "S", LOOK_AT: "N"}


def test_the_deliveries_expire_and_are_found_by_day_and_time(assembly: Assembly) -> None:
    deliveries = table(assembly, "Deliveries")
    assert deliveries["TimeToLiveSpecification"] == {
        "AttributeName": EXPIRES_AT,
        "Enabled": True,
    }
    (index,) = deliveries["GlobalSecondaryIndexes"]
    assert index["IndexName"] == DELIVERED_INDEX
    assert keys(index["KeySchema"]) == {"HASH": LEDGER_DAY, "RANGE": LEDGER_TIME}
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}


def test_the_batches_stream_what_they_become_and_only_their_tombstones_expire(
    assembly: Assembly,
) -> None:
    batches = table(assembly, "Batches")
    assert batches["StreamSpecification"]["StreamViewType"] == "NEW_IMAGE"
    assert batches["TimeToLiveSpecification"] == {
        "AttributeName": batch_codec.EXPIRES_AT,
        "Enabled": True,
    }
    live = Root(BATCH, "complete", 1, next_check=2, message=BATCH)
    assert batch_codec.EXPIRES_AT not in batch_codec.item_of(live)
    assert "LocalSecondaryIndexes" not in batches


def test_the_table_of_batches_is_the_one_that_the_library_s_tests_run_on(
    assembly: Assembly,
) -> None:
    made, wanted = table(assembly, "Batches"), batches_definition("Batches")
    for name in ("KeySchema", "GlobalSecondaryIndexes", "BillingMode"):
        assert made[name] == wanted[name], name
    types = sorted(made["AttributeDefinitions"], key=lambda one: str(one["AttributeName"]))
    assert types == sorted(wanted["AttributeDefinitions"], key=lambda one: one["AttributeName"])


def test_buckets_are_private_encrypted_and_closed_to_plain_http(assembly: Assembly) -> None:
    refused = {
        plain(policy["Bucket"]): [
            statement
            for statement in policy["PolicyDocument"]["Statement"]
            if statement["Effect"] == "Deny"
            and statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
        ]
        for policy in assembly.of_type("AWS::S3::BucketPolicy").values()
    }
    for name, properties in assembly.of_type("AWS::S3::Bucket").items():
        assert all(properties["PublicAccessBlockConfiguration"].values())
        assert "ServerSideEncryptionConfiguration" not in str(properties.get("Tags"))
        (rule,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
        assert refused[name.removeprefix("FairboxStorage/")]


def test_bodies_expire_only_once_their_message_is_delivered(assembly: Assembly) -> None:
    bodies = assembly.of_type("AWS::S3::Bucket")["FairboxStorage/Bodies"]
    rules = bodies["LifecycleConfiguration"]["Rules"]
    expiring = [rule for rule in rules if "ExpirationInDays" in rule]
    assert [rule["TagFilters"] for rule in expiring] == [[{"Key": "fairbox", "Value": "delivered"}]]


def test_the_archive_stays_readable_at_once_until_it_expires(assembly: Assembly) -> None:
    archive = assembly.of_type("AWS::S3::Bucket")["FairboxStorage/ArchiveBucket"]
    (ageing,) = [
        rule for rule in archive["LifecycleConfiguration"]["Rules"] if "Transitions" in rule
    ]
    assert ageing["ExpirationInDays"] == 730
    assert {one["StorageClass"]: one["TransitionInDays"] for one in ageing["Transitions"]} == {
        "STANDARD_IA": 30,
        "GLACIER_IR": 180,
    }


@pytest.mark.parametrize(("days", "classes"), [(1, []), (30, []), (31, ["STANDARD_IA"])])
def test_an_archive_that_is_kept_for_days_moves_nowhere_after_its_end(
    days: int, classes: list[str]
) -> None:
    rule = ageing(Config(archive_retention_days=days))
    assert rule.expiration is not None
    assert rule.expiration.to_days() == days
    assert [one.storage_class.value for one in rule.transitions or []] == classes


def test_half_uploaded_objects_are_removed_from_every_bucket(assembly: Assembly) -> None:
    for properties in assembly.of_type("AWS::S3::Bucket").values():
        rules = properties["LifecycleConfiguration"]["Rules"]
        assert any("AbortIncompleteMultipartUpload" in rule for rule in rules)


def test_the_archive_s_stream_writes_compressed_hours_encrypted_on_the_way(
    assembly: Assembly,
) -> None:
    ((name, stream),) = assembly.of_type("AWS::KinesisFirehose::DeliveryStream").items()
    assert name == "FairboxStorage/ArchiveMembers"
    assert stream["DeliveryStreamType"] == "DirectPut"
    key = stream["DeliveryStreamEncryptionConfigurationInput"]["KeyType"]
    assert key == "AWS_OWNED_CMK"
    target = stream["ExtendedS3DestinationConfiguration"]
    assert plain(target["BucketARN"]) == "ArchiveBucket"
    assert target["Prefix"] == ("archive/dt=!{timestamp:yyyy-MM-dd}/hour=!{timestamp:HH}/")
    assert target["ErrorOutputPrefix"].startswith("errors/!{firehose:error-output-type}/")
    # records are gzip members, and stay as they are
    assert target["CompressionFormat"] == "UNCOMPRESSED"
    assert target["FileExtension"] == ".json.gz"
    assert target["BufferingHints"] == {"SizeInMBs": 16, "IntervalInSeconds": 300}
    assert target["CloudWatchLoggingOptions"]["Enabled"] is True


def test_the_local_profile_leaves_nothing_behind_and_archives_soon(
    local_assembly: Assembly,
) -> None:
    for name, resource in local_assembly.resources.items():
        assert resource.get("DeletionPolicy") != "Retain", name
    assert table(local_assembly, "Outbox")["DeletionProtectionEnabled"] is False
    for stream in local_assembly.of_type("AWS::KinesisFirehose::DeliveryStream").values():
        hints = stream["ExtendedS3DestinationConfiguration"]["BufferingHints"]
        assert hints == {"SizeInMBs": 1, "IntervalInSeconds": 5}


def test_what_waits_for_the_archive_never_expires(assembly: Assembly) -> None:
    failures = assembly.of_type("AWS::S3::Bucket")["FairboxStorage/Failures"]
    rules = failures["LifecycleConfiguration"]["Rules"]
    expiring = [rule.get("Prefix") for rule in rules if "ExpirationInDays" in rule]
    assert expiring == ["aws/lambda/"]
    assert not WAITING.startswith(tuple(expiring))


def test_destroyed_buckets_are_emptied_and_kept_ones_never(
    assembly: Assembly, local_assembly: Assembly
) -> None:
    for found, emptied in ((assembly, False), (local_assembly, True)):
        buckets = found.of_type("AWS::S3::Bucket")
        handled = {
            plain(one["Properties"]["BucketName"])
            for one in found.resources.values()
            if one["Type"] == "Custom::S3AutoDeleteObjects"
        }
        assert handled == (
            {name.removeprefix("FairboxStorage/") for name in buckets} if emptied else set()
        )
        # the handler looks for the tag, which goes in the same update in which it would be called
        for bucket in buckets.values():
            tag = {"Key": "aws-cdk:auto-delete-objects", "Value": "true"}
            assert (tag in bucket["Tags"]) is emptied


def test_the_outbox_is_pre_warmed_only_where_settings_say_so(
    assembly: Assembly, checked: tuple[Assembly, object]
) -> None:
    assert "WarmThroughput" not in table(assembly, "Outbox")
    assert table(checked[0], "Outbox")["WarmThroughput"] == {
        "ReadUnitsPerSecond": 12000,
        "WriteUnitsPerSecond": 4000,
    }


def test_nothing_has_a_physical_name(assembly: Assembly) -> None:
    named = ("TableName", "BucketName", "QueueName", "FunctionName", "RoleName", "LogGroupName")
    for name, resource in assembly.resources.items():
        if resource["Type"] in {"AWS::Lambda::EventSourceMapping", "AWS::Lambda::Permission"}:
            continue
        for key in named:
            assert not isinstance(resource.get("Properties", {}).get(key), str), name
