"""The glossary and the explanations: the modules that they name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {
    "fairbox": ROOT / "layers/fairbox/python/fairbox",
    "fairbox_simulation": ROOT / "simulation/fairbox_simulation",
}
PAGES = [ROOT / "docs/glossary.md", *sorted((ROOT / "docs/explanation").glob("*.md"))]
PACKAGES = {path.parent.name for path in SOURCES["fairbox"].glob("*/__init__.py")}
_MODULE = re.compile(r"`((?:fairbox|fairbox_simulation)\.[a-z_.]+)`")
_WITHOUT_PREFIX = re.compile(r"`([a-z_]+\.[a-z_.]+)`")
TOPICS = {"fairbox.batches.completed", "fairbox.batches.orphaned"}


def there(name: str) -> bool:
    """Whether a dotted name is a module or package of the sources."""
    root, _, rest = name.partition(".")
    path = SOURCES[root].joinpath(*rest.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_modules_of_a_page_are_there(page: Path) -> None:
    named = set(_MODULE.findall(page.read_text(encoding="utf-8"))) - TOPICS
    assert [name for name in sorted(named) if not there(name)] == []


def test_the_modules_and_files_of_the_glossary_are_there() -> None:
    lines = PAGES[0].read_text(encoding="utf-8").splitlines()
    places = [line.rsplit("|", 2)[1] for line in lines if line.startswith("| ")]
    named = {name for place in places for name in _WITHOUT_PREFIX.findall(place)}
    modules = {f"fairbox.{name}" for name in named if name.partition(".")[0] in PACKAGES}
    assert len(modules) > 25
    assert [name for name in sorted(modules) if not there(name)] == []
    files = {path for place in places for path in re.findall(r"`([a-z_./]+/[a-z_./]+)`", place)}
    assert [path for path in sorted(files) if not (ROOT / path).exists()] == []


def test_the_files_of_the_architecture_page_are_there() -> None:
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", page))
    assert len(named) > 15
    folders = (SOURCES["fairbox"], ROOT)
    assert [p for p in sorted(named) if not any((f / p).is_file() for f in folders)] == []
