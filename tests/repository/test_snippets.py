"""Snippets of the pages, as their readers' own type checkers see them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.repository.test_docs import LIBRARY, PAGES, ROOT, snippets_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def snippets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module of each page, whose lines have the numbers of the page's."""
    folder = tmp_path_factory.mktemp("snippets")
    for page in PAGES:
        lines: list[str] = []
        for code, _ in snippets_of(page, checks=False):
            lines += code.split("\n")[len(lines) :]
        if lines and page.name not in ("library.md", "errors.md"):  # they have signatures
            name = "_".join(page.relative_to(ROOT).with_suffix("").parts).replace("-", "_")
            (folder / f"{name}.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def check(*command: str, folder: Path) -> None:
    command = (sys.executable, "-m", *command)
    done = subprocess.run(
        command, cwd=folder, capture_output=True, check=False, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_finds_nothing_where_it_is_strict(snippets: Path) -> None:
    options = ("--strict", "--config-file=", "--cache-dir=.mypy", "--no-incremental")
    check("mypy", *options, ".", folder=snippets)


def test_pyright_finds_nothing(snippets: Path) -> None:
    config = {
        "typeCheckingMode": "standard",
        "extraPaths": [str(LIBRARY)],
        # answers of boto3, where its stubs call every field optional
        "reportTypedDictNotRequiredAccess": False,
    }
    (snippets / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    python = ("--pythonpath", sys.executable)
    check("basedpyright", *python, folder=snippets)
