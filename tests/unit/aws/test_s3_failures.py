"""Given-up and set-aside stream records in S3."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from fairbox.aws.s3_failures import S3Failures
from fairbox.errors import NotAllowed, Unavailable, Unreadable

RECORDS = [{"eventID": "1", "dynamodb": {"SequenceNumber": "7"}}]
REFUSED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "any")
SLOW = ReadTimeoutError(endpoint_url="https://s3.test")


class FakeS3:
    """A bucket; `error` is raised by every call."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.error: Exception | None = None

    def get_paginator(self, _: str) -> FakeS3:
        return self

    def paginate(self, *, Bucket: str, Prefix: str) -> list[dict[str, Any]]:  # noqa: N803
        self._fail()
        stamp = datetime(2026, 11, 1, tzinfo=UTC)
        names = [k for k in self.objects if k.startswith(Prefix)]
        return [{"Contents": [{"Key": n, "LastModified": stamp}]} for n in names] + [{}]

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        self._fail()
        return {"Body": io.BytesIO(self.objects[Key])}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:  # noqa: N803
        self._fail()
        self.objects[Key] = Body

    def delete_object(self, *, Bucket: str, Key: str) -> None:  # noqa: N803
        self._fail()
        del self.objects[Key]

    def _fail(self) -> None:
        if self.error:
            raise self.error


def failures() -> tuple[S3Failures, FakeS3]:
    s3 = FakeS3()
    return S3Failures(lambda: s3, "failures"), s3


def test_what_is_set_aside_is_listed_read_and_forgotten_as_what_lambda_gave_up_is() -> None:
    given_up, s3 = failures()
    name = given_up.keep("KeyError", RECORDS)
    lambdas = "aws/lambda/1/shard/2026/11/21/x"
    s3.objects[lambdas] = json.dumps({"payload": json.dumps({"Records": RECORDS})}).encode()
    s3.objects["elsewhere"] = b"of an operator"
    assert set(given_up.names()) == {name, lambdas}
    assert set(given_up.names().values()) == {datetime(2026, 11, 1, tzinfo=UTC).timestamp()}
    assert (given_up.read(name).records, given_up.read(name).counted) == (RECORDS, True)
    assert (given_up.read(lambdas).records, given_up.read(lambdas).counted) == (RECORDS, False)
    given_up.done(name)
    assert set(s3.objects) == {lambdas, "elsewhere"}


def test_the_same_records_go_into_the_same_object() -> None:
    given_up, s3 = failures()
    assert given_up.keep("KeyError", RECORDS) == given_up.keep("KeyError", RECORDS)
    assert len(s3.objects) == 1


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"payload": 7}', b'{"payload": "{}"}', b'{"payload": "[1]"}',
             b'{"payload": "{\\"Records\\": 7}"}', b'{"payload": "{\\"Records\\": [7]}"}', b"\xff"]
)  # fmt: skip
def test_an_object_that_holds_no_records_is_unreadable(body: bytes) -> None:
    given_up, s3 = failures()
    s3.objects["aws/lambda/x"] = body
    with pytest.raises(Unreadable):
        given_up.read("aws/lambda/x")


@pytest.mark.parametrize(("error", "kind"), [(REFUSED, NotAllowed), (SLOW, Unavailable)])
def test_a_bucket_that_does_not_answer_is_unavailable(
    error: Exception, kind: type[Exception]
) -> None:
    given_up, s3 = failures()
    s3.error = error
    for call in (
        given_up.names,
        lambda: given_up.read("a"),
        lambda: given_up.done("a"),
        lambda: given_up.keep("a", RECORDS),
    ):
        with pytest.raises(kind):
            call()
