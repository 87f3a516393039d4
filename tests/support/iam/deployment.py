"""A synthesised application as IAM sees it: principals with their statements, resources by ARN."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

from local.cloudformation.assembly import Assembly
from local.cloudformation.identities import (
    BUCKET,
    FIREHOSE,
    FUNCTION,
    MAPPING,
    QUEUE,
    SECRET,
    TABLES,
    Identities,
)
from local.cloudformation.synthesis import synthesise
from local.cloudformation.template import Template
from local.gateway.apis import find_apis
from local.workspace import Workspace
from tests.support.iam.recording import Seen
from tests.support.iam.requests import SOCKETS, Request, arn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Statement = dict[str, Any]

EXTERNAL: Final = {
    "sqs": arn("sqs", "destination"),
    "sns": arn("sns", "destination"),
    "events": arn("events", "event-bus/destination"),
    "kinesis": arn("kinesis", "stream/destination"),
    "lambda": arn("lambda", "function:destination"),
    "secretsmanager": arn("secretsmanager", "secret:webhooks-AbCdEf"),
    "ssm": arn("ssm", "parameter/webhooks"),
}
"""By service: the resource that stands for every one that is not Fairbox's own, as if the settings
`destinations` and `webhook_secrets` named it."""
SETTINGS: Final = {
    "pipeline": "false",
    "canary": "true",
    "feeds": "true",
    "encryption_key": "create",
    "destinations": ",".join(
        EXTERNAL[service] for service in ("sqs", "sns", "events", "kinesis", "lambda")
    ),
    "webhook_secrets": f"{EXTERNAL['secretsmanager']},{EXTERNAL['ssm']}",
}
"""The settings with which every function has all permissions that a setting can give it."""
SMOKE: Final = "Fairbox-smoke-"
_OWN: Final = (*TABLES, BUCKET, QUEUE, FIREHOSE, SECRET)
_KEY_USES: Final = {
    # https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html
    "s3:PutObject": ("GenerateDataKey",),
    "s3:GetObject": ("Decrypt",),
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-key-management.html
    "sqs:SendMessage": ("GenerateDataKey", "Decrypt"),
    "sqs:ReceiveMessage": ("Decrypt",),
    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/encryption.howitworks.html:
    # a caller's first request to a table decrypts the table's key, which is kept for minutes
    **dict.fromkeys(
        (
            f"dynamodb:{action}"
            for action in (
                *("GetItem", "BatchGetItem", "Query", "Scan", "GetRecords"),
                *("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "ConditionCheckItem"),
                *("PartiQLSelect", "PartiQLInsert", "PartiQLUpdate", "PartiQLDelete"),
            )
        ),
        ("Decrypt",),
    ),
}
"""The actions on the key of a resource that a request to it needs, by AWS's documentation."""


@dataclass(frozen=True)
class Deployment:
    """The principals and the resources of a cloud assembly."""

    folder: Path

    @cached_property
    def template(self) -> Template:
        """The stacks, with every reference resolved as in the local application."""
        identities = Identities(
            services_endpoint="https://sqs.test",
            api_endpoint="https://api.test",
            feeds_endpoint="wss://feeds.test",
        )
        template = Template(assembly=Assembly.load(self.folder), identities=identities)
        for name, table in template.of_type(*TABLES).items():
            stream = f"{template.attribute(name, 'Arn')}/stream/2026-11-20T00:00:00.000"
            identities.learn(table, "StreamArn", stream)
        return template

    @cached_property
    def functions(self) -> dict[str, list[Statement]]:
        """The statements of each function's role, by the name of its folder."""
        by_role: dict[str, list[Statement]] = {}
        for name in self.template.of_type("AWS::IAM::Policy"):
            policy = self.template.properties(name)
            for role in policy["Roles"]:
                by_role.setdefault(role, []).extend(policy["PolicyDocument"]["Statement"])
        return {
            name: by_role[function["Role"].rpartition("/")[2]]
            for name, function in self._functions.items()
        }

    @cached_property
    def users(self) -> dict[str, list[Statement]]:
        """The statements of each managed policy, by its name."""
        return {
            re.sub(r"[0-9A-F]{8}$", "", name): self.template.properties(name)["PolicyDocument"][
                "Statement"
            ]
            for name in self.template.of_type("AWS::IAM::ManagedPolicy")
        }

    @property
    def principals(self) -> dict[str, list[Statement]]:
        """Functions and users together."""
        return self.functions | self.users

    @cached_property
    def _functions(self) -> dict[str, dict[str, Any]]:
        """The properties of each function."""
        found = (self.template.properties(name) for name in self.template.of_type(FUNCTION))
        named = ((f.get("Environment", {}).get("Variables", {}), f) for f in found)
        service = "POWERTOOLS_SERVICE_NAME"
        return {v[service].removeprefix("fairbox-"): f for v, f in named if service in v}

    @cached_property
    def resources(self) -> dict[str, str]:
        """ARNs of tables, buckets, queues and streams, by name without its hash."""
        return {
            re.sub(r"[0-9A-F]{8}$", "", name): self.template.attribute(name, "Arn")
            for name in self.template.of_type(*_OWN)
        }

    @cached_property
    def arns(self) -> set[str]:
        """ARNs of the functions."""
        return {self.template.attribute(name, "Arn") for name in self.template.of_type(FUNCTION)}

    @cached_property
    def key(self) -> str | None:
        """The ARN of the key under which data lie; None: keys of AWS, which ask for nothing."""
        found = [self.template.attribute(k, "Arn") for k in self.template.of_type("AWS::KMS::Key")]
        return found[0] if found else None

    def short(self, resource: str) -> str:
        """Return an ARN with Fairbox's own resources by name, such as `Outbox/index/X`."""
        for name, whole in {**self.resources, "Key": self.key or "no key"}.items():
            if resource == whole or resource.startswith(f"{whole}/"):
                return name + resource.removeprefix(whole)
        return resource

    def owns(self, resource: str) -> bool:
        """Whether an ARN is that of a table, bucket, queue or stream of Fairbox."""
        return any(
            resource == one or resource.startswith(f"{one}/") for one in self.resources.values()
        )

    def asked(self, request: Request) -> Iterator[Request]:
        """Yield a request as this deployment meets it, and what it asks of the key.

        A resource that is not Fairbox's own is the one that the settings name for its service.
        Those of a smoke test are granted by their names.
        """
        if request.resource in self.arns or SMOKE in request.resource:
            yield request
            return
        if SOCKETS in request.resource:
            api = self.template.ref(find_apis(self.template, "WEBSOCKET")[0])
            yield replace(request, resource=request.resource.replace(SOCKETS, f"{api}/feeds"))
            return
        own = self.owns(request.resource)
        if not own and request.resource != "*" and request.service in EXTERNAL:
            yield replace(request, resource=EXTERNAL[request.service])
            return
        yield request
        if own and self.key is not None:
            region = request.resource.split(":")[3] or self.key.split(":")[3]
            via = ("kms:ViaService", (f"{request.service}.{region}.amazonaws.com",))
            for action in _KEY_USES.get(request.action, ()):
                yield Request(f"kms:{action}", self.key, (via,))

    def seen_of_lambda(self) -> list[Seen]:
        """Return the requests that Lambda itself makes in each function's role.

        Sources: AWS's managed policies AWSLambdaDynamoDBExecutionRole,
        AWSLambdaSQSQueueExecutionRole, AWSLambdaBasicExecutionRole and AWSXRayDaemonWriteAccess;
        for on-failure destinations https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html.
        """
        asked: dict[str, list[Request]] = {}
        for name, function in self._functions.items():
            group = function["LoggingConfig"]["LogGroup"]
            logs = arn("logs", f"log-group:{group}:log-stream:0")
            asked[name] = [Request(f"logs:{a}", logs) for a in ("CreateLogStream", "PutLogEvents")]
            if function.get("TracingConfig", {}).get("Mode") == "Active":
                traces = ("PutTraceSegments", "PutTelemetryRecords")
                asked[name] += [Request(f"xray:{action}") for action in traces]
        for mapping in self.template.of_type(MAPPING):
            properties = self.template.properties(mapping)
            (name,) = (
                n
                for n, f in self._functions.items()
                if properties["FunctionName"] == self._physical[n]
            )
            asked[name] += _reads(properties["EventSourceArn"])
            failures = properties.get("DestinationConfig", {}).get("OnFailure", {})
            if failures:
                bucket = failures["Destination"]
                asked[name] += [
                    Request("s3:PutObject", f"{bucket}/aws/lambda/0/0"),
                    Request("s3:ListBucket", bucket),
                ]
        return [Seen(who, one, "Lambda itself") for who, all_ in asked.items() for one in all_]

    @cached_property
    def _physical(self) -> dict[str, str]:
        """The physical name of each function."""
        return {
            name: self.template.physical(logical)
            for logical in self.template.of_type(FUNCTION)
            for name, function in self._functions.items()
            if self.template.properties(logical) == function
        }


def _reads(source: str) -> Iterator[Request]:
    """Yield the requests by which Lambda reads a stream or a queue."""
    if source.split(":")[2] == "dynamodb":
        for action in ("DescribeStream", "GetRecords", "GetShardIterator"):
            yield Request(f"dynamodb:{action}", source)
        yield Request("dynamodb:ListStreams", f"{source.partition('/stream/')[0]}/stream/*")
    else:
        for action in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes"):
            yield Request(f"sqs:{action}", source)


@cache
def full_deployment() -> Deployment:
    """Return the application with `SETTINGS`, synthesised if a source has changed."""
    digest = zlib.crc32(json.dumps(SETTINGS).encode())
    return Deployment(synthesise(Workspace(), context=SETTINGS, name=f"iam-{digest:08x}"))
