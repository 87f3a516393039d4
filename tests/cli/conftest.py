"""Fixtures of the command line's tests."""

from __future__ import annotations

import pytest

from tests.support.cli_runs import Cli


@pytest.fixture
def cli() -> Cli:
    """`fairbox` over an application of its own."""
    return Cli()
