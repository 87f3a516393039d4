"""Narrow policy statements: the actions named, on the one resource meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aws_cdk import aws_iam as iam

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_kinesisfirehose as firehose
    from aws_cdk import aws_s3 as s3
    from aws_cdk import aws_sqs as sqs

READ_ITEMS: Final = ("GetItem", "BatchGetItem", "Query")
"""Reads by key; a scan is granted by name."""
WRITE_ITEMS: Final = ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "ConditionCheckItem")
"""Writes, alone, in batches and in transactions (which need no action of their own)."""

_SEND_ACTIONS: Final = {
    "sqs": ("sqs:SendMessage",),
    "sns": ("sns:Publish",),
    "events": ("events:PutEvents",),
    "kinesis": ("kinesis:PutRecord", "kinesis:PutRecords"),
    "lambda": ("lambda:InvokeFunction",),
    "kms": ("kms:GenerateDataKey", "kms:Decrypt"),
}
FAST_SERVICES: Final = ("sqs", "sns", "events", "kinesis", "kms")
"""Where the relay sends to by itself; functions are left to visits."""
ALL_SERVICES: Final = (*FAST_SERVICES, "lambda")


def _allow(actions: Iterable[str], *resources: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=list(actions), resources=list(resources))


def on_table(table: dynamodb.ITable, *actions: str) -> iam.PolicyStatement:
    """DynamoDB `actions` on the items of `table`, not on its indexes."""
    return _allow((f"dynamodb:{action}" for action in actions), table.table_arn)


def on_index(table: dynamodb.ITable, index: str) -> iam.PolicyStatement:
    """Query one index of `table`."""
    return _allow(["dynamodb:Query"], f"{table.table_arn}/index/{index}")


def on_objects(bucket: s3.IBucket, *actions: str) -> iam.PolicyStatement:
    """S3 `actions` on every object of `bucket`."""
    return _allow((f"s3:{action}" for action in actions), bucket.arn_for_objects("*"))


def list_bucket(bucket: s3.IBucket) -> iam.PolicyStatement:
    """List `bucket`: without it S3 answers for a missing object as for a forbidden one."""
    return _allow(["s3:ListBucket"], bucket.bucket_arn)


def send_to(*queues: sqs.IQueue) -> iam.PolicyStatement:
    """Send to each of `queues`."""
    return _allow(["sqs:SendMessage"], *(queue.queue_arn for queue in queues))


def put_records(stream: firehose.CfnDeliveryStream) -> iam.PolicyStatement:
    """Put batches of records to a Firehose stream."""
    return _allow(["firehose:PutRecordBatch"], stream.attr_arn)


def read_secrets(arns: Sequence[str]) -> list[iam.PolicyStatement]:
    """Read the values of the secrets named."""
    return [_allow(["secretsmanager:GetSecretValue"], *arns)] if arns else []


def deliver_to(arns: Sequence[str], services: Sequence[str]) -> list[iam.PolicyStatement]:
    """Deliver to those of `arns` whose service is among `services`: a statement a service."""
    by_service = {
        service: [arn for arn in arns if arn.split(":")[2] == service] for service in services
    }
    return [_allow(_SEND_ACTIONS[service], *own) for service, own in by_service.items() if own]
