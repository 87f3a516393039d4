"""The simulation of IAM: requests of calls, decisions on them, and the verdict on a run."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.functions.api_client import ROOT
from tests.support.deployment import variable
from tests.support.iam.deployment import EXTERNAL, full_deployment
from tests.support.iam.exceptions import UNUSED
from tests.support.iam.plugin import KEPT_VARIABLE
from tests.support.iam.policy import Grant, NotUnderstood, decide
from tests.support.iam.recording import Seen
from tests.support.iam.requests import LEADING_KEYS, RETURN_VALUES, Request, arn, requests_of
from tests.support.iam.review import missing, unused, without_grant, without_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

TABLE = arn("dynamodb", "table/outbox")
PUT: dict[str, Any] = {"Effect": "Allow", "Action": "dynamodb:PutItem", "Resource": TABLE}
LANES = {"ForAllValues:StringLike": {LEADING_KEYS: ["ready#*", "config"]}}
NAMED = {"Null": {LEADING_KEYS: "false"}}
NONE = {"StringEqualsIfExists": {RETURN_VALUES: "NONE"}}
VIA_S3 = {"StringEquals": {"kms:ViaService": "s3.us-east-1.amazonaws.com"}}


def put(*keys: str, **context: str) -> Request:
    named = [(LEADING_KEYS, keys)] if keys else []
    other = [(name.replace("_", ":"), (value,)) for name, value in context.items()]
    return Request("dynamodb:PutItem", TABLE, tuple(sorted([*named, *other])))


@pytest.mark.parametrize(
    ("statement", "request_", "allowed"),
    [
        (PUT, put(), True),
        (PUT, Request("dynamodb:putitem", TABLE), True),
        (PUT, Request("dynamodb:GetItem", TABLE), False),
        (PUT, Request("dynamodb:PutItem", TABLE + "/index/x"), False),
        (PUT | {"Resource": ["other", TABLE]}, put(), True),
        (PUT | {"Resource": TABLE[:-3] + "*"}, put(), True),
        (PUT | {"Resource": TABLE[:-1] + "?"}, put(), True),
        (PUT | {"Resource": TABLE + "?"}, put(), False),
        (PUT | {"Resource": TABLE.upper()}, put(), False),
        (PUT | {"Action": ["s3:*", "dynamodb:Put*"]}, put(), True),
        (PUT | {"Condition": LANES}, put("ready#orders#0", "config"), True),
        (PUT | {"Condition": LANES}, put("ready#orders#0", "dead#orders#0"), False),
        (PUT | {"Condition": LANES}, put(), True),  # of no key, all values hold
        (PUT | {"Condition": LANES | NAMED}, put(), False),
        (PUT | {"Condition": LANES | NAMED}, put("config"), True),
        (PUT | {"Condition": NONE}, put(), True),
        (PUT | {"Condition": NONE}, put(dynamodb_ReturnValues="NONE"), True),
        (PUT | {"Condition": NONE}, put(dynamodb_ReturnValues="ALL_OLD"), False),
        (PUT | {"Condition": VIA_S3}, put(), False),
        (PUT | {"Condition": VIA_S3}, put(kms_ViaService="s3.us-east-1.amazonaws.com"), True),
        (PUT | {"Condition": {"ForAnyValue:StringEquals": {LEADING_KEYS: "config"}}}, put(), False),
        (PUT | {"Condition": {"ForAnyValue:StringEquals": {LEADING_KEYS: "config"}}},
         put("config", "x"), True),
    ],
)  # fmt: skip
def test_a_request_is_allowed_by_action_resource_and_conditions(
    statement: Mapping[str, Any], request_: Request, allowed: bool
) -> None:
    assert decide([statement], request_).allowed is allowed


def test_nothing_is_allowed_by_default_and_a_denial_wins_wherever_it_stands() -> None:
    assert not decide([], put()).allowed
    deny = PUT | {"Effect": "Deny", "Condition": {"StringLike": {RETURN_VALUES: "ALL*"}}}
    for statements in ([PUT, deny], [deny, PUT]):
        assert decide(statements, put()).grants == {Grant("dynamodb:PutItem", TABLE)}
        assert not decide(statements, put(dynamodb_ReturnValues="ALL_OLD")).allowed


@pytest.mark.parametrize(
    "more",
    [
        {"NotAction": "s3:*"},
        {"NotResource": "*"},
        {"Principal": "*"},
        {"Effect": "Perhaps"},
        {"Resource": "arn:aws:s3:::${aws:username}/*"},
        {"Condition": {"DateLessThan": {"aws:CurrentTime": "2030-01-01"}}},
        {"Condition": {"ForMostValues:StringEquals": {LEADING_KEYS: "config"}}},
        {"Condition": {"StringEquals": {LEADING_KEYS: "${aws:username}"}}},
        {"Condition": {"StringEquals": {LEADING_KEYS: "config"}}},  # of several values
    ],
)
def test_an_element_that_is_not_known_is_refused(more: Mapping[str, Any]) -> None:
    with pytest.raises(NotUnderstood):
        decide([{**PUT, **more}], put("config", "ready#orders#0"))


KEY = {"pk": {"S": "ready#orders#0#1"}, "sk": {"S": "x"}}
SHAPE = ((LEADING_KEYS, ("ready#0#0#0",)),)
BODY = {"Bucket": "bodies", "Key": "bodies/orders/0198f7a2"}


@pytest.mark.parametrize(
    ("service", "operation", "given", "expected"),
    [
        ("dynamodb", "TransactWriteItems",
         {"TransactItems": [{"Put": {"TableName": "outbox", "Item": KEY}},
                            {"ConditionCheck": {"TableName": "outbox", "Key": KEY}}]},
         [Request("dynamodb:PutItem", TABLE, SHAPE),
          Request("dynamodb:ConditionCheckItem", TABLE, SHAPE)]),
        ("dynamodb", "BatchExecuteStatement",
         {"Statements": [{"Statement": 'DELETE FROM "outbox" WHERE "pk" = ? AND "sk" = ?',
                          "Parameters": [KEY["pk"], KEY["sk"]]}]},
         [Request("dynamodb:PartiQLDelete", TABLE, SHAPE)]),
        ("dynamodb", "BatchWriteItem",
         {"RequestItems": {"outbox": [{"PutRequest": {"Item": KEY}},
                                      {"DeleteRequest": {"Key": KEY}}]}},
         [Request("dynamodb:BatchWriteItem", TABLE, SHAPE)]),
        ("dynamodb", "Query",
         {"TableName": "outbox", "IndexName": "Outstanding", "KeyConditionExpression": "#b = :b",
          "ExpressionAttributeValues": {":b": {"S": "config"}}},
         [Request("dynamodb:Query", TABLE + "/index/Outstanding", ((LEADING_KEYS, ("config",)),))]),
        ("dynamodb", "Scan", {"TableName": TABLE}, [Request("dynamodb:Scan", TABLE)]),
        ("s3", "PutObject", BODY, [Request("s3:PutObject", "arn:aws:s3:::bodies/bodies/orders/0")]),
        ("s3", "PutObjectTagging", BODY,
         [Request("s3:PutObjectTagging", "arn:aws:s3:::bodies/bodies/orders/0"),
          Request("s3:ListBucket", "arn:aws:s3:::bodies")]),
        ("s3", "ListObjectsV2", {"Bucket": "bodies"},
         [Request("s3:ListBucket", "arn:aws:s3:::bodies")]),
        ("sqs", "SendMessageBatch", {"QueueUrl": "https://sqs.test/1/now.fifo"},
         [Request("sqs:SendMessage", arn("sqs", "now.fifo"))]),
        ("sns", "PublishBatch", {"TopicArn": EXTERNAL["sns"]},
         [Request("sns:Publish", EXTERNAL["sns"])]),
        ("events", "PutEvents", {"Entries": [{"EventBusName": "orders"}, {}]},
         [Request("events:PutEvents", arn("events", "event-bus/default")),
          Request("events:PutEvents", arn("events", "event-bus/orders"))]),
        ("kinesis", "PutRecords", {"StreamARN": EXTERNAL["kinesis"]},
         [Request("kinesis:PutRecords", EXTERNAL["kinesis"])]),
        ("lambda", "Invoke", {"FunctionName": EXTERNAL["lambda"]},
         [Request("lambda:InvokeFunction", EXTERNAL["lambda"])]),
        ("firehose", "PutRecordBatch", {"DeliveryStreamName": "archive"},
         [Request("firehose:PutRecordBatch", arn("firehose", "deliverystream/archive"))]),
        ("ssm", "GetParameter", {"Name": "/fairbox/main"},
         [Request("ssm:GetParameter", arn("ssm", "parameter/fairbox/main"))]),
        ("kms", "Decrypt", {}, [Request("kms:Decrypt")]),
        ("sts", "GetCallerIdentity", {}, []),
        ("glue", "GetTable", {}, [Request("glue:GetTable")]),  # of what is not known, everything
    ],
)  # fmt: skip
def test_a_call_asks_for_each_action_on_each_resource(
    service: str, operation: str, given: Mapping[str, Any], expected: list[Request]
) -> None:
    assert list(requests_of(service, operation, given)) == expected


def test_a_call_to_another_region_asks_for_a_resource_there() -> None:
    (request,) = requests_of("sqs", "SendMessage", {"QueueUrl": "https://q/1/a"}, "eu-west-1")
    assert request.resource.split(":")[3] == "eu-west-1"


def test_a_missing_grant_is_named_with_function_action_resource_and_test() -> None:
    seen = Seen("relay", Request("lambda:InvokeFunction", arn("lambda", "function:f")), "a test")
    (line,) = missing(full_deployment(), [seen, seen])
    for part in ("relay", "lambda:InvokeFunction", EXTERNAL["lambda"], "a test"):
        assert part in line
    nobody = Seen("stranger", Request("s3:GetObject", "arn:aws:s3:::bodies/x"), "a test")
    assert list(missing(full_deployment(), [nobody]))


def test_the_key_is_asked_for_through_the_service_that_uses_it() -> None:
    deployment = full_deployment()
    body = Request("s3:PutObject", deployment.resources["Bodies"] + "/bodies/orders/0")
    _, on_key = deployment.asked(body)
    assert (on_key.action, on_key.resource) == ("kms:GenerateDataKey", deployment.key)
    assert decide(deployment.functions["relay"], on_key).allowed
    assert not decide(deployment.functions["sweep"], on_key).allowed


def test_an_unused_grant_and_a_reason_without_one_are_named() -> None:
    deployment = full_deployment()
    left = unused(deployment, [], ["sweep"])
    lines = list(without_reason(deployment, left, UNUSED))
    assert "sweep never does what it may: sqs:SendMessage on DoorbellsNow" in lines
    assert not [line for line in lines if "DescribeKey" in line]  # which has its reason
    stale = {"sweep": {"dynamodb:DeleteTable on Outbox": "none"}}
    (line,) = without_grant(deployment, left, stale)
    assert "DeleteTable" in line


CONFTEST = """
from tests.support.iam.plugin import IamSimulation
def pytest_configure(config):
    config.pluginmanager.register(IamSimulation(config), "iam")
"""
TEST = """
from tests.support.iam.recording import run_log
def test_of_a_call():
    run_log().note("sweep", "dynamodb", "{}", {{"TableName": "{}"}})
"""


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A project with one test, which makes one call; return a run of it with some arguments."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")

    def run(operation: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        text = TEST.format(operation, variable("FAIRBOX_OUTBOX_TABLE"))
        (tmp_path / "test_it.py").write_text(text)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *arguments],
            cwd=tmp_path,
            env={
                **os.environ,
                KEPT_VARIABLE: "",
                "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
            },
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.extended  # runs of pytest
@pytest.mark.parametrize("arguments", [["test_it.py"], ["-n", "1", "test_it.py"]])
def test_a_run_with_a_call_that_no_grant_allows_fails_and_names_it(
    project: Callable[..., subprocess.CompletedProcess[str]], arguments: list[str]
) -> None:
    done = project("DeleteItem", *arguments)
    assert done.returncode == 1
    assert "1 passed" in done.stdout
    (line,) = (line for line in done.stdout.splitlines() if "sweep may not" in line)
    assert "dynamodb:DeleteItem" in line
    assert line.endswith("test_it.py::test_of_a_call")


@pytest.mark.extended  # runs of pytest
@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        ([], True),
        (["-m", "not extended"], True),
        (["test_it.py"], False),
        (["-k", "call"], False),
        (["--deselect", "test_other.py"], False),
    ],
)
def test_an_unused_grant_fails_a_whole_run_only(
    project: Callable[..., subprocess.CompletedProcess[str]], arguments: list[str], whole: bool
) -> None:
    done = project("GetItem", *arguments)
    assert done.returncode == whole, done.stdout + done.stderr
    assert ("sweep never does what it may: sqs:SendMessage" in done.stdout) is whole
