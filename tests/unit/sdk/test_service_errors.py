"""Answers of AWS as errors that say whether to make the call again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import boto3
import pytest
from botocore.config import Config
from botocore.stub import Stubber
from fairbox import (
    FairboxError,
    NotAllowed,
    Outbox,
    Throttled,
    Unavailable,
    UnknownTable,
)
from fairbox.aws.s3_bodies import S3Bodies
from fairbox.aws.sqs_queues import send_all
from fairbox.testing import ManualClock, MemoryDynamoDB
from fairbox.testing.refusals import client_error

from tests.support.outbox_fixture import Setup

if TYPE_CHECKING:
    from fairbox.errors import RetryWord

DENIED = (
    "User: arn:aws:sts::123456789012:assumed-role/shop/i-0 is not authorized to perform: "
    "{action} on resource: {quote}{resource}{quote} because no identity-based policy allows it"
)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ACCOUNT_ID", "123456789012")


def make_client(service: str) -> Any:
    once = Config(retries={"total_max_attempts": 1})
    return boto3.Session(region_name="eu-west-1").client(service, config=once)  # type: ignore[call-overload]


def raised(*answers: tuple[str, str, int]) -> FairboxError:
    """Return what a read of a topic raises after these answers: code, message and status."""
    client = make_client("dynamodb")
    clock, rng = ManualClock(), random.Random(1)
    outbox = Outbox(client, table="outbox", deliveries_table="d", clock=clock, rng=rng)
    with Stubber(client) as stub:
        for code, message, status in answers:
            stub.add_client_error("query", code, message, status)
        with pytest.raises(FairboxError) as caught:
            outbox.topic("orders")
        stub.assert_no_pending_responses()
    return caught.value


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ValidationException", Unavailable),
        ("RequestExpired", Unavailable),
        ("ExpiredTokenException", NotAllowed),
        ("UnrecognizedClientException", NotAllowed),
        ("AccessDeniedException", NotAllowed),
        ("ResourceNotFoundException", UnknownTable),
    ],
)
def test_what_cannot_succeed_is_called_once_and_says_so(
    code: str, kind: type[FairboxError]
) -> None:
    error = raised((code, "no", 400))
    assert isinstance(error, kind)
    assert (error.retry, error.retry_after) == ("never", None)


@pytest.mark.parametrize(
    ("code", "status", "kind", "retry"),
    [
        ("ThrottlingException", 400, Throttled, "after"),
        ("InternalServerError", 500, Unavailable, "same_token"),
        ("InternalFailure", 500, Unavailable, "same_token"),
        ("ServiceUnavailable", 503, Unavailable, "same_token"),
        ("502", 502, Unavailable, "same_token"),
    ],
)
def test_what_may_pass_is_called_again(
    code: str, status: int, kind: type[FairboxError], retry: RetryWord
) -> None:
    error = raised(*[(code, "busy", status)] * 8)
    assert type(error) is kind
    assert error.retry == retry
    assert error.retry_after is not None
    assert error.retry_after >= 1


def test_a_denial_names_action_resource_and_role() -> None:
    table = "arn:aws:dynamodb:eu-west-1:123456789012:table/outbox"
    text = DENIED.format(action="dynamodb:GetItem", resource=table, quote="")
    error = raised(("AccessDeniedException", text, 400))
    assert isinstance(error, NotAllowed)
    assert (error.action, error.resource) == ("dynamodb:GetItem", table)
    assert error.role == "arn:aws:sts::123456789012:assumed-role/shop/i-0"
    assert str(error) == (
        f"not allowed: dynamodb:GetItem on {table} for {error.role}: "
        "no identity-based policy allows it"
    )


def test_a_missing_table_is_named_with_region_and_account() -> None:
    error = raised(("ResourceNotFoundException", "Requested resource not found", 400))
    assert isinstance(error, UnknownTable)
    assert (error.tables, error.region, error.account) == (
        ("outbox",), "eu-west-1", "123456789012",
    )  # fmt: skip
    assert str(error) == ("there is no table 'outbox' in Region eu-west-1, account 123456789012")


def test_without_credentials_it_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    outbox = Outbox(make_client("dynamodb"), table="outbox", deliveries_table="d")
    with pytest.raises(NotAllowed, match="NoCredentialsError: Unable to locate") as caught:
        outbox.topic("orders")
    assert caught.value.retry == "never"


@pytest.mark.parametrize(
    "answer",
    [
        client_error("AccessDeniedException", "no", "BatchExecuteStatement"),
        {"Responses": [{"Error": {"Code": "AccessDenied", "Message": "no"}}]},
    ],
)
def test_a_bulk_that_is_denied_is_not_allowed_and_not_unwritten(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    setup = Setup(MemoryDynamoDB(ManualClock()))
    setup.topic()
    monkeypatch.setattr(setup.engine, "batch_execute_statement", Mock(side_effect=[answer]))
    with pytest.raises(NotAllowed, match="no"):
        setup.outbox.add_many([setup.message()])


@pytest.mark.parametrize("quote", ["", '"'])
def test_bodies_and_doorbells_that_are_denied(quote: str) -> None:
    s3, sqs = make_client("s3"), make_client("sqs")
    text = DENIED.format(action="s3:PutObject", resource="arn:aws:s3:::bodies/x", quote=quote)
    with Stubber(s3) as stub:
        stub.add_client_error("put_object", "AccessDenied", text, 403)
        with pytest.raises(NotAllowed, match="s3:PutObject on arn:aws:s3:::bodies/x for"):
            S3Bodies(s3, "bodies").put("x", b"", "text/plain")
    with Stubber(sqs) as stub:
        stub.add_client_error("send_message_batch", "AccessDenied", "no", 403)
        with pytest.raises(NotAllowed, match="sqs:SendMessageBatch: AccessDenied: no"):
            send_all(sqs, "https://sqs.eu-west-1.amazonaws.com/1/doorbells", [{"MessageBody": ""}])
