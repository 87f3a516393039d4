"""`fairbox simulate`: what it runs, what it says of a broken guarantee, and what it refuses."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fairbox_simulation import scenarios
from fairbox_simulation.scenarios import SCENARIOS, Scenario

if TYPE_CHECKING:
    from fairbox_simulation.chaos import Chaos

    from tests.support.cli_runs import Cli

FAIRBOX = str(Path(sys.executable).with_name("fairbox"))
ALONE = ("--workers", "1")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> str:
    """A scenario whose seed 12 loses the fourth message where functions are killed."""

    def run(seed: int, chaos: Chaos, messages: int) -> list[str]:
        lost = seed == 12 and messages > 3 and chaos.kills > 0
        return ["lost: the fourth", f"early: {messages}"] if lost else []

    monkeypatch.setitem(SCENARIOS, "fake", Scenario("fake", "of a test", run, per_world=50))
    return "fake"


def test_every_scenario_is_listed_with_what_it_has(cli: Cli) -> None:
    lines = cli.ok("simulate", "--list").lines
    for scenario in SCENARIOS.values():
        assert f"{scenario.name:<10}{scenario.summary}" in lines
    [listed] = cli.ok("simulate", "--list", "--json").objects
    assert [one["name"] for one in listed["scenarios"]] == list(SCENARIOS)
    assert set(listed["scenarios"][0]) == {"name", "summary", "unit", "per_world", "faults"}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_runs_so_many_messages_and_keeps_its_guarantees(cli: Cli, scenario: str) -> None:
    unit = SCENARIOS[scenario].unit
    run = cli.ok("simulate", "--scenario", scenario, "--messages", "30", "--json", *ALONE)
    told = run.json
    assert (told["scenario"], told[unit], told["broken"], told["failures"]) == (scenario, 30, 0, [])


def test_the_whole_is_said_exactly_and_by_how_many_worlds(cli: Cli, broken: str) -> None:
    run = cli.ok("simulate", "--scenario", broken, "--messages", "120", *ALONE)
    assert run.out == ("120 messages of fake in 3 worlds from seed 0 on: every guarantee held\n")
    run = cli.ok("simulate", "--scenario", broken, "--seeds", "4", "--json", *ALONE)
    assert (run.json["worlds"], run.json["messages"]) == (4, 200)
    run = cli.ok("simulate", "--scenario", broken, "--minutes", "0", *ALONE)
    assert run.out.startswith("0 messages of fake in 0 worlds")
    assert "10,000 were left" in run.out


def test_a_broken_guarantee_ends_with_1_and_the_commands_that_replay_it(
    cli: Cli, broken: str
) -> None:
    run = cli("simulate", "--scenario", broken, "--messages", "2000", *ALONE)
    assert run.code == 1
    assert run.err == "seed 12: lost: the fourth\n"
    first, *_, last = run.lines
    replay = "fairbox simulate --scenario fake --seed 12 --messages 50"
    assert first == f"seed 12 breaks guarantees; again: {replay}"
    assert last == "2,000 messages of fake in 40 worlds from seed 0 on: 1 broke a guarantee"
    [smallest] = [line for line in run.lines if line.startswith("smallest (4 messages, without")]
    _, again = smallest.split("): ")
    shown = cli(*shlex.split(again)[1:], "--no-shrink", *ALONE)
    assert shown.code == 1
    assert "  early: 4" in shown.lines
    assert not any(line.startswith("smallest") for line in shown.lines)
    assert "--without kills" not in again
    assert cli("simulate", *shlex.split(replay)[2:], "--without", "kills", *ALONE).code == 0


def test_json_is_one_object_with_the_failures(cli: Cli, broken: str) -> None:
    run = cli("simulate", "--scenario", broken, "--seed", "12", "--messages", "9", "--json", *ALONE)
    assert (run.code, run.err) == (1, "")
    [failure] = run.json["failures"]
    assert (failure["seed"], failure["count"], failure["kind"]) == (12, 9, "lost")
    assert failure["breaches"] == ["lost: the fourth", "early: 9"]
    assert failure["smallest"]["count"] == 4
    assert failure["smallest"]["breaches"] == ["lost: the fourth", "early: 4"]
    assert failure["smallest"]["command"].startswith(failure["command"].rpartition(" ")[0])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--scenario: expected one of whole, expiring, "),
        (("--scenario", "weather"), "adding; got 'weather'"),
        (("--scenario", "ordered", "--without", "rain"), "--without: expected one of tables, "),
        (("--scenario", "ordered", "--calm", "--stormy"), "--calm: expected one of --calm and "),
    ],
)
def test_what_is_no_option_is_told_with_what_was_expected(
    cli: Cli, options: tuple[str, ...], said: str
) -> None:
    run = cli("simulate", *options)
    assert (run.code, run.out) == (2, "")
    assert said in run.err
    assert len(run.err.splitlines()) == 1


@pytest.mark.parametrize("option", ["--messages", "--seeds", "--workers"])
def test_numbers_below_one_are_usage(cli: Cli, option: str) -> None:
    run = cli("simulate", "--scenario", "ordered", option, "0")
    assert (run.code, run.out) == (2, "")
    assert option in run.err


def test_calm_stormy_and_faults_left_out_reach_the_world(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Chaos] = []

    def run(_: int, chaos: Chaos, __: int) -> list[str]:
        seen.append(chaos)
        return []

    monkeypatch.setitem(SCENARIOS, "fake", Scenario("fake", "of a test", run))
    for options in (
        (),
        ("--calm",),
        ("--stormy", "--without", "lost-answers", "--without", "kills"),
    ):
        cli.ok("simulate", "--scenario", "fake", "--messages", "1", *options, *ALONE)
    assert seen[:2] == [scenarios.FAULT_PROFILES[""], scenarios.FAULT_PROFILES["calm"]]
    stormy = scenarios.FAULT_PROFILES["stormy"]
    assert (seen[2].lost_answers, seen[2].kills, seen[2].tables) == (0, 0, stormy.tables)


def test_it_needs_neither_environment_nor_tables_and_takes_several_processes() -> None:
    done = subprocess.run(
        [FAIRBOX, "simulate", "--scenario", "batches", "--messages", "520", "--workers", "2"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("520 batches of batches in 520 worlds")


@pytest.mark.parametrize("missing", ["fairbox_simulation", "greenlet"])
def test_no_other_verb_waits_for_the_worlds_and_what_they_need_is_named(missing: str) -> None:
    code = (
        f"import sys\nsys.modules['{missing}'] = None\n"
        "from fairbox.cli.__main__ import main\n"
        "from fairbox.cli.app import app\n"
        "assert not any(name.startswith('fairbox_simulation.') for name in sys.modules)\n"
        "sys.argv = ['fairbox', 'simulate', '--scenario', 'batches']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    name = missing.replace("_", "-")
    assert done.stderr == f"fairbox: {name} is missing: pip install 'fairbox[simulation]'\n"
