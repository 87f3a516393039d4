"""The end of a run: its queues drained, its repairs done, every message accounted for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from local.accounting.account import Account, Finding, account
from local.accounting.evidence import load, write_state
from local.accounting.table_state import table_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.chaos.harness import Harness

DRAIN_SECONDS: Final = 600.0
SETTLE_SECONDS: Final = 180.0
REPAIRS: Final = 3  # counts are corrected after two equal findings; the third takes rows off
_PAUSE_SECONDS: Final = 5.0


def finish_producers(harness: Harness, say: Callable[[str], None]) -> None:
    """Let the producers finish; name those that do not."""
    for name in harness.stop_producing():
        say(f"{name} did not finish")


def drain(harness: Harness, say: Callable[[str], None]) -> None:
    """Wait until nothing is outstanding, ten minutes at most."""
    end = time.monotonic() + DRAIN_SECONDS
    while (left := harness.outstanding()) and time.monotonic() < end:
        time.sleep(1)
    say(f"not drained: {left}" if left else "drained: nothing is outstanding")


def settle(harness: Harness, say: Callable[[str], None]) -> Account:
    """Repair and account until nothing is wrong, three minutes at most; add crashed processes."""
    end = time.monotonic() + SETTLE_SECONDS
    while True:
        for _ in range(REPAIRS):
            harness.repair()
        write_state(harness.folder, table_state(harness.outbox, harness.app.clients["dynamodb"]))
        made = account(load(harness.folder))
        if not made.findings or time.monotonic() > end:
            break
        say(f"{len(made.findings)} open: {made.findings[0]}")
        time.sleep(_PAUSE_SECONDS)
    made.findings += [Finding("crashed", "", "", name) for name in harness.crashed()]
    return made
