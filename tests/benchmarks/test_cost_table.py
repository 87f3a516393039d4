"""The tables of the cost page are what the meter counts."""

from __future__ import annotations

import pytest

from benchmarks.cost_scenarios import SCENARIOS, measure
from benchmarks.topics import SIZES
from scripts.marked_parts import ROOT, run
from scripts.write_costs import PAGES

(PAGE,) = PAGES
QUICK = ("queue", "webhook", "mixed")


def rows(title: str) -> list[list[str]]:
    lines = (ROOT / PAGE).read_text(encoding="utf-8").splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith(f"| {title} | ")]


@pytest.mark.parametrize("name", QUICK)
def test_a_row_is_what_the_meter_counts(name: str) -> None:
    (scenario,) = [s for s in SCENARIOS if s.name == name]
    cost = measure(scenario)
    shown = [f"{value:.2f}" for value in (cost.wru, cost.rru, cost.calls, cost.sends)]
    assert [scenario.title, *shown] in rows(scenario.title)


def test_every_kind_of_topic_and_number_of_topics_has_its_row() -> None:
    for scenario in SCENARIOS:
        assert rows(scenario.title), scenario.title
    for size in SIZES:
        assert len(rows(f"{size:,}")) == 2, size


@pytest.mark.extended  # forty seconds of one processor
def test_every_row_is_what_the_meter_counts(capsys: pytest.CaptureFixture[str]) -> None:
    status = run("write_costs.py", PAGES, ["--check"])

    assert status == 0, capsys.readouterr().out
