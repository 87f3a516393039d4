"""Scenarios replay exactly in any process; the program adds worlds up and names failing ones."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fairbox_simulation import program
from fairbox_simulation.chaos import CALM, Chaos
from fairbox_simulation.scenarios import FAULT_PROFILES, SCENARIOS, Scenario

ROOT = Path(__file__).resolve().parents[2]
ALONE = ("--workers", "1")


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


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Chaos, int]]:
    """The calls of scenario `fake`, whose seed 12 loses the fourth message."""
    calls = []

    def run(seed: int, chaos: Chaos, messages: int) -> list[str]:
        calls.append((seed, chaos, messages))
        lost = seed == 12 and messages > 3 and chaos.kills > 0
        return ["lost: the fourth"] if lost else []

    monkeypatch.setitem(SCENARIOS, "fake", Scenario("fake", "of a test", run, per_world=50))
    return calls


def test_messages_are_shared_out_exactly(
    seen: list[tuple[int, Chaos, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["--scenario", "fake", "--seed", "3", "--messages", "120", *ALONE]) == 0
    assert [(seed, count) for seed, _, count in seen] == [(3, 50), (4, 50), (5, 20)]
    assert capsys.readouterr().out == "120 messages of fake in 3 worlds: every guarantee held\n"
    seen.clear()
    assert program.main(["--scenario", "fake", "--seeds", "2", *ALONE]) == 0
    assert [(seed, count) for seed, _, count in seen] == [(0, 50), (1, 50)]


@pytest.mark.usefixtures("seen")
def test_a_broken_guarantee_ends_with_1_and_the_command_that_repeats_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert program.main(["--scenario", "fake", "--messages", "2000", "--stormy", *ALONE]) == 1
    first, breach, last = capsys.readouterr().out.splitlines()
    again = (
        "python -m fairbox_simulation --scenario fake --seed 12 --seeds 1 --messages 50 --stormy"
    )
    assert first == f"seed 12 breaks guarantees; again: {again}"
    assert breach == "  lost: the fourth"
    assert last == "2,000 messages of fake in 40 worlds: 1 broke a guarantee"

    words = shlex.split(again)[3:]
    assert program.main(words) == 1
    assert program.main([*words, "--without", "kills"]) == 0


def test_the_faults_of_the_options_reach_the_world(seen: list[tuple[int, Chaos, int]]) -> None:
    for options in ((), ("--calm",), ("--stormy", "--without", "lost-answers")):
        assert program.main(["--scenario", "fake", "--seeds", "1", *options]) == 0
    chaos = [chaos for _, chaos, _ in seen]
    assert chaos[:2] == [Chaos(), CALM]
    assert (chaos[2].lost_answers, chaos[2].tables) == (0, FAULT_PROFILES["stormy"].tables)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--scenario: expected one of whole, "),
        (("--scenario", "weather"), "invalid choice: 'weather'"),
        (("--scenario", "ordered", "--without", "rain"), "--without: expected one of tables, "),
        (("--scenario", "ordered", "--messages", "0"), "expected a whole number from 1; got 0"),
    ],
)
def test_what_is_no_option_is_told_with_what_was_expected(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        program.main(options)
    assert said in capsys.readouterr().err


def test_what_a_world_raises_breaks_a_guarantee() -> None:
    def run(*_: object) -> list[str]:
        raise KeyError("nothing there")

    assert Scenario("fake", "of a test", run).breaches(1, CALM, 1) == [
        "raised KeyError: 'nothing there'"
    ]


def test_the_program_runs_worlds_in_several_processes() -> None:
    options = ["--scenario", "adding", "--seeds", "3", "--messages", "20", "--workers", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "fairbox_simulation", *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "60 messages of adding in 3 worlds: every guarantee held\n"
