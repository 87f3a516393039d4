"""The HTTP API under schemathesis, bounded; `make fuzz-api` sends as many requests as one likes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fuzz.api import Findings, run_in_process

OFF: dict[str, Any] = {"enabled": False}


@pytest.mark.parametrize(
    ("phases", "examples", "least"),
    [
        # every boundary of every field; sequences find a route that fails as well
        pytest.param({"fuzzing": OFF, "stateful": OFF}, 1, 1500, marks=pytest.mark.extended),
        ({"coverage": OFF, "examples": OFF}, 5, 150),
    ],
)
def test_every_answer_is_documented_and_no_request_makes_the_api_fail(
    phases: dict[str, Any], examples: int, least: int
) -> None:
    findings = run_in_process(Findings(), examples=examples, seed=1, phases=phases)
    told = [f"{name}\n{shown}" for name, shown in findings.failures.items()]
    assert findings.good, "\n\n".join(told + findings.errors)
    assert findings.cases.total() >= least
    assert {200, 204, 404, 422} <= set(findings.statuses)
    assert not any(status >= 500 for status in findings.statuses)
