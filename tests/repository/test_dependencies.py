"""Locked packages: their hashes, the licences of what ships, an audit that never passes unasked."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts import audit, write_licences
from scripts.write_licences import ACCEPTED, LAYER, SHIPPED, licence_of, locked, may_be_shipped

if TYPE_CHECKING:
    from importlib.metadata import PackageMetadata

ROOT = Path(__file__).parents[2]


def test_the_members_have_one_version_which_the_simulation_requires() -> None:
    folders = (".", "layers/fairbox", "pipeline", "simulation")
    *_, simulation = projects = [
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        for folder in folders
    ]
    (version,) = {project["version"] for project in projects}
    assert f"fairbox=={version}" in simulation["dependencies"]


def test_the_page_of_licences_is_what_the_locks_and_packages_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write_licences.main(["--check"]) == 0
    stale = tmp_path / "licences.md"
    stale.write_text(write_licences.PAGE.read_text() + "more\n")
    monkeypatch.setattr(write_licences, "PAGE", stale)
    assert write_licences.main(["--check"]) == 1
    assert "stale" in capsys.readouterr().out


def test_the_layer_holds_nothing_but_what_its_licence_lets_be_shipped() -> None:
    found = {name: write_licences.package(name, version) for name, version in locked(LAYER)}
    assert len(found) >= 5
    assert [one for one in found.values() if not may_be_shipped(one.licence)] == []


def test_other_licences_of_the_pipeline_s_jobs_have_their_reason_and_are_used() -> None:
    pairs = [pair for lock in SHIPPED.values() for pair in locked(lock)]
    others = {
        name for name, version in pairs
        if not may_be_shipped(write_licences.package(name, version).licence)
    }  # fmt: skip
    assert others == set(ACCEPTED)


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("BSD-3-Clause AND 0BSD", True),
        ("GPL-3.0-only OR MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("LGPL-3.0-or-later", False),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", False),
        ("MIT AND (GPL-3.0-only OR Apache-2.0)", True),
        ("(MIT", False),
        ("MIT Apache-2.0", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_a_licence_may_be_shipped_where_one_of_its_choices_may(
    licence: str, *, allowed: bool
) -> None:
    assert may_be_shipped(licence) is allowed


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("License-Expression: MIT\nLicense: GPL", "MIT"),
        ("Classifier: License :: OSI Approved :: Apache Software License", "Apache-2.0"),
        ("Classifier: License :: OSI Approved\nLicense: BSD", "BSD-3-Clause"),
        ("License: " + "x" * 300, "unknown"),
        ("Name: a", "unknown"),
    ],
)
def test_a_package_s_licence_is_read_from_what_it_says(text: str, licence: str) -> None:
    about: PackageMetadata = email.message_from_string(text)  # type: ignore[assignment]
    assert licence_of(about) == licence


@pytest.mark.parametrize("lock", audit.LOCKS)
def test_every_package_is_locked_with_its_hashes_and_from_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text()
    entries = re.split(r"\n(?=[A-Za-z0-9])", text.strip())
    assert len(entries) >= 5
    for entry in entries:
        assert re.match(r"[A-Za-z0-9_.-]+==\S+", entry), entry[:80]
        assert "--hash=sha256:" in entry, entry[:80]
    assert "://" not in text


def asked(monkeypatch: pytest.MonkeyPatch, code: int, out: str, err: str) -> None:
    done = subprocess.CompletedProcess([], code, out, err)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)


@pytest.mark.parametrize(
    ("answer", "worst", "said"),
    [
        ((0, "", "No known vulnerabilities found"), 0, "no known vulnerabilities"),
        ((1, "Name Version ID\nx 1 PYSEC-1", "Found 1 known vulnerability"), 1, "PYSEC-1"),
        ((1, "", "requests.exceptions.ConnectionError: no"), 2, "cannot be reached"),
        ((1, "", "ERROR: bad lock"), 2, "pip-audit failed: ERROR: bad lock"),
        ((0, "", ""), 2, "NOT audited"),
    ],
)
def test_an_audit_passes_only_where_it_was_answered(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: tuple[int, str, str],
    worst: int,
    said: str,
) -> None:
    asked(monkeypatch, *answer)
    assert audit.main([LAYER]) == worst
    told = capsys.readouterr()
    assert said in told.out + told.err


@pytest.mark.extended  # a call that waits for its retries
def test_an_audit_whose_service_is_away_says_so_and_fails() -> None:
    environment = dict.fromkeys(
        ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), "http://127.0.0.1:9"
    )
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/audit.py"), LAYER, "--timeout", "2"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin"} | environment,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "NOT audited: service osv cannot be reached" in done.stderr
