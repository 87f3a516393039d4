"""The commands that the README names, run as a user runs them, in a folder of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from local.workspace import FOLDER_VARIABLE, REPOSITORY, Workspace

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.engine, pytest.mark.e2e, pytest.mark.timeout(600)]

SUMMARY = {
    "batch_items",
    "batch_completions",
    "messages",
    "deliveries",
    "lost",
    "duplicated",
    "out_of_order",
    "wru_per_message",
    "rru_per_message",
    "calls_per_message",
    "p50_ms",
    "p99_ms",
    "unloaded_p50_ms",
}


@pytest.fixture
def moved(workspace: Workspace, tmp_path: Path) -> Workspace:
    """A workspace for one test: what is installed and synthesised is there."""
    moved = Workspace(root=tmp_path / "local")
    moved.folder(moved.root)
    for name in ("engines", "payloads", "cdk.out"):
        (moved.root / name).symlink_to((workspace.root / name).resolve())
    return moved


def run(workspace: Workspace, *arguments: str) -> subprocess.CompletedProcess[str]:
    ports = {f"FAIRBOX_LOCAL_{name}_PORT": "0" for name in ("API", "DYNAMODB", "SERVICES")}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **ports, FOLDER_VARIABLE: str(workspace.root)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def exports(workspace: Workspace) -> dict[str, str]:
    lines = workspace.env_file.read_text().splitlines()
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)


@pytest.mark.extended  # starts a second application
def test_up_returns_when_everything_answers_and_down_ends_it(moved: Workspace) -> None:
    nothing = run(moved, "local", "status")
    assert (nothing.returncode, nothing.stderr) == (1, "fairbox: nothing runs\n")
    try:
        up = run(moved, "local", "up")
        assert up.returncode == 0, up.stderr
        addresses = dict(
            line.rsplit("  ", 1) for line in up.stdout.splitlines() if line.count("http://") == 1
        )
        api = next(a.strip() for name, a in addresses.items() if name.strip() == "API")
        with urllib.request.urlopen(f"{api}/topics", timeout=60) as answer:  # noqa: S310 - loopback
            assert json.load(answer) == {"topics": [], "cursor": None}
        assert set(exports(moved)) >= {
            "AWS_ENDPOINT_URL_DYNAMODB",
            "AWS_REGION",
            "FAIRBOX_OUTBOX_TABLE",
            "FAIRBOX_DELIVERIES_TABLE",
            "FAIRBOX_BATCHES_TABLE",
            "FAIRBOX_ACK_QUEUE_URL",
        }
        again = run(moved, "local", "up")
        assert again.returncode == 0
        assert "runs already" in again.stdout
        assert api in run(moved, "local", "status").stdout
    finally:
        down = run(moved, "local", "down")
    assert (down.returncode, down.stdout) == (0, "fairbox: ended\n")
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{api}/topics", timeout=5)  # noqa: S310 - loopback
    assert run(moved, "local", "status").returncode == 1


@pytest.mark.extended  # publishing, batches and the page have tests of their own
def test_the_demo_ends_well_and_writes_its_summary(moved: Workspace) -> None:
    demo = run(moved, "local.demo", "-n", "60")
    assert demo.returncode == 0, demo.stdout[-2000:] + demo.stderr[-2000:]
    summary = json.loads((moved.root / "demo.json").read_text())
    assert set(summary) == SUMMARY
    assert (summary["messages"], summary["lost"], summary["out_of_order"]) == (60, 0, 0)
    assert summary["deliveries"] >= 60
    assert summary["wru_per_message"] > 0
    assert summary["unloaded_p50_ms"] > 0
    assert 0 < summary["p50_ms"] <= summary["p99_ms"]
    assert "killed the relay" in demo.stdout
    assert summary["batch_items"] > 60
    assert summary["batch_completions"] == 1
    page = moved.root / "demo" / "warehouse" / "report.html"
    assert "What happened to every message" in page.read_text()
    for name in SUMMARY:
        assert name in demo.stdout


def test_the_demo_refuses_a_count_that_is_none(moved: Workspace) -> None:
    refused = run(moved, "local.demo", "-n", "-5")
    assert refused.returncode == 2
    assert "expected a number from 1" in refused.stderr
