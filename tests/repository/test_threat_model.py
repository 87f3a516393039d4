"""The threat model names tests: each is there, and each part that a model has is too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/security.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+)::(test_\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_that_the_threat_model_names_is_there(file: str, name: str) -> None:
    found = [path.read_text() for path in (ROOT / "tests").rglob(f"{file}.py")]
    assert any(re.search(rf"def {name}\(", text) for text in found), f"{file}::{name}"


def test_every_control_names_its_test_and_every_kind_of_threat_is_weighed() -> None:
    rows = re.findall(r"^\| ([STRIDE]) \| (.+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert {kind for kind, *_ in rows} == set("STRIDE")
    assert all("::" in test for *_, test in rows)
    assert len(NAMED) > 25
    for part in ("Assets", "Actors", "Boundaries", "Not defended"):
        assert f"## {part}\n" in PAGE
