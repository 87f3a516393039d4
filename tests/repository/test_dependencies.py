"""Locked packages: one version of the members, hashes, and the licences of what ships."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = ("layers/dependencies/requirements.lock", "pipeline/requirements.lock")
LOCKS = (*SHIPPED, "requirements.lock")
PAGE = (ROOT / "docs/reference/licences.md").read_text(encoding="utf-8")
ALLOWED = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0"),
    *("PSF-2.0", "Python-2.0", "Zlib"),
}
"""Licences that may be shipped: they only require that their text is included."""


def locked(lock: str) -> set[str]:
    text = (ROOT / lock).read_text(encoding="utf-8")
    return set(re.findall(r"^([A-Za-z0-9_.-]+)==", text, re.MULTILINE))


def test_the_members_have_one_version_which_the_simulation_requires() -> None:
    folders = (".", "layers/fairbox", "pipeline", "simulation")
    *_, simulation = projects = [
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        for folder in folders
    ]
    client = json.loads((ROOT / "clients/js/package.json").read_text())
    (version,) = {project["version"] for project in [*projects, client]}
    assert f"fairbox=={version}" in simulation["dependencies"]


def test_every_package_that_ships_is_on_the_page_under_a_licence_that_lets_it() -> None:
    rows = dict(re.findall(r"^\| (\S+) \| (.+) \|$", PAGE, re.MULTILINE))
    del rows["package"]
    assert set(rows) == set.union(*map(locked, SHIPPED))
    accepted = set(re.findall(r"^- `(\S+)`: ", PAGE, re.MULTILINE))
    others = {
        name
        for name, licence in rows.items()
        if not {part.strip("() ") for part in re.split(r" AND | OR ", licence)} <= ALLOWED
    }
    assert others == accepted


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_locked_with_its_hashes_and_from_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text()
    entries = re.split(r"\n(?=[A-Za-z0-9])", text.strip())
    assert len(entries) >= 5
    for entry in entries:
        assert re.match(r"[A-Za-z0-9_.-]+==\S+", entry), entry[:80]
        assert "--hash=sha256:" in entry, entry[:80]
    assert "://" not in text
