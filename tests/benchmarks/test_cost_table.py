"""The tables of the cost page are what the meter counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.cost_scenarios import SCENARIOS, measure
from benchmarks.topics import SIZES
from scripts import write_costs

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ("queue", "webhook", "mixed")


def rows(title: str) -> list[list[str]]:
    lines = write_costs.PAGE.read_text(encoding="utf-8").splitlines()
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
    status = write_costs.main(["--check"])

    assert status == 0, capsys.readouterr().out


def test_a_page_that_differs_is_named_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_costs, "TABLES", {"kinds": lambda: iter(["| new |"])})
    page = tmp_path / "costs.md"
    page.write_text(write_costs.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    before = page.read_text(encoding="utf-8")

    assert write_costs.main(["--check", "--page", str(page)]) == 1
    assert capsys.readouterr().out.startswith("costs.md: stale")
    assert page.read_text(encoding="utf-8") == before
    assert write_costs.main(["--page", str(page)]) == 0
    assert "| new |" in page.read_text(encoding="utf-8")
    assert write_costs.main(["--check", "--page", str(page)]) == 0


def test_a_page_without_its_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "costs.md"
    page.write_text("# Costs\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="no line"):
        write_costs.main(["--page", str(page)])
