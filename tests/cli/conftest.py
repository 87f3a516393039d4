"""Fixtures of the command line's tests."""

from __future__ import annotations

import pytest

from tests.cli.runs import Cli


@pytest.fixture
def cli() -> Cli:
    """`fairbox` over an application of its own."""
    return Cli()
