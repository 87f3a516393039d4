"""Seeds of simulated worlds: the first ones in every run, the rest in `make test-all` only."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(*all_: int, usual: int = 1) -> list[Any]:
    """Return parameters for the seeds of `range(*all_)`, all but the first few as extended."""
    return [
        seed if number < usual else pytest.param(seed, marks=pytest.mark.extended)
        for number, seed in enumerate(range(*all_))
    ]
