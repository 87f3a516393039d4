"""Scenarios replay exactly in any process; many worlds add up; failing ones get small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import InvalidInput
from fairbox_simulation import runner
from fairbox_simulation.chaos import CALM, Chaos
from fairbox_simulation.reproduction import FaultOptions, command, findings
from fairbox_simulation.runner import Failure, Part, Plan, Share, Tally, run_all
from fairbox_simulation.scenarios import FAULT_PROFILES, SCENARIOS, Scenario, kind_of, without
from fairbox_simulation.shrinker import Case, Shrinker

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]


def traced(hash_seed: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.simulation.tracing"],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


@pytest.mark.extended  # two processes over every scenario
def test_a_seed_of_every_scenario_repeats_to_the_last_call_in_another_process() -> None:
    one, other = (json.loads(p.communicate()[0]) for p in [traced("1"), traced("2")])
    assert one == other
    assert set(one) == set(SCENARIOS)
    assert len({digest for digest, _ in one.values()}) == len(SCENARIOS)


def test_a_batch_is_the_same_alone_and_after_others() -> None:
    scenario, chaos = SCENARIOS["batches"], FAULT_PROFILES["stormy"]
    assert scenario.run(40, chaos, 1) == []
    from fairbox_simulation.scenarios import _batch_world  # noqa: PLC0415 - looked into

    world = _batch_world(chaos)
    alone = list(world.trace)
    with scenario.around():
        for seed in (38, 39, 40):
            assert scenario.run(seed, chaos, 1) == []
    assert world.trace == alone


def fake(run: Any, **more: Any) -> Scenario:
    return Scenario("fake", "a world of the tests", run, **more)


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """Worlds of ten messages; seeds that end in 7 lose what is behind the fifth."""

    def run(seed: int, chaos: Chaos, messages: int) -> list[str]:
        if seed % 10 != 7:
            return []
        return [f"lost: message {number} of seed {seed}" for number in range(5, messages)]

    made = fake(run, per_world=10)
    monkeypatch.setitem(SCENARIOS, "fake", made)
    return made


def never() -> bool:
    return False


class TestManyWorlds:
    def test_messages_are_shared_out_exactly(self, scenario: Scenario) -> None:
        plan = Plan(scenario, CALM, seed=5, count=34)
        assert (plan.worlds, plan.total) == (4, 34)
        assert list(plan.shares()) == [Share(5, 10), Share(6, 10), Share(7, 10), Share(8, 4)]
        plan = Plan(scenario, CALM, seed=5, count=34, seeds=2)
        assert (plan.total, list(plan.shares())) == (68, [Share(5, 34), Share(6, 34)])

    @pytest.mark.parametrize("wrong", [{"count": 0}, {"count": 1, "seeds": 0}])
    def test_less_than_one_is_refused(self, scenario: Scenario, wrong: dict[str, int]) -> None:
        with pytest.raises(InvalidInput, match="a whole number from 1"):
            Plan(scenario, CALM, seed=0, **wrong)

    def test_all_are_run_and_the_broken_ones_counted(self, scenario: Scenario) -> None:
        seen: list[int] = []
        plan = Plan(scenario, CALM, seed=0, count=2005)
        tally = run_all(plan, workers=1, late=never, told=lambda t, _: seen.append(t.count))
        assert (tally.worlds, tally.count, tally.broken) == (201, 2005, 20)
        lost = tuple(f"lost: message {number} of seed 7" for number in range(5, 10))
        assert tally.first == {"lost": Failure(Share(7, 10), lost)}
        assert seen == [500, 1000, 1500, 2000, 2005]

    @pytest.mark.extended
    def test_processes_come_to_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runner, "CHUNK", 20)  # so that a few batches are several parts
        plan = Plan(SCENARIOS["batches"], Chaos(), seed=3, count=70)
        tallies = [run_all(plan, workers=w, late=never, told=lambda *_: None) for w in (1, 2)]
        assert tallies[0] == tallies[1]
        assert tallies[0].count == 70

    def test_when_it_is_late_no_more_worlds_begin(self, scenario: Scenario) -> None:
        answers = iter([False, False, True])
        plan = Plan(scenario, CALM, seed=0, count=10_000)
        tally = run_all(plan, workers=1, late=lambda: next(answers), told=lambda *_: None)
        assert tally.count == 1000

    def test_the_lowest_seed_stands_for_a_kind_in_whatever_order_they_come(self) -> None:
        tally = Tally()
        for seed in (9, 2, 5):
            tally.add(Part(1, 1, [Failure(Share(seed, 1), (f"lost: {seed}", "early: x"))]))
        assert {kind: f.share.seed for kind, f in tally.first.items()} == {"lost": 2, "early": 2}

    def test_what_a_world_raises_breaks_a_guarantee(self) -> None:
        def run(*_: object) -> list[str]:
            raise KeyError("nothing there")

        assert fake(run).breaches(1, CALM, 1) == ["raised KeyError: 'nothing there'"]


def test_a_fault_left_out_is_nothing_and_an_unknown_one_is_told() -> None:
    calmer = without(Chaos(), ["tables", "given_up"])
    assert (calmer.tables, calmer.given_up, calmer.kills) == (0, False, Chaos().kills)
    with pytest.raises(InvalidInput, match=r"--without: expected one of tables, .*; got 'rain'"):
        without(Chaos(), ["rain"])


class TestShrinking:
    """A world that breaks two guarantees, of which one needs kills and three messages."""

    def world(self, seed: int, chaos: Chaos, messages: int) -> list[str]:
        self.runs.append(messages)
        found = [f"early: {seed}"] if messages > 40 else []
        return found + [f"lost: {messages}"] * (chaos.kills > 0 and messages >= 3 != messages - 1)

    def shrunk(self, kind: str, count: int, **more: Any) -> Any:
        self.runs: list[int] = []
        scenario = fake(self.world)
        breaches = tuple(self.world(1, Chaos(), count))
        self.runs.clear()
        return Shrinker(scenario, 1, Chaos(), kind, **more).shrink(Case(count), breaches)

    def test_messages_and_faults_go_as_far_as_the_kind_stays(self) -> None:
        found = self.shrunk("lost", 450)
        assert found.case.count == 3  # although 4 do not show it
        assert "kills" not in found.case.left_out
        assert {"tables", "repeats", "given_up"} < set(found.case.left_out)
        assert found.breaches == ("lost: 3",)
        assert found.runs == len(self.runs)

    def test_another_kind_stays_itself(self) -> None:
        found = self.shrunk("early", 450)
        assert (found.case.count, "kills" in found.case.left_out) == (41, True)
        assert found.breaches == ("early: 1",)

    def test_no_more_worlds_are_tried_than_were_allowed(self) -> None:
        found = self.shrunk("early", 450, runs=8)
        assert self.runs == [1, 2, 4, 8, 16, 32, 64, 48]
        assert (found.runs, found.case) == (8, Case(48))

    def test_it_comes_to_the_same_each_time(self) -> None:
        assert self.shrunk("lost", 450) == self.shrunk("lost", 450)


def replayed(line: str) -> list[str]:
    """Run the world that a command names, as the command line does."""
    words = line.split()
    options = dict(zip(words[2::2], words[3::2], strict=False))
    left_out = [words[n + 1] for n, word in enumerate(words) if word == "--without"]
    chaos = without(CALM if "--calm" in words else Chaos(), left_out)
    scenario = SCENARIOS[options["--scenario"]]
    return scenario.breaches(int(options["--seed"]), chaos, int(options["--messages"]))


def found_in(plan: Plan, options: FaultOptions) -> Sequence[Any]:
    tally = run_all(plan, workers=1, late=never, told=lambda *_: None)
    return list(findings(plan, options, tally, shrink=True))


class TestMutants:
    """A finding in a mutant is made small, and its command shows it again."""

    def test_a_lost_message_is_shown_by_a_few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tests.simulation.test_simulation import delete_before_sending  # noqa: PLC0415

        delete_before_sending(monkeypatch)
        plan = Plan(SCENARIOS["delivery"], Chaos(), seed=3, count=90)
        finding = found_in(plan, FaultOptions())[0]
        assert finding.kind == "lost"
        assert finding.shrunk.case.count < 60
        assert len(finding.shrunk.case.left_out) > 5
        again = replayed(finding.smallest)
        assert tuple(again) == finding.shrunk.breaches
        assert finding.kind in map(kind_of, again)
        assert tuple(replayed(finding.command)) == finding.failure.breaches

    def test_each_kind_of_breach_is_told_once(self, scenario: Scenario) -> None:
        plan = Plan(scenario, CALM, seed=0, count=2005)
        [finding] = found_in(plan, FaultOptions("calm", ("away",)))
        assert finding.command == (
            "fairbox simulate --scenario fake --seed 7 --messages 10 --calm --without away"
        )
        assert finding.shrunk.case.count == 6
        assert finding.smallest.startswith(
            "fairbox simulate --scenario fake --seed 7 --messages 6 --calm --without away"
        )


def test_a_world_over_its_natural_size_is_replayed_as_one() -> None:
    line = command(
        replace(SCENARIOS["delivery"], per_world=450), Share(1, 451), FaultOptions("stormy")
    )
    assert line == "fairbox simulate --scenario delivery --seed 1 --messages 451 --seeds 1 --stormy"
