"""Destinations in other regions: signatures and hosts as AWS sees them, by real clients."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from fairbox.destinations import DestinationFactory, make_clients
from fairbox.destinations.secrets import WebhookKeys
from fairbox.dispatch.ports import TAKEN
from fairbox.errors import NotConfigured
from fairbox.model.topics import Subscription

from tests.support.destination_examples import ACCOUNT, FixedClock, stored

if TYPE_CHECKING:
    from collections.abc import Callable

HOME = "us-east-1"
_SCOPE = re.compile(r"Credential=[^/]+/\d{8}/([^/]+)/([^/]+)/aws4_request")
_ANSWERS: dict[str, Any] = {
    "sqs": {"Successful": [{"Id": "0", "MessageId": "m", "MD5OfMessageBody": ""}], "Failed": []},
    "events": {"FailedEntryCount": 0, "Entries": [{"EventId": "e"}]},
    "kinesis": {"FailedRecordCount": 0, "Records": [{"SequenceNumber": "1", "ShardId": "s"}]},
    "lambda": {},
    "secretsmanager": {"SecretString": "{}"},
    "ssm": {"Parameter": {"Value": "{}"}},
}
_PUBLISHED = (
    b'<PublishBatchResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishBatchResult>'
    b"<Successful><member><Id>0</Id><MessageId>m</MessageId></member></Successful><Failed/>"
    b"</PublishBatchResult></PublishBatchResponse>"
)


class Aws:
    """Answers in place of AWS, and notes region and service of each signature, and the host."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.made: list[str] = []

    def session(self) -> Any:
        session = boto3.session.Session("test", "test", region_name=HOME)
        session.events.register("before-send", self._answer)  # type: ignore[arg-type] # it answers
        session.events.register("creating-client-class", lambda **_: self.made.append("client"))
        return session

    def _answer(self, request: Any, **_: Any) -> AWSResponse:
        authorization = request.headers["Authorization"]
        text = authorization.decode() if isinstance(authorization, bytes) else authorization
        found = _SCOPE.search(text)
        assert found is not None
        region, service = found.groups()
        self.asked.append((region, service, request.url.split("/")[2]))
        body = _PUBLISHED if service == "sns" else json.dumps(_ANSWERS[service]).encode()
        return AWSResponse(request.url, 200, HTTPHeaders(), _Raw(body))


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._left = body

    def stream(self, **_: Any) -> list[bytes]:
        return [self._left]

    def read(self, *_: Any) -> bytes:
        body, self._left = self._left, b""
        return body


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Aws:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return Aws()


def destinations(session: Callable[[], Any]) -> DestinationFactory:
    return DestinationFactory(
        clients=make_clients(session), clock=FixedClock(), add_to_topic=lambda _: []
    )


def addresses(region: str) -> dict[str, str]:
    return {
        "sqs": f"sqs:https://sqs.{region}.amazonaws.com/{ACCOUNT}/q",
        "sns": f"sns:arn:aws:sns:{region}:{ACCOUNT}:t",
        "events": f"events:arn:aws:events:{region}:{ACCOUNT}:event-bus/b",
        "kinesis": f"kinesis:arn:aws:kinesis:{region}:{ACCOUNT}:stream/s",
        "lambda": f"lambda:arn:aws:lambda:{region}:{ACCOUNT}:function:f",
    }


@pytest.mark.parametrize("region", [HOME, "eu-west-1"])
@pytest.mark.parametrize("service", addresses(HOME))
def test_a_call_is_signed_and_made_for_the_region_of_the_destination(
    aws: Aws, service: str, region: str
) -> None:
    subscription = Subscription("orders", "s", addresses(region)[service])
    outcomes = destinations(aws.session).open(subscription).send([stored()], 3)
    assert outcomes == [TAKEN]
    ((signed, name, host),) = aws.asked
    assert (signed, name) == (region, service)
    assert f".{region}.amazonaws.com" in host


def test_a_bus_by_its_name_is_the_environments(aws: Aws) -> None:
    destinations(aws.session).open(Subscription("orders", "s", "events:b")).send([stored()], 3)
    assert aws.asked == [(HOME, "events", f"events.{HOME}.amazonaws.com")]


@pytest.mark.parametrize(
    ("arn", "expected"),
    [
        (f"arn:aws:secretsmanager:eu-west-1:{ACCOUNT}:secret:hooks-AbCdEf", "secretsmanager"),
        (f"arn:aws:ssm:eu-west-1:{ACCOUNT}:parameter/hooks", "ssm"),
    ],
)
def test_keys_of_webhooks_are_read_where_they_are(aws: Aws, arn: str, expected: str) -> None:
    keys = WebhookKeys(make_clients(aws.session), [arn], FixedClock())
    with pytest.raises(NotConfigured):  # read, and empty
        keys(Subscription("orders", "s", "https://example.com/hook"))
    assert aws.asked == [("eu-west-1", expected, f"{expected}.eu-west-1.amazonaws.com")]


def test_there_is_one_client_a_service_and_region(aws: Aws) -> None:
    clients = make_clients(aws.session)
    assert clients("sqs") is clients("sqs", region=HOME)
    assert clients("sqs", region="eu-west-1") is clients("sqs", region="eu-west-1")
    assert clients("sqs") is not clients("sqs", region="eu-west-1")
    assert len(aws.made) == 2


def test_an_endpoint_of_the_environment_keeps_its_host_and_gets_the_region(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4566")
    opened = destinations(aws.session)
    local = f"sqs:http://127.0.0.1:4566/{ACCOUNT}/q"
    for address in (local, addresses("eu-west-1")["sqs"]):
        opened.open(Subscription("orders", "s", address)).send([stored()], 3)
    host = "127.0.0.1:4566"
    assert aws.asked == [(HOME, "sqs", host), ("eu-west-1", "sqs", host)]
