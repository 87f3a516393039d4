"""Each guarantee of the documents stands on its page and keeps a test in `make test`."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.night import is_nightly

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
GUARANTEES = {
    name: page
    for group in tomllib.loads((ROOT / "tests/guarantees.toml").read_text()).values()
    for name, (_, page) in group.items()
}


def marked() -> Iterator[tuple[str, bool]]:
    """Yield the name of each guarantee that a test is marked with, and whether it runs by day."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        of_all = re.search(r"^pytestmark.*extended", text, re.MULTILINE)
        nightly = is_nightly(path.relative_to(ROOT).as_posix()) or of_all is not None
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                marks = [ast.unparse(mark) for mark in node.decorator_list]
                for mark in marks:
                    if mark.startswith("pytest.mark.guarantee("):
                        names = re.findall(r"'([\w-]+)'", mark)
                        by_day = not nightly and "pytest.mark.extended" not in marks
                        yield from ((name, by_day) for name in names)


def test_every_mark_names_a_guarantee_and_every_guarantee_has_a_test_by_day() -> None:
    found = list(marked())
    assert {name for name, _ in found} <= set(GUARANTEES)
    assert set(GUARANTEES) - {name for name, by_day in found if by_day} == set()


def test_the_page_of_each_guarantee_has_its_heading() -> None:
    for name, place in GUARANTEES.items():
        page, _, anchor = place.partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
        assert not anchor or anchor in anchors, name
