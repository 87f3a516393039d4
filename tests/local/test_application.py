"""The whole local application on a small assembly: engines, functions, routes, triggers."""

from __future__ import annotations

import json
import socket
import threading
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
    storage = {
        "Resources": {
            "Table": table(TimeToLiveSpecification={"AttributeName": "e", "Enabled": True}),
            "Queue": {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": 90}},
        },
        "Outputs": {
            name: {"Value": value, "Export": {"Name": f"Storage:{name}"}}
            for name, value in {
                "Table": {"Ref": "Table"},
                "Stream": {"Fn::GetAtt": ["Table", "StreamArn"]},
            }.items()
        },
    }
    return {"Storage": storage, "App": {"Resources": app_resources()}}


def app_resources() -> dict[str, Any]:
    variables = {
        "TABLE": {"Fn::ImportValue": "Storage:Table"},
        "FAIRBOX_OUTBOX_TABLE": {"Fn::ImportValue": "Storage:Table"},
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
    }


class Quiet:
    """A trigger that never fires."""

    name = "quiet"

    def attach(self, *_: Any, **__: Any) -> Sequence[Any]:
        return [self]

    def start(self) -> None:
        """Begin nothing."""

    def stop(self) -> None:
        """End nothing."""


@pytest.fixture
def make(tmp_path: Path, engine_root: Workspace) -> Callable[..., LocalApplication]:
    def made(trigger: Quiet | None = None, **changes: Any) -> LocalApplication:
        folder = write_assembly(tmp_path / "cdk.out", changes.pop("stacks", sample_stacks()))
        attach = (trigger or Quiet()).attach
        return LocalApplication(folder, Options(workspace=engine_root, attach=attach), **changes)

    return made


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
    class Refusing(Quiet):
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
