"""The canary: what failed is an error of the function, which its alarm hears."""

from __future__ import annotations

import boto3
import pytest
from moto import mock_aws

from tests.functions.running import Context, Functions


def test_a_deployment_that_delivers_nothing_is_an_error_that_names_the_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    functions = Functions(monkeypatch)
    with mock_aws():
        sqs = boto3.client("sqs", region_name="us-east-1")
        functions.clients["sqs"] = sqs
        with pytest.raises(Exception, match=r"sqs: not seen after .*; topic: not seen") as failed:
            functions.invoke("canary", {}, Context(300_000))
        (kept,) = sqs.list_queues()["QueueUrls"]
    assert type(failed.value).__name__ == "SmokeTestFailed"
    assert kept.endswith("/Fairbox-smoke-canary-arrived")
    assert functions.outbox.outstanding_count() == 0
