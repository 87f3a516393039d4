"""Physical names, and the values of `Ref` and `Fn::GetAtt` by resource type."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from local.workspace import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.cloudformation.assembly import Resource

REGION = "us-east-1"
ACCOUNT = "123456789012"  # the account of moto's server
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}

TABLES = ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable")
QUEUE = "AWS::SQS::Queue"
TOPIC = "AWS::SNS::Topic"
BUCKET = "AWS::S3::Bucket"
FIREHOSE = "AWS::KinesisFirehose::DeliveryStream"
FUNCTION = "AWS::Lambda::Function"
LAYER = "AWS::Lambda::LayerVersion"
BUS = "AWS::Events::EventBus"
SECRET = "AWS::SecretsManager::Secret"  # noqa: S105 - a type's name
PARAMETER = "AWS::SSM::Parameter"
HTTP_API = "AWS::ApiGatewayV2::Api"
STAGE_TYPE = "AWS::ApiGatewayV2::Stage"
MAPPING = "AWS::Lambda::EventSourceMapping"

_NAMES: Mapping[str, tuple[str, int]] = {  # type -> property of the name, longest name
    "AWS::DynamoDB::Table": ("TableName", 255),
    "AWS::DynamoDB::GlobalTable": ("TableName", 255),
    QUEUE: ("QueueName", 80),
    TOPIC: ("TopicName", 256),
    BUCKET: ("BucketName", 63),
    FIREHOSE: ("DeliveryStreamName", 64),
    FUNCTION: ("FunctionName", 64),
    LAYER: ("LayerName", 140),
    BUS: ("Name", 256),
    SECRET: ("Name", 256),
    "AWS::Logs::LogGroup": ("LogGroupName", 512),
    "AWS::IAM::Role": ("RoleName", 64),
}
_ARNS: Mapping[str, str] = {
    "AWS::DynamoDB::Table": "dynamodb:{region}:{account}:table/{name}",
    "AWS::DynamoDB::GlobalTable": "dynamodb:{region}:{account}:table/{name}",
    QUEUE: "sqs:{region}:{account}:{name}",
    TOPIC: "sns:{region}:{account}:{name}",
    BUCKET: "s3:::{name}",
    FIREHOSE: "firehose:{region}:{account}:deliverystream/{name}",
    FUNCTION: "lambda:{region}:{account}:function:{name}",
    LAYER: "lambda:{region}:{account}:layer:{name}:1",
    BUS: "events:{region}:{account}:event-bus/{name}",
    SECRET: "secretsmanager:{region}:{account}:secret:{name}",
    "AWS::Logs::LogGroup": "logs:{region}:{account}:log-group:{name}:*",
    "AWS::IAM::Role": "iam::{account}:role/{name}",
}
_REF_IS_ARN = {TOPIC, LAYER, SECRET}


@dataclass(kw_only=True)
class Identities:
    """Names by rule, and attributes that only an engine knows (a stream's ARN), set by `learn`."""

    services_endpoint: str
    api_endpoint: str
    feeds_endpoint: str  # of the WebSocket API
    _learned: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def learn(self, resource: Resource, attribute: str, value: str) -> None:
        """Store an attribute that the engine returned."""
        self._learned[resource.stack, resource.logical_id, attribute] = value

    @staticmethod
    def name_property(kind: str) -> str:
        """Return the property that names a resource of this type."""
        return _NAMES[kind][0] if kind in _NAMES else "Name"

    def physical(self, resource: Resource, given: str | None = None) -> str:
        """Return the given name, or stack and logical id, shortened to the limit of the type."""
        if given is not None:
            return given
        longest = _NAMES.get(resource.type, ("", 128))[1]
        suffix = ".fifo" if resource.properties.get("FifoQueue") in (True, "true") else ""
        suffix = ".fifo" if resource.properties.get("FifoTopic") in (True, "true") else suffix
        name = f"{resource.stack}-{resource.logical_id}"
        if len(name) + len(suffix) > longest:
            digest = hashlib.sha256(name.encode()).hexdigest()[:8]
            name = f"{name[: longest - len(suffix) - 9]}-{digest}"
        if resource.type == BUCKET:
            name = name.lower()
        return name + suffix

    def arn(self, resource: Resource, given: str | None = None) -> str:
        """Return the resource's ARN."""
        pattern = _ARNS.get(resource.type, "local:{region}:{account}:{name}")
        name = self.physical(resource, given)
        return "arn:aws:" + pattern.format(region=REGION, account=ACCOUNT, name=name)

    def ref(self, resource: Resource, given: str | None = None) -> str:
        """Return the value of `Ref`."""
        if resource.type == QUEUE:
            return f"{self.services_endpoint}/{ACCOUNT}/{self.physical(resource, given)}"
        if resource.type in _REF_IS_ARN:
            return self.arn(resource, given)
        if resource.type == HTTP_API:
            return _short_id(resource)
        if resource.type == MAPPING:
            return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{resource.stack}/{resource.logical_id}"))
        return self.physical(resource, given)

    def attribute(self, resource: Resource, attribute: str, given: str | None = None) -> str:
        """Return the value of `Fn::GetAtt`.

        Raises:
            LocalError: the attribute is not known for this type.
        """
        learned = self._learned.get((resource.stack, resource.logical_id, attribute))
        if learned is not None:
            return learned
        name = self.physical(resource, given)
        if attribute in ("Arn", "TopicArn", "LayerVersionArn"):
            return self.arn(resource, given)
        if attribute in ("Name", "QueueName", "TopicName"):
            return name
        if attribute in ("Id", "ApiId", "QueueUrl", "Ref"):
            return self.ref(resource, given)
        if resource.type == HTTP_API and attribute == "ApiEndpoint":
            web_socket = resource.properties.get("ProtocolType") == "WEBSOCKET"
            return self.feeds_endpoint if web_socket else self.api_endpoint
        if resource.type == BUCKET and attribute in ("DomainName", "RegionalDomainName"):
            return f"{name}.s3.amazonaws.com"
        raise LocalError(
            f"attribute {attribute} of {resource.logical_id} ({resource.type}) is not known here"
        )


def _short_id(resource: Resource) -> str:
    return hashlib.sha256(f"{resource.stack}/{resource.logical_id}".encode()).hexdigest()[:10]
