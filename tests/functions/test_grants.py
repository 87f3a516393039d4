"""Requests of each function to AWS, held to the grants of its role: no engine enforces IAM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.functions.scenario import Scenario
from tests.support.iam.deployment import EXTERNAL, Deployment, full_deployment
from tests.support.iam.exceptions import UNUSED
from tests.support.iam.recording import Log, Seen, run_log
from tests.support.iam.requests import Request, arn
from tests.support.iam.review import missing, unused, without_grant, without_reason

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    """The application with every permission that a setting can give."""
    return full_deployment()


@pytest.fixture(scope="module")
def seen(deployment: Deployment) -> Iterator[list[Seen]]:
    """Every request of a scenario that takes each function through all that it does."""
    log = Log(run_log().folder)  # they are requests of the run too
    with pytest.MonkeyPatch.context() as patch:
        Scenario(patch, log).run()
        asked = [Seen(who, one, "the scenario") for who, all_ in log.asked.items() for one in all_]
        yield [*asked, *deployment.seen_of_lambda()]


def test_every_function_takes_part(seen: list[Seen], deployment: Deployment) -> None:
    assert {one.who for one in seen if one.test == "the scenario"} == set(deployment.functions)


def test_a_function_may_do_what_it_does(seen: list[Seen], deployment: Deployment) -> None:
    assert "\n".join(missing(deployment, seen)) == ""


def test_what_is_granted_is_done_or_has_its_reason(
    seen: list[Seen], deployment: Deployment
) -> None:
    left = unused(deployment, seen, deployment.functions)
    assert "\n".join(without_reason(deployment, left, UNUSED)) == ""
    assert "\n".join(without_grant(deployment, left, UNUSED)) == ""


def test_a_missing_grant_is_named_with_function_action_resource_and_test(
    deployment: Deployment,
) -> None:
    asked = Request("lambda:InvokeFunction", arn("lambda", "function:f"))
    (line,) = missing(deployment, [Seen("relay", asked, "a test")] * 2)
    for part in ("relay", asked.action, EXTERNAL["lambda"], "a test"):
        assert part in line


def test_an_unused_grant_and_a_reason_without_one_are_named(deployment: Deployment) -> None:
    left = unused(deployment, [], ["sweep"])
    lines = list(without_reason(deployment, left, UNUSED))
    assert "sweep never does what it may: sqs:SendMessage on DoorbellsNow" in lines
    assert not [line for line in lines if "DescribeKey" in line]  # which has its reason
    (line,) = without_grant(deployment, left, {"sweep": {"dynamodb:DeleteTable on Outbox": "-"}})
    assert "DeleteTable" in line
