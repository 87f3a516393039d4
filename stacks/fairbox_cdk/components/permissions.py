"""Narrow policy statements: the actions named, on the one resource meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

from fairbox_cdk.components.nag import own_wildcard_finding, wildcard_finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aws_cdk import aws_apigatewayv2 as apigateway
    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_kinesisfirehose as firehose
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_lambda as lambda_
    from aws_cdk import aws_s3 as s3
    from aws_cdk import aws_secretsmanager as secretsmanager
    from aws_cdk import aws_sqs as sqs

FAILURES_PREFIX: Final = "aws/lambda"
"""Prefix of the stream batches that Lambda gives up."""
READ_ITEMS: Final = ("GetItem", "BatchGetItem", "Query")
"""Reads by key; a scan is granted by name."""
WRITE_ITEMS: Final = ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem")
"""Writes, alone, in batches and in transactions (which need no action of their own)."""
SETTLE_ITEMS: Final = ("GetItem", "BatchGetItem", "PutItem")
"""On the batches' table: acks, fails, cascades; each write is a whole item under a condition."""
ERASE_ITEMS: Final = ("Query", "BatchWriteItem")
"""On the batches' table: the groups of a batch that has ended."""
FAIL_ITEMS: Final = ("GetItem", "PutItem")
"""On the batches' table: the item of a message that dies, one at a time."""
ANNOUNCE_ITEMS: Final = ("Query", "PutItem", "UpdateItem")
"""On the outbox: the message of a batch that ends, and its topic where it is missing."""
ADD_ITEMS: Final = ("PartiQLInsert",)
"""Messages added 25 a call, where they do not lie already."""
CLAIM_ITEMS: Final = ("PartiQLUpdate", "PartiQLDelete")
"""Claims and acknowledgements of pulled messages, 25 a call."""
FILE_ITEMS: Final = ("Query", "PartiQLInsert")
"""On the deliveries' table: segments of shards, which receives file and look at."""
PUBLISH_ITEMS: Final = ("GetItem", "Query", "PutItem", "UpdateItem")
"""On the feeds' table: a feed's row, and the rows of its topics."""

_SEND_ACTIONS: Final = {
    "sqs": ("sqs:SendMessage",),
    "sns": ("sns:Publish",),
    "events": ("events:PutEvents",),
    "kinesis": ("kinesis:PutRecords",),
    "lambda": ("lambda:InvokeFunction",),
    "kms": ("kms:GenerateDataKey", "kms:Decrypt"),
}
FAST_SERVICES: Final = ("sqs", "sns", "events", "kinesis", "kms")
"""Services that the relay sends to; functions are left to visits."""
ALL_SERVICES: Final = (*FAST_SERVICES, "lambda")

STATEMENT_CHARACTERS: Final = 4500
ARN_CHARACTERS: Final = 3
"""Of an ARN in a statement, beside its own: quotes and a comma."""


@dataclass(frozen=True)
class Permission:
    """A statement, with the findings of the rules on it that are accepted, each with its reason."""

    statement: iam.PolicyStatement
    accepted: tuple[tuple[str, str], ...] = ()


def _allow(actions: Iterable[str], *resources: str) -> Permission:
    return Permission(iam.PolicyStatement(actions=list(actions), resources=list(resources)))


def own_service(name: str) -> iam.ServicePrincipal:
    """The service `name`, where it acts for this account and no other."""
    condition = {"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
    return iam.ServicePrincipal(name, conditions=condition)


def on_table(table: dynamodb.ITable, *actions: str) -> Permission:
    """DynamoDB `actions` on the items of `table`, not on its indexes."""
    return _allow((f"dynamodb:{action}" for action in actions), table.table_arn)


def on_index(table: dynamodb.ITable, index: str) -> Permission:
    """Query one index of `table`."""
    return _allow(["dynamodb:Query"], f"{table.table_arn}/index/{index}")


def on_objects(bucket: s3.IBucket, *actions: str, below: str = "") -> Permission:
    """S3 `actions` on every object of `bucket`, or on those under the prefix `below`."""
    rest = f"{below.rstrip('/')}/*" if below else "*"
    permission = _allow((f"s3:{action}" for action in actions), bucket.arn_for_objects(rest))
    reason = "Keys of objects are made at run time; the bucket holds nothing else."
    return Permission(
        permission.statement, ((wildcard_finding(bucket, bucket.bucket_arn, rest), reason),)
    )


def list_bucket(bucket: s3.IBucket) -> Permission:
    """List `bucket`; without it S3 answers 403 for a missing object."""
    return _allow(["s3:ListBucket"], bucket.bucket_arn)


def on_exports(table: dynamodb.ITable) -> Permission:
    """Look at the exports of `table` to S3."""
    permission = _allow(["dynamodb:DescribeExport"], f"{table.table_arn}/export/*")
    reason = "Exports have ids that DynamoDB makes when they start."
    return Permission(
        permission.statement, ((wildcard_finding(table, table.table_arn, "export/*"), reason),)
    )


def send_to(*queues: sqs.IQueue) -> Permission:
    """Send to each of `queues`."""
    return _allow(["sqs:SendMessage"], *(queue.queue_arn for queue in queues))


def invoke(function: lambda_.IFunction) -> Permission:
    """Invoke `function`, and wait for its answer."""
    return _allow(["lambda:InvokeFunction"], function.function_arn)


def put_records(stream: firehose.CfnDeliveryStream) -> Permission:
    """Put batches of records to a Firehose stream."""
    return _allow(["firehose:PutRecordBatch"], stream.attr_arn)


def read_secrets(arns: Sequence[str]) -> list[Permission]:
    """Read the values of the secrets, and of the secure parameters, named."""
    actions = {"secretsmanager": "secretsmanager:GetSecretValue", "ssm": "ssm:GetParameter"}
    by_service = {
        action: [arn for arn in arns if arn.split(":")[2] == service]
        for service, action in actions.items()
    }
    return [_allow([action], *own) for action, own in by_service.items() if own]


def read_secret(secret: secretsmanager.ISecret) -> Permission:
    """Read the values of `secret`, today's and the one before."""
    return _allow(["secretsmanager:GetSecretValue"], secret.secret_arn)


def keep_sockets(api: apigateway.WebSocketApi, stage: str) -> Permission:
    """Post to the clients of `api`, of the same stack, and close their sockets."""
    parts = [f"{stage}/{method}/@connections/*" for method in ("POST", "DELETE")]
    arn = f"arn:{Aws.PARTITION}:execute-api:{Aws.REGION}:{Aws.ACCOUNT_ID}:{api.api_id}"
    shown = "arn:<AWS::Partition>:execute-api:<AWS::Region>:<AWS::AccountId>:"
    reason = "API Gateway makes the ids of connections."
    return Permission(
        _allow(["execute-api:ManageConnections"], *(f"{arn}/{part}" for part in parts)).statement,
        tuple(
            (own_wildcard_finding(api, api.api_id, before=shown, rest=part), reason)
            for part in parts
        ),
    )


def deliver_to(arns: Sequence[str], services: Sequence[str]) -> list[Permission]:
    """Deliver to those of `arns` whose service is among `services`; an ARN may be a pattern.

    The CDK moves whole statements of a role that is full to policies of their own. A policy holds
    6,144 characters: so a statement must fit one, with the conditions of others, which the CDK
    does not count.
    """
    return [
        _deliver_to(_SEND_ACTIONS[service], part)
        for service in services
        for part in _parts([arn for arn in arns if arn.split(":")[2] == service])
    ]


def deliver_to_one(service: str, arn: str, key: kms.IKey | None) -> list[iam.PolicyStatement]:
    """Return the statements to deliver to a resource of `service`, which a key may encrypt."""
    allowed = [_allow(_SEND_ACTIONS[service], arn)]
    if key is not None:
        allowed.append(_allow(_SEND_ACTIONS["kms"], key.key_arn))
    return [permission.statement for permission in allowed]


def _deliver_to(actions: Sequence[str], arns: Sequence[str]) -> Permission:
    reason = "The deployment's settings name the destinations of this pattern."
    patterns = [arn for arn in arns if arn.endswith("*")]
    accepted = tuple((f"AwsSolutions-IAM5[Resource::{arn}]", reason) for arn in patterns)
    return Permission(_allow(actions, *arns).statement, accepted)


def _parts(arns: Sequence[str]) -> list[list[str]]:
    """Return `arns` in parts of so many characters as fit a policy."""
    parts: list[list[str]] = []
    room = 0
    for arn in arns:
        room -= len(arn) + ARN_CHARACTERS
        if room < 0:
            parts.append([])
            room = STATEMENT_CHARACTERS - len(arn) - ARN_CHARACTERS
        parts[-1].append(arn)
    return parts


def deliver_to_smoke_test(prefix: str) -> list[Permission]:
    """Deliver to the queues, topics, buses and streams that a smoke test makes for its time."""
    kinds = {"sqs": "", "sns": "", "events": "event-bus/", "kinesis": "stream/"}
    return [
        _named(_SEND_ACTIONS[service], service, f"{kind}{prefix}*")
        for service, kind in kinds.items()
    ]


def keep_smoke_queues(prefix: str) -> Permission:
    """Make, read and remove the queues of a smoke test."""
    actions = (
        *("CreateQueue", "DeleteQueue", "GetQueueAttributes", "SetQueueAttributes"),
        *("ReceiveMessage", "DeleteMessage"),
    )
    return _named([f"sqs:{action}" for action in actions], "sqs", f"{prefix}*")


def _named(actions: Iterable[str], service: str, name: str) -> Permission:
    """Actions on what a smoke test makes in this account and region, by pattern of its name."""
    arn = f"arn:{Aws.PARTITION}:{service}:{Aws.REGION}:{Aws.ACCOUNT_ID}:{name}"
    shown = f"arn:<AWS::Partition>:{service}:<AWS::Region>:<AWS::AccountId>:{name}"
    reason = "A smoke test makes its queues and the like itself, with names of this prefix."
    permission = _allow(actions, arn)
    return Permission(permission.statement, ((f"AwsSolutions-IAM5[Resource::{shown}]", reason),))


def attach_to_network() -> Permission:
    """Make the network interfaces of a function in a network, as AWS's managed policy has it."""
    actions = ("CreateNetworkInterface", "DeleteNetworkInterface", "DescribeNetworkInterfaces")
    more = ("DescribeSubnets", "AssignPrivateIpAddresses", "UnassignPrivateIpAddresses")
    permission = _allow((f"ec2:{action}" for action in (*actions, *more)), "*")
    reason = "Lambda makes the interfaces, and asks for these actions on everything."
    return Permission(permission.statement, (("AwsSolutions-IAM5[Resource::*]", reason),))


def read_stream(table: dynamodb.ITable, stream: str, *, own: bool) -> list[Permission]:
    """Return Lambda's permissions to read `stream` of `table` for a function.

    `own`: the table is in the function's stack.
    """
    find = own_wildcard_finding if own else wildcard_finding
    listing = _allow(["dynamodb:ListStreams"], f"{table.table_arn}/stream/*")
    reason = "Streams are listed by table: the ARN of one stream does not do for that action."
    return [
        _allow(
            ["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"], stream
        ),
        Permission(listing.statement, ((find(table, table.table_arn, rest="stream/*"), reason),)),
    ]


def consume(queue: sqs.IQueue) -> Permission:
    """Return Lambda's permissions to read `queue` for a function."""
    actions = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
    return _allow((f"sqs:{action}" for action in actions), queue.queue_arn)
