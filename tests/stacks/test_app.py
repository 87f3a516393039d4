"""The program `app.py`: writes the assembly, or says in one line why not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.stacks.assembly import Assembly
from tests.stacks.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path


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
    assert set(Assembly(tmp_path).templates) == {
        "FairboxStorage",
        "FairboxBatches",
        "FairboxDelivery",
        "FairboxAccess",
        "FairboxApi",
        "FairboxFeeds",
        "FairboxMonitoring",
    }


def test_the_deployment_page_names_the_stacks_that_are_made(
    keyed: Assembly, checked: tuple[Assembly, list[dict[str, Any]]]
) -> None:
    page = (ROOT / "docs/how-to/deploy.md").read_text(encoding="utf-8")

    assert set(re.findall(r"`(Fairbox\w+)`", page)) == {*keyed.templates, *checked[0].templates}


@pytest.mark.extended  # a synthesis of its own; the test above runs the program
def test_it_obeys_the_cdk_command_line(tmp_path: Path) -> None:
    done = run(CDK_OUTDIR=str(tmp_path), CDK_CONTEXT_JSON='{"profile": "local"}')
    assert (done.returncode, done.stderr) == (0, "")
    tables = Assembly(tmp_path).of_type("AWS::DynamoDB::Table")
    assert {one["DeletionProtectionEnabled"] for one in tables.values()} == {False}


def test_a_context_value_without_a_name_is_a_usage_error() -> None:
    done = run("-c", "local")
    assert done.returncode == 2
    assert "KEY=VALUE" in done.stderr


@pytest.mark.extended  # a program each
@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("account=999999999999", {"CDK_DEFAULT_ACCOUNT": "111122223333"}),
        ("region=us-east-1", {"CDK_DEFAULT_REGION": "eu-west-1"}),
    ],
)
def test_the_cdk_s_own_command_line_deploys_to_no_other_account_or_region(
    tmp_path: Path, setting: str, found: dict[str, str]
) -> None:
    done = run("-c", setting, "--output", str(tmp_path / "out"), **found)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert setting.partition("=")[2] in done.stderr
    assert next(iter(found.values())) in done.stderr
    assert list((tmp_path / "out").glob("*.template.json")) == []


def test_make_deploy_passes_on_what_it_is_told() -> None:
    settings = ["YES=1", "ADOPT=1", "CONTEXT=-c profile=production -c region=eu-west-1"]
    settings.append("SETTINGS=../shop/fairbox.json")
    done = subprocess.run(
        ["make", "--dry-run", "deploy", *settings],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = (one for one in done.stdout.split("\n") if "scripts/deploy.py" in one)
    assert "-c profile=production -c region=eu-west-1 --settings ../shop/fairbox.json" in line
    assert "--yes --adopt" in " ".join(done.stdout.replace("\\\n", " ").split())
