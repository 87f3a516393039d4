"""Meanings of functions' answers, and refused properties of mappings."""

from __future__ import annotations

import re
from typing import Any

import pytest

from local.functions.invoker import InvokeResult
from local.triggers import QueueMapping, Schedule, StreamMapping
from local.triggers.answers import Failure, failed_messages, stream_failure
from tests.local.trigger_fakes import ERROR, OK, report

NUMBERS = ["11", "12", "13"]
STREAM: dict[str, Any] = {
    "EventSourceArn": "arn:aws:dynamodb:us-east-1:123456789012:table/t/stream/x",
    "FunctionName": "arn:aws:lambda:us-east-1:123456789012:function:relay",
    "StartingPosition": "TRIM_HORIZON",
}
QUEUE: dict[str, Any] = {
    "EventSourceArn": "arn:aws:sqs:us-east-1:123456789012:bells.fifo",
    "FunctionName": "deliver",
}
RULE: dict[str, Any] = {
    "ScheduleExpression": "rate(1 minute)",
    "Targets": [{"Id": "T", "Arn": "arn:aws:lambda:us-east-1:123456789012:function:sweep"}],
}
WHOLE = Failure()


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (OK, None),
        (InvokeResult(b"", None), None),
        (InvokeResult(b"{}", None), None),
        (InvokeResult(b'{"batchItemFailures": null}', None), None),
        (report(), None),
        (ERROR, Failure(function_error="Unhandled")),
        (report("12"), Failure(first=1, partial=True)),
        (report("13", "12"), Failure(first=1, partial=True)),
        (report("11"), Failure(first=0, partial=True)),
        # identifiers that cannot be read fail everything
        (report(""), WHOLE),
        (report(None), WHOLE),
        (report("12", None), WHOLE),
        (InvokeResult(b'{"batchItemFailures": [{"id": "12"}]}', None), WHOLE),
        # what else is malformed is lost in silence
        (report("99"), None),
        (report("99", "13"), Failure(first=2, partial=True)),
        (InvokeResult(b'{"batchItemFailures": "12"}', None), None),
        (InvokeResult(b'["12"]', None), None),
        (InvokeResult(b"not json", None), None),
    ],
)
def test_a_streams_answer_means_what_it_means_on_aws(
    result: InvokeResult, expected: Failure | None
) -> None:
    assert stream_failure(result, NUMBERS, report=True) == expected


def test_without_the_response_type_a_partial_answer_is_success() -> None:
    assert stream_failure(report("12"), NUMBERS, report=False) is None
    assert failed_messages(report("12"), NUMBERS, report=False) == set()


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (OK, set()),
        (InvokeResult(b"", None), set()),
        (report(), set()),
        (report("12"), {"12"}),
        (report("11", "13"), {"11", "13"}),
        (ERROR, set(NUMBERS)),
        (report("99"), set(NUMBERS)),
        (report(""), set(NUMBERS)),
        (report(None), set(NUMBERS)),
        (InvokeResult(b"not json", None), set(NUMBERS)),
    ],
)
def test_a_queues_answer_means_what_it_means_on_aws(
    result: InvokeResult, expected: set[str]
) -> None:
    assert failed_messages(result, NUMBERS, report=True) == expected


def test_a_stream_mapping_is_read_from_its_properties() -> None:
    mapping = StreamMapping.from_properties(
        STREAM
        | {
            "BatchSize": "50",
            "MaximumBatchingWindowInSeconds": 20,
            "ParallelizationFactor": 2,
            "MaximumRetryAttempts": 3,
            "MaximumRecordAgeInSeconds": 3600,
            "BisectBatchOnFunctionError": "true",
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
            "DestinationConfig": {"OnFailure": {"Destination": "arn:aws:s3:::given-up"}},
            "Tags": [],
        }
    )
    assert mapping.function == "relay"
    assert mapping.factor == 2
    assert mapping.report
    assert mapping.on_failure == "arn:aws:s3:::given-up"
    rules = mapping.rules
    assert (rules.batch_size, rules.window, rules.max_retries) == (50, 20.0, 3)
    assert (rules.max_age, rules.bisect) == (3600.0, True)
    default = StreamMapping.from_properties(STREAM).rules
    assert (default.batch_size, default.max_retries, default.max_age) == (100, None, None)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"Topics": ["x"]}, "Topics"),
        ({"FunctionName": None}, "FunctionName is missing"),
        ({"StartingPosition": "AT_TIMESTAMP"}, "StartingPosition"),
        ({"BatchSize": 0}, "BatchSize is 0"),
        ({"BatchSize": 10_001}, "BatchSize"),
        ({"ParallelizationFactor": 11}, "ParallelizationFactor"),
        ({"MaximumRecordAgeInSeconds": 30}, "MaximumRecordAgeInSeconds"),
        ({"TumblingWindowInSeconds": 5}, "TumblingWindowInSeconds"),
        ({"FunctionResponseTypes": ["Other"]}, "FunctionResponseTypes"),
        ({"DestinationConfig": {"OnSuccess": {}}}, "DestinationConfig.OnSuccess"),
        ({"DestinationConfig": {"OnFailure": {"To": "x"}}}, "DestinationConfig.OnFailure.To"),
        ({"BisectBatchOnFunctionError": "yes"}, "BisectBatchOnFunctionError"),
        ({"FilterCriteria": {"Filters": [{"Pattern": '{"x": ["y"]}'}]}}, "Filters[0].Pattern"),
        ({"ScalingConfig": {"MaximumConcurrency": 2}}, "ScalingConfig"),
    ],
)
def test_a_stream_mapping_refuses_what_it_does_not_know_by_name(
    change: dict[str, Any], names: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(names)):
        StreamMapping.from_properties(STREAM | change)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"StartingPosition": "LATEST"}, "StartingPosition"),
        ({"MaximumBatchingWindowInSeconds": 1}, "MaximumBatchingWindowInSeconds"),
        ({"BatchSize": 11}, "BatchSize"),
        ({"ScalingConfig": {"MaximumConcurrency": 1}}, "ScalingConfig.MaximumConcurrency"),
        ({"ScalingConfig": {"Minimum": 1}}, "ScalingConfig.Minimum"),
        ({"FilterCriteria": {"Filters": [{}]}}, "FilterCriteria"),
        ({"EventSourceArn": "arn:aws:sqs:us-east-1:1:plain", "BatchSize": 11}, "Window"),
    ],
)
def test_a_queue_mapping_refuses_what_it_does_not_know_by_name(
    change: dict[str, Any], names: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(names)):
        QueueMapping.from_properties(QUEUE | change)


def test_a_queue_is_named_by_arn_or_url() -> None:
    assert QueueMapping.from_properties(QUEUE).queue == "bells.fifo"
    url = QUEUE | {"EventSourceArn": "http://127.0.0.1:5000/123456789012/bells.fifo"}
    assert QueueMapping.from_properties(url).queue == "bells.fifo"


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"ScheduleExpression": "rate(1 minutes)"}, "ScheduleExpression"),
        ({"ScheduleExpression": "cron(* * * * *)"}, "ScheduleExpression"),
        ({"EventPattern": {"source": ["x"]}}, "EventPattern"),
        ({"EventBusName": "other"}, "EventBusName"),
        ({"State": "SLEEPING"}, "State"),
        ({"Targets": [{"Id": "T", "Arn": "arn:aws:sqs:us-east-1:1:q"}]}, "Targets[0].Arn"),
        ({"Targets": [RULE["Targets"][0] | {"InputPath": "$"}]}, "Targets[0].InputPath"),
    ],
)
def test_a_schedule_refuses_what_it_does_not_know_by_name(
    change: dict[str, Any], names: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(names)):
        Schedule.from_properties(RULE | change)
