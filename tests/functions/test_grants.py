"""Requests of each function to AWS, held to the grants of its role: no engine enforces IAM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.functions.scenario import Scenario
from tests.support.iam.deployment import Deployment, full_deployment
from tests.support.iam.exceptions import UNUSED
from tests.support.iam.recording import Log, Seen, run_log
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
