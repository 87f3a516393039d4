"""Creation of the template's tables, queues, topics, buckets and streams in the engines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from local.cloudformation.identities import (
    BUCKET,
    BUS,
    FIREHOSE,
    FUNCTION,
    HTTP_API,
    LAYER,
    MAPPING,
    PARAMETER,
    QUEUE,
    SECRET,
    TABLES,
    TOPIC,
)
from local.workspace import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local.cloudformation.template import Template

INVOKE_CONFIG = "AWS::Lambda::EventInvokeConfig"  # read by the triggers
TRIGGERS = (MAPPING, "AWS::Events::Rule")
ROUTES = (
    HTTP_API,
    "AWS::ApiGatewayV2::Authorizer",
    "AWS::ApiGatewayV2::Integration",
    "AWS::ApiGatewayV2::Route",
    "AWS::ApiGatewayV2::RouteResponse",
    "AWS::ApiGatewayV2::Stage",
)
MADE = (*TABLES, QUEUE, TOPIC, BUCKET, FIREHOSE, BUS, SECRET, PARAMETER)
WITHOUT_LOCAL_MEANING = frozenset(
    {
        "AWS::ApiGateway::Account",
        "AWS::ApplicationAutoScaling::ScalableTarget",
        "AWS::ApplicationAutoScaling::ScalingPolicy",
        "AWS::CDK::Metadata",
        "AWS::CloudFormation::WaitConditionHandle",
        "AWS::CloudWatch::Alarm",
        "AWS::CloudWatch::CompositeAlarm",
        "AWS::CloudWatch::Dashboard",
        "AWS::IAM::ManagedPolicy",
        "AWS::IAM::Policy",
        "AWS::IAM::Role",
        "AWS::KMS::Alias",
        "AWS::KMS::Key",
        "AWS::Lambda::Permission",
        "AWS::Lambda::Version",
        "AWS::Logs::LogGroup",
        "AWS::Logs::LogStream",
        "AWS::Logs::MetricFilter",
        "AWS::Logs::QueryDefinition",
        "AWS::Logs::ResourcePolicy",
        "AWS::S3::BucketPolicy",
        "AWS::SNS::TopicPolicy",
        "AWS::SQS::QueuePolicy",
        "AWS::XRay::Group",
        "AWS::XRay::SamplingRule",
        # Custom resources that empty a bucket, or set the retention of a log group.
        "Custom::LogRetention",
        "Custom::S3AutoDeleteObjects",
    }
)
_RUN_HERE = frozenset({*MADE, *TRIGGERS, *ROUTES, FUNCTION, LAYER, INVOKE_CONFIG})


def refuse_unknown(template: Template) -> None:
    """Check that every resource runs here or has no local meaning.

    Raises:
        LocalError: names each resource of a type in neither list.
    """
    unknown = [
        f"{name} ({resource.type})"
        for name, resource in template.resources.items()
        if resource.type not in _RUN_HERE and resource.type not in WITHOUT_LOCAL_MEANING
    ]
    if unknown:
        raise LocalError(f"the local application does not know: {', '.join(unknown)}")


def create_tables(template: Template, dynamodb: Any) -> None:
    """Create the tables, those with a stream first, and learn their streams' ARNs.

    A table that exists already (in a durable or external engine) is used if its keys are the same.

    Raises:
        LocalError: a table of that name has other keys.
    """
    resolved = {name: template.properties(name) for name in template.of_type(*TABLES)}
    for name in sorted(resolved, key=lambda name: "StreamSpecification" not in resolved[name]):
        table = template.physical(name)
        description = _create_table(dynamodb, table, resolved[name])
        stream = description.get("LatestStreamArn")
        if stream:
            template.identities.learn(template.resources[name], "StreamArn", stream)
        _enable_expiry(dynamodb, table, resolved[name])


def _create_table(dynamodb: Any, table: str, properties: Mapping[str, Any]) -> Mapping[str, Any]:
    request: dict[str, Any] = {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": properties["AttributeDefinitions"],
        "KeySchema": properties["KeySchema"],
    }
    for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        if properties.get(kind):
            request[kind] = [
                {key: index[key] for key in ("IndexName", "KeySchema", "Projection")}
                for index in properties[kind]
            ]
    if "StreamSpecification" in properties:
        view = properties["StreamSpecification"]["StreamViewType"]
        request["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": view}
    try:
        description = dynamodb.create_table(**request)["TableDescription"]
    except dynamodb.exceptions.ResourceInUseException:
        description = dynamodb.describe_table(TableName=table)["Table"]
        if description["KeySchema"] != request["KeySchema"]:
            raise LocalError(
                f"table {table} is there with other keys: use an empty engine"
            ) from None
        return dict(description)
    dynamodb.get_waiter("table_exists").wait(
        TableName=table, WaiterConfig={"Delay": 1, "MaxAttempts": 30}
    )
    return dict(description)


def _enable_expiry(dynamodb: Any, table: str, properties: Mapping[str, Any]) -> None:
    expiry = properties.get("TimeToLiveSpecification", {})
    if not expiry.get("Enabled"):
        return
    specification = {"Enabled": True, "AttributeName": expiry["AttributeName"]}
    try:
        dynamodb.update_time_to_live(TableName=table, TimeToLiveSpecification=specification)
    except ClientError as exc:
        if exc.response["Error"]["Code"] != "ValidationException":  # it is enabled already
            raise


def create_services(template: Template, clients: Mapping[str, Any]) -> None:
    """Create the buckets, queues, topics, buses, secrets and parameters in moto's server."""
    makers: dict[str, Callable[[str, Mapping[str, Any], Mapping[str, Any]], None]] = {
        BUCKET: _create_bucket,
        QUEUE: _create_queue,
        TOPIC: _create_topic,
        BUS: _create_bus,
        SECRET: _create_secret,
        PARAMETER: _create_parameter,
    }
    for kind, make in makers.items():
        for name in template.of_type(kind):
            make(template.physical(name), template.properties(name), clients)
    _redrive(template, clients["sqs"])


def _create_bucket(name: str, _: Mapping[str, Any], clients: Mapping[str, Any]) -> None:
    clients["s3"].create_bucket(Bucket=name)


_QUEUE_ATTRIBUTES = (
    "ContentBasedDeduplication",
    "DeduplicationScope",
    "DelaySeconds",
    "FifoQueue",
    "FifoThroughputLimit",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "ReceiveMessageWaitTimeSeconds",
    "VisibilityTimeout",
)


def queue_attributes(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes with which SQS makes a queue of the template, without its redrive."""
    return {key: _text(properties[key]) for key in _QUEUE_ATTRIBUTES if key in properties}


def _create_queue(name: str, properties: Mapping[str, Any], clients: Mapping[str, Any]) -> None:
    clients["sqs"].create_queue(QueueName=name, Attributes=queue_attributes(properties))


def _redrive(template: Template, sqs: Any) -> None:
    """Set the redrive policies once all queues exist."""
    for name in template.of_type(QUEUE):
        policy = template.properties(name).get("RedrivePolicy")
        if policy:
            sqs.set_queue_attributes(
                QueueUrl=template.ref(name), Attributes={"RedrivePolicy": json.dumps(policy)}
            )


def _create_topic(name: str, properties: Mapping[str, Any], clients: Mapping[str, Any]) -> None:
    keys = ("FifoTopic", "ContentBasedDeduplication")
    attributes = {key: _text(properties[key]) for key in keys if key in properties}
    clients["sns"].create_topic(Name=name, Attributes=attributes)


def _create_bus(name: str, _: Mapping[str, Any], clients: Mapping[str, Any]) -> None:
    clients["events"].create_event_bus(Name=name)


def _create_secret(name: str, properties: Mapping[str, Any], clients: Mapping[str, Any]) -> None:
    secrets = clients["secretsmanager"]
    given = properties.get("SecretString")
    generate = properties.get("GenerateSecretString", {})
    secret = given or secrets.get_random_password(**generate)["RandomPassword"]
    secrets.create_secret(Name=name, SecretString=secret)


def _create_parameter(name: str, properties: Mapping[str, Any], clients: Mapping[str, Any]) -> None:
    clients["ssm"].put_parameter(Name=name, Value=properties["Value"], Type=properties["Type"])


def _text(value: Any) -> str:
    """Return an attribute in the API's form: booleans in lower case, numbers as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)
