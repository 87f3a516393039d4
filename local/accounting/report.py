"""Output of a run: progress lines, the account as tables, and its findings."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.accounting.account import Account

MOST_FINDINGS: Final = 20
PAGE_WIDTH: Final = 130  # of tables that go to a file


def make_console() -> Console:
    """Return the console for tables; it is wide enough for them when it is not a terminal."""
    console = Console()
    if not console.is_terminal:
        console.width = PAGE_WIDTH
    return console


def columns(*names: str) -> list[Column]:
    """Return columns that wrap a figure in a narrow terminal instead of cutting it."""
    return [Column(name, overflow="fold") for name in names]


@dataclass
class Teller:
    """Prints lines with the time since the start."""

    console: Console
    begun: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Print one line."""
        minutes, seconds = divmod(int(time.monotonic() - self.begun), 60)
        self.console.print(f"{minutes:02}:{seconds:02}  {text}", highlight=False)


def show(console: Console, account: Account, injected: Mapping[str, int]) -> None:
    """Print the account: messages by topic and taker, batches, injected faults, findings."""
    table = Table(*columns(*asdict(account.total)), title="messages by topic and taker")
    for row in [*account.rows, account.total]:
        table.add_row(*(f"{v:,}" if isinstance(v, int) else v for v in asdict(row).values()))
    console.print(table)
    batches = Table(*columns(*asdict(account.batches)), title="batches")
    batches.add_row(*(f"{value:,}" for value in asdict(account.batches).values()))
    console.print(batches)
    if injected:
        harm = Table(*columns(*injected), title="what was done to it")
        harm.add_row(*(f"{count:,}" for count in injected.values()))
        console.print(harm)
    kinds = Counter(finding.kind for finding in account.findings)
    for kind, count in kinds.items():
        console.print(f"{count:,} {kind}", highlight=False)
    for finding in account.findings[:MOST_FINDINGS]:
        console.print(f"  {finding}", highlight=False)
