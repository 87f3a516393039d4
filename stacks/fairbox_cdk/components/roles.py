"""Policies of producers, consumers, operators and readers: one set of statements each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from fairbox.model.deployment import FEEDS_PART, STACK_PARTS, parameter_of
from fairbox.tables import batch_records as batch_codec
from fairbox.tables.keys import CONFIG, PK, SK
from fairbox.tables.ledger import DELIVERED_INDEX
from fairbox.tables.shard_rows import LATER_COUNT, OUTSTANDING_INDEX, READY_COUNT

from fairbox_cdk.components.nag import wildcard_finding, wildcard_route_finding
from fairbox_cdk.components.permissions import PUBLISH_ITEMS, Permission

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_apigatewayv2 as apigateway
    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_s3 as s3
    from aws_cdk import aws_sqs as sqs

    from fairbox_cdk.feeds import FeedsStack

LANES: Final = ("ready#*", "later#*")
HINTS: Final = "hint#*"
DEAD: Final = "dead#*"
DEDUPLICATION: Final = "dedup#*"
SEGMENTS: Final = "segments#*"
WAITING_KEYS: Final = "waits#*"
TOPICS: Final = "t#*"  # of feeds
GROUPS: Final = "*#*"  # of every batch; its root has no `#`, so nobody ends it by this
STAGE: Final = "$default"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources of the policies, and the name of their deployment."""

    name: str
    outbox: dynamodb.ITable
    deliveries: dynamodb.ITable
    batches: dynamodb.ITable
    bodies: s3.IBucket
    archive: s3.IBucket
    doorbells: tuple[sqs.IQueue, sqs.IQueue]
    acks: sqs.IQueue
    http_api: apigateway.HttpApi
    feeds: FeedsStack | None


def producer(of: Resources) -> list[Permission]:
    """Publish, singly, in bulk and in transactions; list topics, and nothing else."""
    return [
        _read_variables(of),
        _rows("ReadTopics", of.outbox, ("Query",), CONFIG),
        # what a put replaces it could return
        _rows(
            "Publish",
            of.outbox,
            ("PutItem", "BatchWriteItem", "PartiQLInsert"),
            *LANES,
            returns_nothing=True,
        ),
        _rows("TellWhenDelayedMessagesAreDue", of.outbox, ("UpdateItem",), HINTS),
        _counts("CountTopicsWithALimit", of.outbox),
        _rows("Deduplicate", of.deliveries, ("PutItem",), DEDUPLICATION),
        _objects("StoreLargeBodies", ("PutObject",), of.bodies),
        _api(
            "PublishOverHttp",
            of,
            ("POST", "/topics/*/messages"),
            ("POST", "/batches"),
            ("POST", "/batches/*/items"),
            ("POST", "/batches/*/seal"),
            ("GET", "/batches/*"),
        ),
        *_publish_to_feeds(of),
    ]


def consumer(of: Resources, topic: str = "") -> list[Permission]:
    """Receive from pulled topics and settle; publish nothing, change no topic.

    With a topic, from that one, through the library: routes that settle are those of any topic.
    """
    over_http = _api(
        "ReceiveOverHttp",
        of,
        ("POST", "/topics/*/receive"),
        ("POST", "/acks"),
        ("POST", "/nacks"),
        ("POST", "/extensions"),
        ("POST", "/releases"),
        ("POST", "/batches/acks"),
        ("POST", "/batches/fails"),
    )
    return [
        _read_variables(of),
        _rows("ReadTopics", of.outbox, ("Query", "GetItem"), CONFIG),
        _rows(
            "ReceiveAndSettle",
            of.outbox,
            (
                "Query",
                "GetItem",
                "BatchGetItem",
                "UpdateItem",
                "DeleteItem",
                "BatchWriteItem",
                "PartiQLUpdate",
                "PartiQLDelete",
            ),
            *_of_topic(topic, *LANES, HINTS),
        ),
        _rows("Bury", of.deliveries, ("PutItem", "UpdateItem"), *_of_topic(topic, DEAD)),
        _rows(
            "ReturnInTime",
            of.deliveries,
            ("Query", "PartiQLInsert"),
            *_of_topic(topic, SEGMENTS),
        ),
        _rows(
            "KeepWaitingKeys",
            of.deliveries,
            ("Query", "BatchGetItem", "PutItem", "UpdateItem", "DeleteItem"),
            *_of_topic(topic, WAITING_KEYS),
        ),
        # in the transaction that buries the message which carries the item
        _rows("FailItems", of.batches, ("PutItem",), GROUPS),
        _statement("ReadBatches", _dynamodb("GetItem"), of.batches.table_arn),
        _statement("AckItems", ("sqs:SendMessage",), of.acks.queue_arn),
        _objects("ReadLargeBodies", ("GetObject",), of.bodies),
        *([] if topic else [over_http]),
    ]


def _of_topic(topic: str, *partitions: str) -> list[str]:
    """Return partitions of all topics (`ready#*`), or those of one topic among them."""
    return [one.replace("#", f"#{topic}#") if topic else one for one in partitions]


def operator(of: Resources) -> list[Permission]:
    """All operations of the library on the items of the tables; no change of the tables.

    What `fairbox doctor` asks is in the policy of readers, for IAM bounds the length of a policy.
    """
    return [
        _read_variables(of),
        _statement("Operate", _dynamodb(*_READS, "Scan", *_WRITES), of.outbox.table_arn),
        _statement(
            "KeepDeliveries",
            _dynamodb(
                *_READS, "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "PartiQLInsert"
            ),
            of.deliveries.table_arn,
        ),
        # an item is changed by a put under a condition, and deleted with its batch
        _statement(
            "KeepBatches",
            _dynamodb(*_READS, "PutItem", "BatchWriteItem", "ConditionCheckItem"),
            of.batches.table_arn,
        ),
        _statement("ReadIndexes", _dynamodb("Query"), *_indexes(of)),
        _objects("KeepLargeBodies", ("GetObject", "PutObject", "PutObjectTagging"), of.bodies),
        _objects("ReadTheArchive", ("GetObject",), of.archive),
        _statement("ListBuckets", ("s3:ListBucket",), of.bodies.bucket_arn, of.archive.bucket_arn),
        _statement("Ring", ("sqs:SendMessage",), *(queue.queue_arn for queue in of.doorbells)),
        _statement("AckItems", ("sqs:SendMessage",), of.acks.queue_arn),
        _api("OperateOverHttp", of, ("*", "/*")),
        *_keep_feeds(of),
    ]


def token_issuer(of: Resources) -> list[Permission]:
    """Make tokens for clients of feeds: who holds one may read what it names."""
    return [
        _read_variables(of),
        *_make_tokens(of),
        _api("MakeTokensOverHttp", of, ("POST", "/feed-tokens")),
    ]


def reader(of: Resources) -> list[Permission]:
    """Read everything, including bodies and archive; change nothing."""
    return [
        _read_variables(of),
        _statement("ReadMessages", _dynamodb(*_READS, "Scan", *_DESCRIPTIONS), of.outbox.table_arn),
        _statement("ReadDeliveries", _dynamodb(*_READS, *_DESCRIPTIONS), of.deliveries.table_arn),
        _statement(
            "ReadBatches",
            _dynamodb("GetItem", "BatchGetItem", *_DESCRIPTIONS),
            of.batches.table_arn,
        ),
        _statement("ReadIndexes", _dynamodb("Query"), *_indexes(of)),
        _objects("ReadBodiesAndArchive", ("GetObject",), of.bodies, of.archive),
        _statement("ListBuckets", ("s3:ListBucket",), of.bodies.bucket_arn, of.archive.bucket_arn),
        *_read_feeds(of),
        _api("ReadOverHttp", of, ("GET", "/*")),
        *_examine(of),
    ]


def _publish_to_feeds(of: Resources) -> list[Permission]:
    """Publish to topics of feeds, whose newest messages are read for that."""
    if of.feeds is None:
        return []
    return [
        _rows("ReadFeeds", of.feeds.table, ("GetItem",), CONFIG),
        _rows("PublishToFeeds", of.feeds.table, ("Query", "PutItem", "UpdateItem"), TOPICS),
        _api("PublishToFeedsOverHttp", of, ("POST", "/feeds/*")),
    ]


def _read_feeds(of: Resources) -> list[Permission]:
    """Read feeds and their topics, but no connections of clients."""
    if of.feeds is None:
        return []
    return [
        _rows("ReadFeeds", of.feeds.table, ("GetItem", "Query"), CONFIG, TOPICS),
        _statement("DescribeFeeds", _dynamodb(*_DESCRIPTIONS), of.feeds.table.table_arn),
    ]


def _keep_feeds(of: Resources) -> list[Permission]:
    if of.feeds is None:
        return []
    arn = of.feeds.table.table_arn
    actions = _dynamodb(*PUBLISH_ITEMS, "DeleteItem")
    return [_statement("KeepFeeds", actions, arn), *_make_tokens(of)]


def _make_tokens(of: Resources) -> list[Permission]:
    if of.feeds is None:
        return []
    arn = of.feeds.tokens.secret_arn
    return [_statement("MakeTokens", ("secretsmanager:GetSecretValue",), arn)]


def _read_variables(of: Resources) -> Permission:
    """Read the names of the resources, as `FAIRBOX_STACK` asks for."""
    arn = f"arn:{Aws.PARTITION}:ssm:{Aws.REGION}:{Aws.ACCOUNT_ID}:parameter{parameter_of(of.name)}"
    return _statement("ReadVariables", ("ssm:GetParameter",), arn)


def _examine(of: Resources) -> list[Permission]:
    """Requests of `fairbox doctor` beside the tables: descriptions of resources, and figures."""
    feeds = () if of.feeds is None else (FEEDS_PART,)
    return [
        _describe(
            "Stacks",
            "cloudformation",
            [f"stack/{of.name}{part}/*" for part in (*STACK_PARTS, *feeds)],
            ("DescribeStacks", "ListStackResources"),
        ),
        _describe(
            "Functions",
            "lambda",
            [f"function:{of.name}{part}-*" for part in (*STACK_PARTS[1:], *feeds)],
            ("GetFunctionConcurrency", "GetFunctionConfiguration"),
        ),
        _describe("Triggers", "lambda", ["event-source-mapping:*"], ("GetEventSourceMapping",)),
        _describe(
            "Queues",
            "sqs",
            [f"{of.name}{part}-*" for part in ("Batches", "Delivery", *feeds)],
            ("GetQueueAttributes", "GetQueueUrl"),
        ),
        _describe(
            "Schedules",
            "events",
            [f"rule/{of.name}{part}-*" for part in ("Batches", "Delivery", "Monitoring")],
            ("DescribeRule", "ListTargetsByRule"),
        ),
        # the action is decided on all alarms, whichever are asked about
        _describe("Alarms", "cloudwatch", ["alarm:*"], ("DescribeAlarms",)),
        Permission(
            _statement("ReadFigures", ("cloudwatch:GetMetricData",), "*").statement,
            (("AwsSolutions-IAM5[Resource::*]", "GetMetricData knows no resource."),),
        ),
    ]


def _describe(
    sid: str, service: str, resources: Sequence[str], actions: Sequence[str]
) -> Permission:
    """Describe resources by the beginning of their names, which CloudFormation makes.

    A name of a deployment has no hyphen, so no other one's resources begin like this.
    """
    arn = f"arn:{Aws.PARTITION}:{service}:{Aws.REGION}:{Aws.ACCOUNT_ID}"
    shown = f"arn:<AWS::Partition>:{service}:<AWS::Region>:<AWS::AccountId>"
    reason = "CloudFormation makes the ends of the names; only descriptions are read."
    return Permission(
        _statement(
            f"Describe{sid}",
            [f"{service}:{action}" for action in actions],
            *(f"{arn}:{resource}" for resource in resources),
        ).statement,
        tuple((f"AwsSolutions-IAM5[Resource::{shown}:{one}]", reason) for one in resources),
    )


_DESCRIPTIONS: Final = ("DescribeContinuousBackups", "DescribeTable", "DescribeTimeToLive")
_READS: Final = ("GetItem", "BatchGetItem", "Query")
_WRITES: Final = (
    "PutItem",
    "UpdateItem",
    "DeleteItem",
    "BatchWriteItem",
    "ConditionCheckItem",
    "PartiQLInsert",
    "PartiQLUpdate",
    "PartiQLDelete",
)


def _rows(
    sid: str,
    table: dynamodb.ITable,
    actions: Sequence[str],
    *partitions: str,
    returns_nothing: bool = False,
) -> Permission:
    """Actions on the items of a table under these partition keys.

    `ForAllValues` is true if a request names no key, so the statement requires one.
    """
    conditions: dict[str, dict[str, object]] = {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": list(partitions)},
        "Null": {"dynamodb:LeadingKeys": "false"},
    }
    if returns_nothing:
        conditions["StringEqualsIfExists"] = {"dynamodb:ReturnValues": "NONE"}
    return Permission(
        iam.PolicyStatement(
            sid=sid,
            actions=list(_dynamodb(*actions)),
            resources=[table.table_arn],
            conditions=conditions,
        )
    )


def _counts(sid: str, table: dynamodb.ITable) -> Permission:
    """Read the counts of shards: from items that hold more, only these attributes."""
    permission = _rows(sid, table, ("BatchGetItem",), LANES[0])
    attributes = [PK, SK, READY_COUNT, LATER_COUNT]
    for operator, key, value in (
        ("ForAllValues:StringEquals", "dynamodb:Attributes", attributes),
        ("StringEqualsIfExists", "dynamodb:Select", "SPECIFIC_ATTRIBUTES"),
        ("Null", "dynamodb:Attributes", "false"),
    ):
        permission.statement.add_condition(operator, {key: value})
    return permission


def _tables(of: Resources) -> tuple[str, ...]:
    return (of.outbox.table_arn, of.deliveries.table_arn, of.batches.table_arn)


def _indexes(of: Resources) -> tuple[str, ...]:
    return (
        f"{of.outbox.table_arn}/index/{OUTSTANDING_INDEX}",
        f"{of.deliveries.table_arn}/index/{DELIVERED_INDEX}",
        f"{of.batches.table_arn}/index/{batch_codec.OPEN_BATCHES_INDEX}",
    )


def _dynamodb(*actions: str) -> tuple[str, ...]:
    return tuple(f"dynamodb:{action}" for action in actions)


def _objects(sid: str, actions: Sequence[str], *buckets: s3.IBucket) -> Permission:
    """S3 actions on every object of these buckets."""
    reason = "Keys of objects are made at run time; the bucket holds nothing else."
    objects = [bucket.arn_for_objects("*") for bucket in buckets]
    return Permission(
        _statement(sid, [f"s3:{action}" for action in actions], *objects).statement,
        tuple((wildcard_finding(bucket, bucket.bucket_arn, "*"), reason) for bucket in buckets),
    )


def _api(sid: str, of: Resources, *routes: tuple[str, str]) -> Permission:
    """Call these routes of the HTTP API; `*` stands for a topic, or for any method or path."""
    api = of.http_api
    arns = [api.arn_for_execute_api(method=m, path=path, stage=STAGE) for m, path in routes]
    reason = "Names of topics are made at run time; the policy names the API and the route."
    return Permission(
        _statement(sid, ("execute-api:Invoke",), *arns).statement,
        tuple(
            (wildcard_route_finding(api, f"{STAGE}/{method}{path}"), reason)
            for method, path in routes
            if "*" in path
        ),
    )


def _statement(sid: str, actions: Sequence[str], *resources: str) -> Permission:
    return Permission(
        iam.PolicyStatement(sid=sid, actions=list(actions), resources=list(resources))
    )
