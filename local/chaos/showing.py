"""What a chaos run prints: progress lines, the account as tables, and what is wrong."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from local.chaos.account import Account

MOST_FINDINGS: Final = 20
PAGE_WIDTH: Final = 130  # of tables that go to a file


def make_console() -> Console:
    """Return where tables are printed, wide enough for them where it is no terminal."""
    console = Console()
    if not console.is_terminal:
        console.width = PAGE_WIDTH
    return console


def columns(*names: str) -> list[Column]:
    """Return columns that break a figure in a narrow terminal: cut, it would say something else."""
    return [Column(name, overflow="fold") for name in names]


@dataclass
class Teller:
    """Prints lines with the time since the beginning."""

    console: Console
    begun: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Print one line."""
        minutes, seconds = divmod(int(time.monotonic() - self.begun), 60)
        self.console.print(f"{minutes:02}:{seconds:02}  {text}", highlight=False)


def lines_in(folder: Path, part: bytes = b"\n") -> int:
    """Return how many lines the journals of a folder have, or of those with a part how many."""
    return sum(path.read_bytes().count(part) for path in folder.glob("*.jsonl"))


def show(console: Console, account: Account, deeds: Mapping[str, int]) -> None:
    """Print the account: messages by topic and taker, batches, deeds, findings."""
    table = Table(*columns(*asdict(account.total)), title="messages by topic and taker")
    for row in [*account.rows, account.total]:
        table.add_row(*(f"{v:,}" if isinstance(v, int) else v for v in asdict(row).values()))
    console.print(table)
    batches = Table(*columns(*asdict(account.batches)), title="batches")
    batches.add_row(*(f"{value:,}" for value in asdict(account.batches).values()))
    console.print(batches)
    if deeds:
        harm = Table(*columns(*deeds), title="what was done to it")
        harm.add_row(*(f"{count:,}" for count in deeds.values()))
        console.print(harm)
    kinds = Counter(finding.kind for finding in account.findings)
    for kind, count in kinds.items():
        console.print(f"{count:,} {kind}", highlight=False)
    for finding in account.findings[:MOST_FINDINGS]:
        console.print(f"  {finding}", highlight=False)
