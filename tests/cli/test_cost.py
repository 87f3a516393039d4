"""The month that `fairbox cost` computes: units of the meter, times list prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox.cli.cost_verb import SECONDS, USES, Use, month, use_at

from benchmarks.cost_scenarios import FUNCTIONS, Scenario, ScenarioDeployment
from benchmarks.deployment import ORDERS, Load

if TYPE_CHECKING:
    from tests.support.cli_runs import Cli

MILLION = 1e6 / SECONDS  # a second, for a month of a million
DEAR = pytest.mark.extended  # half a minute of one processor


@pytest.mark.parametrize(
    ("use", "seconds"),
    [
        pytest.param(use, seconds, id=str(use.rate), marks=DEAR if use.rate in (1, 1000) else ())
        for use, seconds in zip(USES, (200, 60, 20, 20), strict=True)
    ],
)
def test_a_use_is_what_the_meter_counts(use: Use, seconds: int) -> None:
    one = ScenarioDeployment(
        Scenario(name="", title="", rate=use.rate, seconds=seconds, queues=1, transactional=True)
    )
    count = one.run(Load(rate=1, seconds=1))

    units = one.accounts
    recording = (units.wru(*FUNCTIONS) - units.wru(table=ORDERS)) / count - 3
    found = (units.rru(*FUNCTIONS) / count, units.rru("relay") / count, one.sends / count)
    assert use.recording == pytest.approx(recording, rel=0.02)
    assert (use.reads, use.invocations, use.sends) == pytest.approx(found, rel=0.05, abs=0.002)


def test_between_two_rates_figures_lie_between_and_beyond_the_last_holds() -> None:
    assert USES[1].sends > use_at(30).sends > USES[2].sends
    assert use_at(10) == USES[1]
    assert use_at(50_000).reads == USES[-1].reads


def dollars(use: str, **load: Any) -> float:
    """Sum the lines of a month of a million messages that name a use."""
    return sum(usd for _, name, usd in month(MILLION, **load) if use in name)


def test_a_month_of_a_million_messages() -> None:
    recording = USES[0].recording  # for less than one a second
    assert dollars("write units") == pytest.approx((2 + 1 + recording) * 0.625)
    assert dollars("your own row") == pytest.approx(0.625)
    assert dollars("write units", row=0) == pytest.approx((1 + 1 + recording) * 0.625)
    assert dollars("your own row", row=0) == dollars("your own row", http=True) == 0
    assert dollars("write units", size=2000) == pytest.approx((9 + recording) * 0.625)
    # relay writes who lacks a message; a visit reads it, and a doorbell takes three requests
    both = {"queues": 1, "webhooks": 1}
    assert dollars("write units", **both) == pytest.approx((4 + 1.7 * recording) * 0.625)
    assert dollars("doorbells", **both) == pytest.approx(1.5)
    assert dollars("HTTP API", http=True) == pytest.approx(1.625, abs=0.01)
    # a body in S3: a small item, put once and fetched for each subscription
    assert dollars("write units", size=400_000) == dollars("write units")
    assert dollars("bodies", size=400_000) == pytest.approx(5 + 0.4 + 400 * 0.023)
    assert dollars("metrics", topics=500) == 36


def test_the_command_adds_up_what_its_lines_say(cli: Cli) -> None:
    found = cli.ok("cost", "--rate", "12", "--webhooks", "2", "--json").objects[0]
    assert found["usd_a_month"] == pytest.approx(
        sum(line["usd"] for line in found["lines"]), abs=0.1
    )

    text = cli.ok("cost", "--rate", "12", "--webhooks", "2").out.splitlines()
    assert len(text) == len(found["lines"]) + 1
    assert f"{found['usd_a_month']:,.2f}  dollars a month" in text[-1]


@pytest.mark.parametrize(
    ("command", "field"),
    [
        ("cost --rate 0", "--rate"),
        ("cost --rate inf", "--rate"),
        ("cost --rate 1 --queues 0", "queues"),
        ("topic size --rate inf", "--rate"),
        ("topic size --rate 5 --wcu inf", "--wcu"),
        ("feed size --clients 10 --frames inf", "--frames"),
    ],
)
def test_a_load_that_is_none_is_refused(cli: Cli, command: str, field: str) -> None:
    run = cli(*command.split())
    assert run.code == 2
    assert field in run.err
