"""Every wildcard in the resources of a policy, each with its reason; an unused one fails."""

from __future__ import annotations

from typing import Final

from fairbox.model.deployment import FEEDS_PART, STACK_PARTS

_OBJECTS: Final = "keys of objects are made at run time; the bucket holds nothing else"
_FAILURES: Final = "Lambda makes the keys of the stream batches that it gives up"
_STREAMS: Final = "streams are listed by table: the ARN of one stream does not do for that action"
_EXPORTS: Final = "exports have ids that DynamoDB makes when they start"
_EXPORTED: Final = "DynamoDB makes the keys of what it exports, below this prefix"
_NONE: Final = "these actions know no resource"
_RUNS: Final = "runs have ids that EMR Serverless makes when they start"
_TABLES: Final = "the pipeline makes the tables of its own database"
_ROUTES: Final = "names and ids are made at run time; the API, the method and the route are named"
_DESCRIBED: Final = "what `fairbox doctor` describes: CloudFormation makes the ends of these names"
_FIGURES: Final = f"what `fairbox doctor` reads of figures: {_NONE}"
_CLOCKS: Final = ("Batches", "Delivery", "Monitoring")
_ARN: Final = "arn:AWS::Partition:{}:AWS::Region:AWS::AccountId:{}"
_API: Final = "arn:AWS::Partition:execute-api:AWS::Region:AWS::AccountId:HttpApi/$default"
_SOCKETS: Final = "arn:AWS::Partition:execute-api:AWS::Region:AWS::AccountId:WebSocketApi/feeds"
_CONNECTIONS: Final = "API Gateway makes the ids of connections"
_GLUE: Final = "arn:AWS::Partition:glue:AWS::Region:AWS::AccountId:table/fairbox/*"

_FUNCTIONS: Final = (
    "FairboxApi/ApiRole",
    "FairboxBatches/AckBatchesRole",
    "FairboxBatches/CascadeBatchesRole",
    "FairboxBatches/CleanOrphansRole",
    "FairboxDelivery/RelayRole",
    "FairboxDelivery/MarkDeliveredRole",
    "FairboxDelivery/SweepRole",
    "FairboxDelivery/DeliverShardRole",
    "FairboxDelivery/RepairRole",
    "FairboxFeeds/FeedsAuthorizeRole",
    "FairboxFeeds/FeedsConnectRole",
    "FairboxFeeds/FeedsPollRole",
    "FairboxFeeds/FeedsRingRole",
    "FairboxFeeds/FeedsVisitRole",
    "FairboxMonitoring/CountOutstandingRole",
)
_SPARK: Final = ("FairboxPipeline/SparkJobRole", "FairboxPipeline/SparkReplayRole")
_RUN: Final = "FairboxPipeline/DailyRunRole"

PATTERN: Final = "arn:aws:sqs:us-east-1:111122223333:orders-*"
_PATTERN: Final = "the settings name destinations by the beginning of their names"
_SMOKE: Final = "a smoke test makes its queues and the like, with names of this prefix"
_SMOKE_KINDS: Final = {"sqs": "", "sns": "", "events": "event-bus/", "kinesis": "stream/"}

REASONS: Final[dict[tuple[str, str], str]] = {
    **{(role, "*"): f"X-Ray, and Lambda's network interfaces: {_NONE}" for role in _FUNCTIONS},
    **{
        (f"FairboxDelivery/{name}Role", "Bodies/*"): _OBJECTS
        for name in ("Relay", "MarkDelivered", "DeliverShard", "Repair")
    },
    **{
        (f"FairboxDelivery/{name}Role", resource): reason
        for name in ("Relay", "MarkDelivered")
        for resource, reason in (("Outbox/stream/*", _STREAMS), ("Failures/*", _FAILURES))
    },
    **{
        (f"FairboxDelivery/{name}Role", _ARN.format(service, f"{kind}Fairbox-smoke-*")): _SMOKE
        for name in ("Relay", "DeliverShard")
        for service, kind in _SMOKE_KINDS.items()
    },
    **{(f"FairboxDelivery/{name}Role", PATTERN): _PATTERN for name in ("Relay", "DeliverShard")},
    ("FairboxApi/ApiRole", "Bodies/*"): _OBJECTS,
    ("FairboxFeeds/FeedsRingRole", "Feeds/stream/*"): _STREAMS,
    **{
        ("FairboxFeeds/FeedsVisitRole", f"{_SOCKETS}/{method}/@connections/*"): _CONNECTIONS
        for method in ("POST", "DELETE")
    },
    ("FairboxBatches/CascadeBatchesRole", "Batches/stream/*"): _STREAMS,
    ("FairboxBatches/CascadeBatchesRole", "Failures/*"): _FAILURES,
    ("FairboxDelivery/RepairRole", "Failures/aws/lambda/*"): _FAILURES,
    **{
        (f"FairboxDelivery/{name}Role", resource): _OBJECTS
        for name in ("MarkDelivered", "Repair")
        for resource in ("ArchiveBucket/archive/*", "Failures/archive/waiting/*")
    },
    ("FairboxStorage/ArchiveRole", "ArchiveBucket/*"): f"Firehose: {_OBJECTS}",
    **{
        (role, resource): reason
        for role in _SPARK
        for resource, reason in (
            ("*", f"logs:DescribeLogGroups: {_NONE}"),
            ("ArchiveBucket/archive/*", _OBJECTS),
            ("Warehouse/*", _OBJECTS),
            (_GLUE, _TABLES),
        )
    },
    ("FairboxPipeline/SparkReplayRole", "Bodies/*"): _OBJECTS,
    (_RUN, "*"): f"the delivery of a state machine's log: {_NONE}",
    (_RUN, "SparkApplication/jobruns/*"): _RUNS,
    (_RUN, "Outbox/export/*"): _EXPORTS,
    (_RUN, "Batches/export/*"): _EXPORTS,
    (_RUN, "Warehouse/exports/outbox/*"): _EXPORTED,
    (_RUN, "Warehouse/exports/batches/*"): _EXPORTED,
    **{
        (f"FairboxAccess/{user}", resource): _OBJECTS
        for user, resource in (
            ("Producer", "Bodies/*"),
            ("Consumer", "Bodies/*"),
            ("Operator", "Bodies/*"),
            ("Operator", "ArchiveBucket/*"),
            ("Reader", "Bodies/*"),
            ("Reader", "ArchiveBucket/*"),
        )
    },
    ("FairboxAccess/Reader", "*"): _FIGURES,
    **{
        ("FairboxAccess/Reader", _ARN.format(service, resource)): _DESCRIBED
        for service, resource in (
            *(("cloudformation", f"stack/Fairbox{part}/*") for part in (*STACK_PARTS, FEEDS_PART)),
            *(("lambda", f"function:Fairbox{part}-*") for part in (*STACK_PARTS[1:], FEEDS_PART)),
            ("lambda", "event-source-mapping:*"),
            *(("sqs", f"Fairbox{part}-*") for part in ("Batches", "Delivery", FEEDS_PART)),
            *(("events", f"rule/Fairbox{part}-*") for part in _CLOCKS),
            ("cloudwatch", "alarm:*"),
        )
    },
    **{
        (f"FairboxAccess/{user}", f"{_API}/{route}"): _ROUTES
        for user, route in (
            ("Producer", "GET/batches/*"),
            ("Producer", "POST/batches/*/items"),
            ("Producer", "POST/batches/*/seal"),
            ("Producer", "POST/topics/*/messages"),
            ("Producer", "POST/feeds/*"),
            ("Consumer", "POST/topics/*/receive"),
            ("Operator", "*/*"),
            ("Reader", "GET/*"),
        )
    },
}
"""By policy and resource."""

TRACES: Final = (
    *("xray:PutTraceSegments", "xray:PutTelemetryRecords"),
    *("xray:GetSamplingRules", "xray:GetSamplingTargets"),
)
"""The actions of tracing, allowed on `*` where it is switched on."""
INTERFACES: Final = (
    *("ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface"),
    *("ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets"),
    *("ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses"),
)
"""The actions of a function in a network, which Lambda asks for on `*`."""
WITHOUT_RESOURCE: Final = frozenset(
    [
        *("logs:CreateLogDelivery", "logs:DeleteLogDelivery", "logs:GetLogDelivery"),
        *("logs:ListLogDeliveries", "logs:UpdateLogDelivery", "logs:PutResourcePolicy"),
        *("logs:DescribeResourcePolicies", "logs:DescribeLogGroups", "cloudwatch:GetMetricData"),
    ]
)
"""The actions that may be allowed on `*`."""

PERMISSIONS: Final[dict[tuple[str, str], str]] = {
    (_RUN, "s3:PutObjectAcl"): "DynamoDB gives the files of an export to the bucket's owner",
    (_RUN, "logs:PutResourcePolicy"): "a state machine opens its log group to the delivery of logs",
    (_RUN, "iam:PassRole"): "the run starts jobs in the role of the jobs, and passes no other",
}
"""Actions that give rights to others, by policy."""
