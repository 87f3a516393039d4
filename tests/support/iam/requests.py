"""The requests that IAM decides for calls of the AWS SDK: action, resource, condition keys.

An operation is not always the action of its name, and a call may ask for several: a transaction for
each of its items, a send of ten for one. Parts of keys that change from run to run are cut to their
shape, so that the requests of a whole test run are a few hundred.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from local.cloudformation.identities import ACCOUNT, REGION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Context = tuple[tuple[str, tuple[str, ...]], ...]

LEADING_KEYS: Final = "dynamodb:LeadingKeys"
RETURN_VALUES: Final = "dynamodb:ReturnValues"
ATTRIBUTES: Final = "dynamodb:Attributes"
SELECT: Final = "dynamodb:Select"
_IN_TRANSACTIONS: Final = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
    "Get": "GetItem",
}
_STATEMENT: Final = re.compile(
    r'\s*(SELECT|UPDATE|DELETE|INSERT)\b[^"]*"([^"]+)"(?:\."([^"]+)")?', re.IGNORECASE
)
_KEY_CONDITION: Final = re.compile(r"#?\w+\s*=\s*(:\w+)")
_OTHER_NAMES: Final = {
    "s3:HeadObject": "s3:GetObject",
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjects": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:CreateMultipartUpload": "s3:PutObject",
    "s3:UploadPart": "s3:PutObject",
    "s3:CompleteMultipartUpload": "s3:PutObject",
    "sqs:SendMessageBatch": "sqs:SendMessage",
    "sqs:DeleteMessageBatch": "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
    "sns:PublishBatch": "sns:Publish",
    "lambda:Invoke": "lambda:InvokeFunction",
}
SOCKETS: Final = "websocket-api/feeds"
"""The API and stage of the sockets of feeds, which calls name by their endpoint alone."""
_METHODS: Final = {"PostToConnection": "POST", "DeleteConnection": "DELETE"}
_WITHOUT_PERMISSION: Final = {"sts:GetCallerIdentity"}
_TELL_MISSING: Final = {"s3:GetObject", "s3:PutObjectTagging", "s3:GetObjectTagging"}
"""Actions to which S3 answers `AccessDenied` for a missing object, if the caller cannot list."""


@dataclass(frozen=True, order=True)
class Request:
    """One action on one resource (an ARN or `*`), and its condition keys, sorted."""

    action: str
    resource: str = "*"
    context: Context = ()

    @property
    def service(self) -> str:
        """The service's prefix in names of actions."""
        return self.action.partition(":")[0]

    def __str__(self) -> str:
        keys = "".join(f", {name} {' '.join(values)}" for name, values in self.context)
        return f"{self.action} on {self.resource}{keys}"


def requests_of(
    service: str, operation: str, parameters: Mapping[str, Any], region: str = REGION
) -> Iterator[Request]:
    """Yield the requests of one call.

    Args:
        service: boto3's name of the service.
        operation: the API's name of the operation, such as `PutItem`.
        parameters: as given to boto3.
        region: the client's Region, for which it signs.
    """
    if service == "dynamodb":
        yield from _dynamodb(operation, parameters, region)
        return
    action = f"{service}:{operation}"
    action = _OTHER_NAMES.get(action, action)
    if action in _WITHOUT_PERMISSION:
        return
    if service == "s3":
        yield from _s3(action, parameters)
    elif service == "apigatewaymanagementapi":
        path = f"{SOCKETS}/{_METHODS[operation]}/@connections/0"
        yield Request("execute-api:ManageConnections", arn("execute-api", path, region))
    else:
        resources = _RESOURCES.get(service)
        for resource in resources(parameters, region) if resources else ["*"]:
            yield Request(action, resource)


def arn(service: str, rest: str, region: str = REGION) -> str:
    """Return an ARN of this account; `rest` is returned if it is an ARN already."""
    return rest if rest.startswith("arn:") else f"arn:aws:{service}:{region}:{ACCOUNT}:{rest}"


def shape_of_key(key: str) -> str:
    """Cut a partition key to its shape: its lane, and how many parts follow."""
    first, *rest = key.split("#")
    return "#".join([first if first.isalpha() else "0", *("0" for _ in rest)])


def shape_of_path(key: str) -> str:
    """Cut an object's key to its shape: parts with a digit become `0`."""
    return "/".join("0" if re.search(r"\d", part) else part for part in key.split("/"))


def _dynamodb(operation: str, given: Mapping[str, Any], region: str) -> Iterator[Request]:
    match operation:
        case "TransactWriteItems" | "TransactGetItems":
            for item in given["TransactItems"]:
                ((verb, one),) = item.items()
                yield _items(_IN_TRANSACTIONS[verb], one, [one.get("Item") or one["Key"]], region)
        case "ExecuteStatement":
            yield _statement(given, region)
        case "BatchExecuteStatement" | "ExecuteTransaction":
            for one in given.get("Statements") or given["TransactStatements"]:
                yield _statement(one, region)
        case "BatchGetItem" | "BatchWriteItem":
            for table, one in given["RequestItems"].items():
                asked = {"TableName": table} | (one if "Keys" in one else {})
                yield _items(operation, asked, _keys(one), region)
        case "Query":
            placeholder = _KEY_CONDITION.search(given["KeyConditionExpression"])
            found = given["ExpressionAttributeValues"][placeholder[1]] if placeholder else {}
            yield _items(operation, given, [{"pk": found}], region)
        case _:
            yield _items(operation, given, [given.get("Item") or given.get("Key") or {}], region)


def _keys(one: Any) -> list[Mapping[str, Any]]:
    """Return the keys, or items, of one table in a batch of reads or of writes."""
    if "Keys" in one:
        return list(one["Keys"])
    return [
        w["PutRequest"]["Item"] if "PutRequest" in w else w["DeleteRequest"]["Key"] for w in one
    ]


def _items(
    action: str, given: Mapping[str, Any], keys: Iterable[Mapping[str, Any]], region: str
) -> Request:
    """Return the request for items of a table, or of one of its indexes."""
    context: dict[str, tuple[str, ...]] = {}
    named = {shape_of_key(key["pk"]["S"]) for key in keys if "S" in key.get("pk", {})}
    if named:
        context[LEADING_KEYS] = tuple(sorted(named))
    if "ReturnValues" in given:
        context[RETURN_VALUES] = (given["ReturnValues"],)
    if "ProjectionExpression" in given:
        names = given["ExpressionAttributeNames"]
        context[ATTRIBUTES] = tuple(
            sorted(names[n] for n in given["ProjectionExpression"].split(", "))
        )
        context[SELECT] = ("SPECIFIC_ATTRIBUTES",)
    resource = "*"
    if "TableName" in given:
        index = f"/index/{given['IndexName']}" if "IndexName" in given else ""
        name = given["TableName"]
        table = name if name.startswith("arn:") else f"table/{name}"
        resource = arn("dynamodb", table + index, region)
    return Request(f"dynamodb:{action}", resource, tuple(sorted(context.items())))


def _statement(one: Mapping[str, Any], region: str) -> Request:
    """Return the request of a PartiQL statement; its key is `"pk" = ?`, or `'pk': ?`."""
    text = one["Statement"]
    found = _STATEMENT.match(text)
    if found is None:
        raise ValueError(f"no PartiQL statement that is known here: {text}")
    written = "'pk': ?" if found[1].upper() == "INSERT" else '"pk" = ?'
    before, named, _ = text.partition(written)
    keys = [{"pk": one["Parameters"][before.count("?")]}] if named else []
    given = {"TableName": found[2]} | ({"IndexName": found[3]} if found[3] else {})
    return _items(f"PartiQL{found[1].title()}", given, keys, region)


def _s3(action: str, given: Mapping[str, Any]) -> Iterator[Request]:
    bucket = f"arn:aws:s3:::{given['Bucket']}" if "Bucket" in given else "*"
    if "Key" not in given:
        yield Request(action, bucket)
        return
    key = f"{bucket}/{shape_of_path(given['Key'])}"
    yield Request(action, key)
    if "Tagging" in given and action == "s3:PutObject":
        yield Request("s3:PutObjectTagging", key)
    if "ACL" in given:
        yield Request("s3:PutObjectAcl", key)
    if action in _TELL_MISSING:
        yield Request("s3:ListBucket", bucket)


def _queue(given: Mapping[str, Any], region: str) -> list[str]:
    name = given.get("QueueUrl") or given.get("QueueName") or "*"
    return [arn("sqs", name.rstrip("/").rpartition("/")[2], region)]


def _topic(given: Mapping[str, Any], region: str) -> list[str]:
    return [arn("sns", given.get("TopicArn") or given.get("TargetArn") or "*", region)]


def _buses(given: Mapping[str, Any], region: str) -> list[str]:
    names = {entry.get("EventBusName", "default") for entry in given.get("Entries", [])}
    whole = [name if name.startswith("arn:") else f"event-bus/{name}" for name in names]
    return sorted(arn("events", name, region) for name in whole)


def _of_name(service: str, kind: str, *parameters: str) -> Callable[..., list[str]]:
    """Return the reader of a resource that is named by its name or ARN."""

    def resources(given: Mapping[str, Any], region: str) -> list[str]:
        named = next((str(given[p]) for p in parameters if p in given), "*")
        whole = named.startswith("arn:") or named == "*"
        return [named if whole else arn(service, kind + named.removeprefix("/"), region)]

    return resources


_RESOURCES: Final[Mapping[str, Callable[..., list[str]]]] = {
    "sqs": _queue,
    "sns": _topic,
    "events": _buses,
    "kinesis": _of_name("kinesis", "stream/", "StreamARN", "StreamName"),
    "lambda": _of_name("lambda", "function:", "FunctionName"),
    "firehose": _of_name("firehose", "deliverystream/", "DeliveryStreamName"),
    "secretsmanager": _of_name("secretsmanager", "secret:", "SecretId"),
    "ssm": _of_name("ssm", "parameter/", "Name"),
    "kms": _of_name("kms", "key/", "KeyId"),
}
