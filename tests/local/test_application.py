"""The whole local application on a small assembly: engines, functions, routes, triggers."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from local.application import LocalApplication, Options
from local.workspace import LocalError, Ports, Workspace
from tests.local.assemblies import SAMPLE_KEY, sample_function, table, write_assembly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.engine, pytest.mark.e2e]


def sample_stacks() -> dict[str, dict[str, Any]]:
    queue = {
        "FifoQueue": True,
        "VisibilityTimeout": 90,
        "RedrivePolicy": {
            "deadLetterTargetArn": {"Fn::GetAtt": ["Dead", "Arn"]},
            "maxReceiveCount": 5,
        },
    }
    firehose = {
        "ExtendedS3DestinationConfiguration": {
            "BucketARN": {"Fn::GetAtt": ["Bucket", "Arn"]},
            "Prefix": "archive/dt=!{timestamp:yyyy-MM-dd}/hour=!{timestamp:HH}/",
            "CompressionFormat": "GZIP",
            "FileExtension": ".json.gz",
            "BufferingHints": {"IntervalInSeconds": 900},
        }
    }
    storage = {
        "Resources": {
            "Table": table(TimeToLiveSpecification={"AttributeName": "e", "Enabled": True}),
            "Queue": {"Type": "AWS::SQS::Queue", "Properties": queue},
            "Dead": {"Type": "AWS::SQS::Queue", "Properties": {"FifoQueue": True}},
            "Bucket": {"Type": "AWS::S3::Bucket"},
            "Archive": {"Type": "AWS::KinesisFirehose::DeliveryStream", "Properties": firehose},
            "Alarms": {"Type": "AWS::SNS::Topic"},
        },
        "Outputs": {
            name: {"Value": value, "Export": {"Name": f"Storage:{name}"}}
            for name, value in {
                "Table": {"Ref": "Table"},
                "Stream": {"Fn::GetAtt": ["Table", "StreamArn"]},
                "Archive": {"Ref": "Archive"},
            }.items()
        },
    }
    return {"Storage": storage, "App": {"Resources": app_resources()}}


def app_resources() -> dict[str, Any]:
    variables = {
        "TABLE": {"Fn::ImportValue": "Storage:Table"},
        "FAIRBOX_OUTBOX_TABLE": {"Fn::ImportValue": "Storage:Table"},
    }
    integration = {
        "IntegrationType": "AWS_PROXY",
        "IntegrationUri": {"Fn::GetAtt": ["Sample", "Arn"]},
        "PayloadFormatVersion": "2.0",
    }
    route = {
        "RouteKey": "POST /samples/{name}",
        "AuthorizationType": "AWS_IAM",
        "Target": {"Fn::Join": ["/", ["integrations", {"Ref": "Integration"}]]},
    }
    mapping = {
        "EventSourceArn": {"Fn::ImportValue": "Storage:Stream"},
        "FunctionName": {"Ref": "Sample"},
    }
    layer = {"Content": {"S3Bucket": "assets", "S3Key": SAMPLE_KEY}}
    return {
        "Role": {"Type": "AWS::IAM::Role"},
        "Layer": {"Type": "AWS::Lambda::LayerVersion", "Properties": layer},
        "Sample": sample_function(Environment={"Variables": variables}, Layers=[{"Ref": "Layer"}]),
        "Mapping": {"Type": "AWS::Lambda::EventSourceMapping", "Properties": mapping},
        "Api": {"Type": "AWS::ApiGatewayV2::Api", "Properties": {"ProtocolType": "HTTP"}},
        "Integration": {"Type": "AWS::ApiGatewayV2::Integration", "Properties": integration},
        "Route": {"Type": "AWS::ApiGatewayV2::Route", "Properties": route},
        "Stage": {"Type": "AWS::ApiGatewayV2::Stage", "Properties": {"StageName": "$default"}},
    }


class Recorder:
    """A trigger double that records its arguments and its running time."""

    name = "recorder"

    def __init__(self) -> None:
        self.resources: dict[str, tuple[str, dict[str, Any]]] = {}
        self.function_names: set[str] = set()
        self.heard: list[str] = []

    def attach(self, resources: Any, *_: Any, function_names: Any, **__: Any) -> Sequence[Any]:
        self.resources, self.function_names = dict(resources), set(function_names)
        return [self]

    def start(self) -> None:
        self.heard.append("start")

    def stop(self) -> None:
        self.heard.append("stop")


@pytest.fixture
def make(tmp_path: Path, engine_root: Workspace) -> Callable[..., LocalApplication]:
    def made(recorder: Recorder | None = None, **changes: Any) -> LocalApplication:
        folder = write_assembly(tmp_path / "cdk.out", changes.pop("stacks", sample_stacks()))
        attach = (recorder or Recorder()).attach
        return LocalApplication(folder, Options(workspace=engine_root, attach=attach), **changes)

    return made


def post(url: str, body: Any) -> tuple[int, Any, bytes]:
    asked = urllib.request.Request(  # noqa: S310 - loopback
        url, data=json.dumps(body).encode(), headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
        return answer.status, answer.headers, answer.read()


@pytest.mark.extended  # tests/e2e runs the whole application
def test_an_application_runs_from_its_templates(
    make: Callable[..., LocalApplication], engine_root: Workspace
) -> None:
    recorder = Recorder()
    with make(recorder) as app:
        status, headers, body = post(f"{app.api_url}/samples/a", {"sleep": 0})
        assert (status, body, headers["location"]) == (201, "ö".encode(), "/here")
        assert headers.get_all("set-cookie") == ["a=1", "b=2"]

        event = {"action": "put", "item": {"pk": {"S": "from the function"}}}
        done = app.invoker.invoke("Sample", json.dumps(event).encode())
        assert done.function_error is None
        found = app.clients["dynamodb"].scan(TableName=app.env["FAIRBOX_OUTBOX_TABLE"])
        assert found["Items"] == [{"pk": {"S": "from the function"}}]

        queue = app.clients["sqs"].get_queue_attributes(
            QueueUrl=app.resources["Queue"], AttributeNames=["All"]
        )["Attributes"]
        assert (queue["FifoQueue"], queue["VisibilityTimeout"]) == ("true", "90")
        assert json.loads(queue["RedrivePolicy"])["maxReceiveCount"] == 5

        app.clients["firehose"].put_record(
            DeliveryStreamName=app.resources["Archive"], Record={"Data": b'{"a":1}\n'}
        )
        app.firehose.flush()
        bucket = app.resources["Bucket"]
        (written,) = app.clients["s3"].list_objects_v2(Bucket=bucket)["Contents"]
        content = app.clients["s3"].get_object(Bucket=bucket, Key=written["Key"])["Body"].read()
        assert gzip.decompress(content) == b'{"a":1}\n'
        assert written["Key"].startswith("archive/dt=2")

        mapping = recorder.resources["Mapping"][1]
        assert "/stream/" in mapping["EventSourceArn"]
        assert mapping["FunctionName"] in recorder.function_names
        assert recorder.heard == ["start"]
    assert recorder.heard == ["start", "stop"]
    assert b"REPORT" in (engine_root.log / "Sample.log").read_bytes()


@pytest.mark.extended  # starts an application of its own
def test_an_application_ends_without_leaving_a_thread_or_process(
    make: Callable[..., LocalApplication],
) -> None:
    before = set(threading.enumerate())
    with make() as app:
        app.invoker.invoke("Sample", b"{}")
        pids = [*app.pids().values(), *app.invoker.pool("Sample").pids()]
        assert len(pids) == 3
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {name for name in left if not name.startswith("Thread-")}
    assert app.pids() == {}


@pytest.mark.extended  # starts an application of its own
def test_durable_tables_are_there_again(make: Callable[..., LocalApplication]) -> None:
    with make(durable=True) as app:
        table_name = app.resources["Table"]
        app.clients["dynamodb"].put_item(TableName=table_name, Item={"pk": {"S": "kept"}})
    with make(durable=True) as app:
        assert app.clients["dynamodb"].scan(TableName=table_name)["Count"] == 1


@pytest.mark.extended  # starts an application of its own
def test_a_given_engine_is_used_and_left_running_and_functions_may_reach_it_by_a_proxy(
    make: Callable[..., LocalApplication],
) -> None:
    with make() as owner:
        endpoint = owner.dynamodb.endpoint
        with make(dynamodb_endpoint=endpoint, proxy=lambda given: f"{given}/") as app:
            seen = json.loads(app.invoker.invoke("Sample", b'{"action":"environment"}').payload)
            assert seen["AWS_ENDPOINT_URL_DYNAMODB"] == f"{endpoint}/"
            assert set(app.pids()) == {"services"}
            assert app.env["AWS_ENDPOINT_URL_DYNAMODB"] == endpoint
        assert owner.clients["dynamodb"].list_tables()["TableNames"] == ["Storage-Table"]


def test_an_unknown_resource_or_trigger_stops_the_start(
    make: Callable[..., LocalApplication],
) -> None:
    stacks = sample_stacks()
    stacks["App"]["Resources"]["Machine"] = {"Type": "AWS::StepFunctions::StateMachine"}
    with pytest.raises(LocalError, match="Machine"), make(stacks=stacks):
        pass


@pytest.mark.extended  # starts an application of its own
def test_a_refused_trigger_ends_what_had_started(make: Callable[..., LocalApplication]) -> None:
    class Refusing(Recorder):
        def attach(self, *_: Any, **__: Any) -> Sequence[Any]:
            raise ValueError("Mapping: EventSourceArn is of a kind that is not known")

    app = make(Refusing())
    with pytest.raises(LocalError, match="Mapping"), app:
        pass
    assert app.pids() == {}


def test_a_taken_port_is_named(make: Callable[..., LocalApplication]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = Ports(api=taken.getsockname()[1])
        with pytest.raises(LocalError, match="FAIRBOX_LOCAL_API_PORT"), make(ports=ports):
            pass
