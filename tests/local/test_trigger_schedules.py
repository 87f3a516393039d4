"""Schedules: expressions, events, overlap, retries; and attaching a whole application."""

from __future__ import annotations

import random
import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.testing import ManualClock

from local.triggers import TriggerSettings, attach, run_now
from local.triggers.schedules import RULE, Schedule, ScheduleTrigger, period_of
from tests.local.trigger_fakes import ERROR, OK, FakeInvoker, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.functions.invoker import InvokeResult

LAMBDA = "arn:aws:lambda:us-east-1:123456789012:function:sweep"


@pytest.mark.parametrize(
    ("expression", "seconds"),
    [
        ("rate(1 minute)", 60),
        ("rate(5 minutes)", 300),
        ("rate(1 hour)", 3600),
        ("rate(7 days)", 604800),
    ],
)
def test_a_rate_names_its_period(expression: str, seconds: int) -> None:
    assert period_of(expression) == seconds


@pytest.mark.parametrize(
    "expression",
    [
        "every minute",
        "rate(0 minutes)",
        "rate(2 minute)",
        "rate(1 minutes)",
        "rate(1 week)",
        "cron(0 3 * * ? *)",
        "at(2026-12-01T10:30:00)",
    ],
)
def test_an_expression_that_is_not_known_is_refused_by_name(expression: str) -> None:
    with pytest.raises(ValueError, match="not known here"):
        period_of(expression)


@pytest.fixture
def run() -> Iterator[Callable[..., ScheduleTrigger]]:
    started: list[ScheduleTrigger] = []

    def start(invoker: FakeInvoker, properties: dict[str, Any], **settings: Any) -> ScheduleTrigger:
        how: dict[str, Any] = {"speed": 600.0, "clock": time.time} | settings
        trigger = ScheduleTrigger(
            "Sweep",
            Schedule.from_properties(properties),
            invoker=invoker,
            rng=random.Random(4),
            **how,
        )
        trigger.start()
        started.append(trigger)
        return trigger

    yield start
    for trigger in started:
        trigger.stop()


def rule(**change: Any) -> dict[str, Any]:
    targets = [{"Id": "T", "Arn": LAMBDA}]
    return {"ScheduleExpression": "rate(1 minute)", "Name": "sweep", "Targets": targets} | change


def test_a_rule_fires_again_and_again_with_a_scheduled_event(
    run: Callable[..., ScheduleTrigger],
) -> None:
    invoker = FakeInvoker()
    run(invoker, rule())
    wait_for(lambda: len(invoker.calls) == 3)
    function, event = invoker.calls[0]
    assert function == "sweep"
    assert datetime.fromisoformat(event.pop("time")).tzinfo is not None
    assert len(event.pop("id")) == 36
    assert event == {
        "version": "0",
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": "123456789012",
        "region": "us-east-1",
        "resources": ["arn:aws:events:us-east-1:123456789012:rule/sweep"],
        "detail": {},
    }


def test_a_targets_input_replaces_the_event(run: Callable[..., ScheduleTrigger]) -> None:
    invoker = FakeInvoker()
    targets = [{"Id": "T", "Arn": LAMBDA, "Input": '{"full": true}'}]
    trigger = run(invoker, rule(Targets=targets), speed=1.0)
    assert trigger.run_now() == [OK]
    assert invoker.calls == [("sweep", {"full": True})]


def test_invocations_of_a_schedule_may_overlap(run: Callable[..., ScheduleTrigger]) -> None:
    go_on = threading.Event()

    def answer(_: dict[str, Any]) -> InvokeResult:
        go_on.wait(60)
        return OK

    invoker = FakeInvoker(answer)
    run(invoker, rule())
    wait_for(lambda: invoker.most_flying >= 2)
    go_on.set()


def test_a_failed_event_is_tried_twice_more_after_one_and_two_minutes(
    run: Callable[..., ScheduleTrigger], caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(0)
    reads: list[float] = []
    times: list[float] = []

    def now() -> float:
        reads.append(clock.now())
        return reads[-1]

    def answer(_: dict[str, Any]) -> InvokeResult:
        times.append(clock.now())
        return ERROR

    trigger = run(FakeInvoker(answer), rule(ScheduleExpression="rate(1 day)"), speed=1.0, clock=now)
    wait_for(lambda: reads)
    clock.advance(86400)
    wait_for(lambda: len(times) == 1 and trigger._agenda.again)
    clock.advance(60)
    wait_for(lambda: len(times) == 2 and trigger._agenda.again)
    clock.advance(120)
    wait_for(lambda: "A scheduled event is given up." in caplog.messages)
    assert times == [86400, 86460, 86580]
    assert trigger.counts["failures"] == 3


def test_a_disabled_schedule_fires_only_by_hand(run: Callable[..., ScheduleTrigger]) -> None:
    invoker = FakeInvoker()
    trigger = run(invoker, rule(State="DISABLED"), speed=6000.0)
    assert trigger._thread is None, "nothing waits for its time"
    trigger.run_now()
    assert len(invoker.calls) == 1


class NoMeta:
    """A client that is attached and never called."""

    class meta:  # noqa: N801 - the name that boto3 uses
        class events:  # noqa: N801 - the name that boto3 uses
            @staticmethod
            def register(*_: Any, **__: Any) -> None: ...


APPLICATION: dict[str, tuple[str, dict[str, Any]]] = {
    "Relay": (
        "AWS::Lambda::EventSourceMapping",
        {
            "EventSourceArn": "arn:aws:dynamodb:ddblocal:000000000000:table/t/stream/x",
            "FunctionName": "relay",
            "StartingPosition": "LATEST",
            "DestinationConfig": {"OnFailure": {"Destination": "arn:aws:s3:::given-up"}},
        },
    ),
    "Bells": (
        "AWS::Lambda::EventSourceMapping",
        {"EventSourceArn": "arn:aws:sqs:us-east-1:1:bells.fifo", "FunctionName": "deliver"},
    ),
    "SweepRule": (RULE, rule()),
    "SweepRetries": (
        "AWS::Lambda::EventInvokeConfig",
        {"FunctionName": "sweep", "Qualifier": "$LATEST", "MaximumRetryAttempts": 0},
    ),
    "Forward": (RULE, {"EventPattern": {}, "Targets": [{"Arn": "arn:aws:sqs:us-east-1:1:q"}]}),
    "Bucket": ("AWS::S3::Bucket", {}),
}
FUNCTIONS = {"relay", "deliver", "sweep"}


def attached(resources: dict[str, tuple[str, dict[str, Any]]], invoker: FakeInvoker) -> list[Any]:
    return list(
        attach(
            resources,
            invoker,
            {"dynamodb": NoMeta(), "dynamodbstreams": NoMeta(), "sqs": None, "s3": None},
            rng=random.Random(5),
            clock=time.time,
            function_names=FUNCTIONS,
            settings=TriggerSettings(repeat_share=0.1),
        )
    )


def test_an_applications_triggers_are_found_among_its_resources() -> None:
    invoker = FakeInvoker()
    triggers = attached(APPLICATION, invoker)
    assert [trigger.name for trigger in triggers] == ["Relay", "Bells", "SweepRule"]
    assert run_now(triggers, "SweepRule") == [OK]
    assert invoker.calls[0][0] == "sweep"
    assert triggers[2]._retries == 0
    with pytest.raises(KeyError, match="SweepRule"):
        run_now(triggers, "Relay")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"Relay": (APPLICATION["Relay"][0], {"Nonsense": 1})}, "Relay: .*FunctionName"),
        (
            {"Bells": (APPLICATION["Bells"][0], APPLICATION["Bells"][1] | {"FunctionName": "no"})},
            "Bells: .*'no'",
        ),
        (
            {"OnEvent": (RULE, {"EventPattern": {}, "Targets": [{"Arn": LAMBDA}]})},
            "OnEvent: .*EventPattern",
        ),
        (
            {
                "Relay": (
                    APPLICATION["Relay"][0],
                    APPLICATION["Relay"][1]
                    | {"DestinationConfig": {"OnFailure": {"Destination": "arn:aws:kafka:x"}}},
                )
            },
            "Relay: .*kafka",
        ),
        (
            {"SweepRetries": ("AWS::Lambda::EventInvokeConfig", {"FunctionName": "f", "To": 1})},
            "SweepRetries: .*To",
        ),
    ],
)
def test_what_is_not_known_is_refused_with_its_logical_id(
    change: dict[str, tuple[str, dict[str, Any]]], names: str
) -> None:
    with pytest.raises(ValueError, match=names):
        attached(APPLICATION | change, FakeInvoker())
