"""The program `app.py`: writes the assembly, or says in one line why not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.stacks.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stacks.assembly import Assembly


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "app.py"), *arguments],
        env={**os.environ, "CDK_VALIDATION": "false", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_finds_node_by_itself_and_writes_the_assembly_in_silence(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "JSII_NODE"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "app.py"), "-c", "profile=local", "--output", str(tmp_path)],
        env={**environment, "CDK_VALIDATION": "false", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "manifest.json").exists()
    assert {path.name.split(".")[0] for path in tmp_path.glob("*.template.json")} == {
        "FairboxStorage",
        "FairboxBatches",
        "FairboxDelivery",
        "FairboxAccess",
        "FairboxApi",
        "FairboxMonitoring",
    }


def test_the_deployment_page_names_the_stacks_that_are_made(
    assembly: Assembly, keyed: Assembly
) -> None:
    page = (ROOT / "docs/how-to/deploy.md").read_text(encoding="utf-8")

    assert set(re.findall(r"`(Fairbox\w+)`", page)) == {*assembly.templates, *keyed.templates}


@pytest.mark.extended  # a synthesis of its own; the test above runs the program
def test_it_obeys_the_cdk_command_line(tmp_path: Path) -> None:
    done = run(CDK_OUTDIR=str(tmp_path), CDK_CONTEXT_JSON='{"profile": "local"}')
    assert (done.returncode, done.stderr) == (0, "")
    template = (tmp_path / "FairboxStorage.template.json").read_text()
    assert '"DeletionProtectionEnabled": false' in template


def test_a_setting_that_does_not_fit_is_one_line(tmp_path: Path) -> None:
    done = run("-c", "log_retention_days=31", "--output", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "log_retention_days" in done.stderr


def test_a_context_value_without_a_name_is_a_usage_error() -> None:
    done = run("-c", "local")
    assert done.returncode == 2
    assert "KEY=VALUE" in done.stderr
