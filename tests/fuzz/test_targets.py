"""A stranger's input is read, or refused by the one documented error."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.fuzz.targets import TARGETS

EXAMPLES = 30
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_what_strangers_wrote_is_read_or_refused_by_its_one_error(name: str) -> None:
    chosen = settings(
        max_examples=EXAMPLES, derandomize=True, deadline=None, suppress_health_check=_SLOW
    )
    chosen(TARGETS[name])()
