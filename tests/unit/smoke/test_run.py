"""The smoke test where nothing delivers, and where AWS refuses: it says so, and leaves nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError
from fairbox.errors import NotAllowed
from fairbox.smoke.resources import SmokeResources
from fairbox.smoke.run import DELAY_SECONDS, DESTINATIONS, Smoke, Step
from fairbox.testing.application import MemoryApplication
from moto import mock_aws

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SERVICES = ("sqs", "sns", "events", "kinesis")
KEYS = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}


@pytest.fixture
def clients() -> Iterator[Callable[[str], Any]]:
    with mock_aws():
        made = {n: boto3.client(n, **KEYS) for n in SERVICES}  # type: ignore[call-overload]
        yield made.__getitem__


class Denying:
    """A client of AWS that refuses one call."""

    def __init__(self, client: Any, call: str) -> None:
        self._client, self._call = client, call

    def __getattr__(self, name: str) -> Any:
        return self._deny if name == self._call else getattr(self._client, name)

    def _deny(self, **_: Any) -> Any:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, self._call)


def smoke(app: MemoryApplication, clients: Callable[[str], Any], **options: Any) -> Smoke:
    resources = SmokeResources(clients, "Fairbox-smoke-", app.clock)
    chosen: dict[str, Any] = {
        "new_id": app.ids.next,
        "run": "r1",
        "seconds": 20,
        "webhook": "https://hook.test/",
    } | options
    return Smoke(app.outbox, app.queue, app.batches, resources, app.clock, **chosen)


def left(app: MemoryApplication, clients: Callable[[str], Any]) -> list[Any]:
    return [
        *clients("sqs").list_queues().get("QueueUrls", []),
        *clients("sns").list_topics()["Topics"],
        *[b for b in clients("events").list_event_buses()["EventBuses"] if b["Name"] != "default"],
        *clients("kinesis").list_streams()["StreamNames"],
        *app.outbox.topics(),
    ]


def test_where_nothing_delivers_each_step_fails_and_says_where_its_message_is(
    clients: Callable[[str], Any],
) -> None:
    app = MemoryApplication()
    function = "arn:aws:lambda:us-east-1:123456789012:function:f"
    steps = {s.name: s for s in smoke(app, clients, function=function).steps()}
    assert steps.pop("clean-up") == Step("clean-up", "ok")
    assert set(steps) == {*DESTINATIONS, "delayed", "dead letter", "batch"}
    assert {s.status for s in steps.values()} == {"failed"}
    assert steps["sqs"].detail == "not seen after 20 s: it is outstanding, not tried"
    assert steps["batch"].detail == "not seen after 20 s: 0 of 10 items are acked"
    assert left(app, clients) == []


def test_what_only_the_caller_can_give_is_not_tried(clients: Callable[[str], Any]) -> None:
    run = smoke(MemoryApplication(), clients, webhook=None, seconds=1)
    details = {s.name: s.detail for s in run.steps() if s.status == "not tried"}
    assert details == {
        "https": "--webhook is not given",
        "lambda": "FAIRBOX_SWEEP_FUNCTION_ARN is not given",
    }


def test_a_kind_that_the_caller_may_not_make_fails_alone(clients: Callable[[str], Any]) -> None:
    app = MemoryApplication()

    def denied(service: str) -> Any:
        return Denying(clients(service), "create_topic" if service == "sns" else "")

    run = smoke(app, denied, kinds=("sns", "sqs"), seconds=1)
    first, *others = run.steps()
    assert (first.name, first.detail) == ("sns", "not allowed: CreateTopic: AccessDenied: no")
    assert others[-1] == Step("clean-up", "ok")
    assert left(app, clients) == []


def test_what_cannot_be_removed_is_named_and_the_rest_is_removed(
    clients: Callable[[str], Any],
) -> None:
    app = MemoryApplication()

    def denied(service: str) -> Any:
        return Denying(clients(service), "delete_topic" if service == "sns" else "")

    *_, last = smoke(app, denied, kinds=("sns",), seconds=1).steps()
    assert (last.name, last.status) == ("clean-up", "failed")
    assert "Fairbox-smoke-r1: " in last.detail
    assert "AccessDenied" in last.detail
    (topic,) = left(app, clients)
    assert topic["TopicArn"].endswith(":Fairbox-smoke-r1")


def test_without_a_queue_there_is_no_test_and_nothing_is_made(
    clients: Callable[[str], Any],
) -> None:
    app = MemoryApplication()
    with pytest.raises(NotAllowed, match="CreateQueue: AccessDenied"):
        list(smoke(app, lambda s: Denying(clients(s), "create_queue")).steps())
    assert left(app, clients) == []


def test_a_schedule_keeps_topics_and_queue_and_runs_again(clients: Callable[[str], Any]) -> None:
    app = MemoryApplication()
    for _ in range(2):
        run = smoke(app, clients, kinds=("sqs",), keep=True, seconds=1)
        assert [s.name for s in run.steps() if s.status == "ok"] == ["clean-up"]
        assert app.outbox.outstanding_count() == 0
        assert len(clients("sqs").list_queues()["QueueUrls"]) == 1
        assert {s.topic.name for s in app.outbox.topics()} == {
            f"smoke-r1-{kind}" for kind in ("sqs", "delayed", "dead", "batch")
        }


def test_a_delayed_message_that_comes_early_is_a_failure(clients: Callable[[str], Any]) -> None:
    app = MemoryApplication()
    run = smoke(app, clients, kinds=(), seconds=2)
    steps = run.steps()
    url = clients("sqs").get_queue_url
    sent = app.outbox.add_many

    def add(message: Any) -> Any:
        if message.delay:
            queue = url(QueueName="Fairbox-smoke-r1-arrived")["QueueUrl"]
            clients("sqs").send_message(QueueUrl=queue, MessageBody=message.id)
        return sent([message])[0]

    app.outbox.add = add  # type: ignore[method-assign, assignment] # delivers at once
    found = {s.name: s for s in steps}
    assert found["delayed"].status == "failed"
    assert f"before its {DELAY_SECONDS} s had passed" in found["delayed"].detail
