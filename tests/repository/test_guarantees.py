"""Each guarantee of the documents keeps a test in `make test`."""

from __future__ import annotations

from scripts.guarantees_page import guarantees, marked

NAMES = {name for group in guarantees().values() for name in group}


def test_every_mark_names_a_guarantee_and_every_guarantee_has_a_test_by_day() -> None:
    assert set(marked()) <= NAMES
    assert NAMES - set(marked(by_day=True)) == set()
