"""Progress of a job on standard error, beside Spark's own bar."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Print one line."""
    print(f"fairbox: {text}", file=sys.stderr, flush=True)  # noqa: T201 - for people, not figures
