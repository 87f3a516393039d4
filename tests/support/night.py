"""The tests of `make test-all` alone: what is dear for its size, beside the marker `extended`."""

from __future__ import annotations

from typing import Final

FILES: Final = (
    "tests/benchmarks/",
    "tests/e2e/test_browser.py",
    "tests/e2e/test_circuits.py",
    "tests/e2e/test_commands.py",
    "tests/e2e/test_failures.py",
    "tests/e2e/test_smoke.py",
    "tests/fuzz/test_api.py",
    "tests/pipeline/test_archive_files.py",
    "tests/pipeline/test_batch_progress.py",
    "tests/pipeline/test_daily.py",
    "tests/pipeline/test_growth.py",
    "tests/pipeline/test_replay_plan.py",
    "tests/pipeline/test_trace.py",
    "tests/repository/test_snippets.py",
    "tests/stacks/test_spark_submit.py",
    "tests/unit/dispatch/test_walk_worlds.py",
)
"""Folders and files."""
ON_BOTH_ENGINES: Final = tuple(
    f"tests/contract/test_{name}.py"
    for name in ("engine_reads", "engine_transactions", "engines", "inbox", "meter", "outbox")
)
"""Files of the contract whose cases run on DynamoDB Local by day too."""


def is_nightly(test: str) -> bool:
    """Whether a test runs in `make test-all` alone.

    Args:
        test: its id, as pytest prints it.
    """
    on_local = test.startswith("tests/contract/") and "[local" in test
    return test.startswith(FILES) or (on_local and not test.startswith(ON_BOTH_ENGINES))
