"""The variables that the template gives each function: enough for every part that it uses."""

from __future__ import annotations

import ast
import inspect
import json
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session
from fairbox.batches.ack_messages import parse
from fairbox.runtime import function_application as wiring
from fairbox.settings import Settings
from fairbox.tables.stored_messages import BATCH_ITEM

from tests.functions.api_client import ROOT, load_handler, read_event
from tests.functions.running import Context, Functions, application_of
from tests.support.deployment import environment, function_specifications, variable

FOLDERS = sorted(path.parent.name for path in (ROOT / "functions").glob("*/handler.py"))
CLIENTS = {
    "api": {"dynamodb", "s3", "sqs"},
    "deliver_shard": {"dynamodb", "sqs"},
    "feeds_authorize": {"secretsmanager"},
    "feeds_poll": {"dynamodb", "secretsmanager"},
    "feeds_ring": {"dynamodb", "sqs"},
    "feeds_visit": {"dynamodb", "sqs", "apigatewaymanagementapi"},
    "mark_delivered": {"dynamodb", "firehose"},
    "repair": {"dynamodb", "firehose", "sqs"},
    "sweep": {"dynamodb", "sqs"},
}
"""The clients that nearly every event of a function needs; the others need DynamoDB's alone."""


def used_parts(function: str) -> list[str]:
    """Return the parts of the application that a handler's source names."""
    tree = ast.parse(Path(str(load_handler(function).__file__)).read_text())
    named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    kind = application_of(load_handler(function))
    parts = inspect.getmembers(kind, lambda m: isinstance(m, cached_property | property))
    return [name for name, _ in parts if name in named]


def make(part: Any) -> None:
    """Make what a part of the application leaves to its first use."""
    if type(part).__module__ != wiring.__name__:
        return
    for name, member in inspect.getmembers(type(part)):
        if isinstance(member, cached_property):
            getattr(part, name)


def test_every_function_of_the_project_is_in_the_template() -> None:
    assert sorted(function_specifications()) == FOLDERS


@pytest.mark.parametrize("function", FOLDERS)
def test_a_function_has_the_variables_of_every_part_that_it_uses(
    monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    functions = Functions(monkeypatch)
    kind = application_of(load_handler(function))
    application = kind(Settings(environment(function)), lambda s, **_: functions.clients[s])
    for part in used_parts(function):
        make(getattr(application, part))


@pytest.mark.parametrize("function", FOLDERS)
def test_a_process_that_lambda_starts_makes_its_clients_before_its_first_event(
    monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    made: list[str] = []
    create = Session.create_client

    def note(session: Session, service_name: str, *args: Any, **options: Any) -> Any:
        made.append(service_name)
        return create(session, service_name, *args, **options)

    monkeypatch.setattr(Session, "create_client", note)
    for name, value in {**environment(function), "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    load_handler(function)
    assert made == []  # where nobody waits for an event

    monkeypatch.setenv("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1")
    load_handler(function)
    assert set(made) == CLIENTS.get(function, {"dynamodb"})


def test_repair_marks_a_batch_with_a_delivered_batch_item(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = Functions(monkeypatch)
    event = read_event("stream_of_messages")
    functions.put_images(event["Records"])
    item = f"{functions.batch(1)}:0:0"
    removed = next(r for r in event["Records"] if r["eventName"] == "REMOVE")
    removed["dynamodb"]["OldImage"][BATCH_ITEM] = {"S": item}
    key = "aws/lambda/mark-delivered/shard/2026/11/21/batch.json"
    functions.s3.objects = {key: json.dumps({"payload": json.dumps(event)}).encode()}
    report = functions.invoke("repair", read_event("clock_repair"), Context(900_000))
    assert (report["replayed"], functions.s3.objects) == (len(event["Records"]), {})
    (message,) = functions.sqs.bodies(variable("FAIRBOX_ACK_QUEUE_URL"))
    assert parse(json.dumps(message)) == [item]
