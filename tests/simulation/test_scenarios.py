"""Scenarios replay exactly in any process, and the program runs worlds of them in several."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fairbox_simulation.scenarios import SCENARIOS

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
