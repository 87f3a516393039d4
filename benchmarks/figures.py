"""Figures of a benchmark: one row each, printed as a table and written as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value, beside its baseline.

    Attributes:
        name: `benchmark.what`, fixed if the documents name it.
        unit: of value and baseline.
        value: measured.
        baseline: the same value of something else; None: no comparison.
        baseline_name: its name.
    """

    name: str
    unit: str
    value: float
    baseline: float | None = None
    baseline_name: str | None = None

    @property
    def ratio(self) -> float | None:
        """The value by the baseline; None without one, or where it is zero."""
        return self.value / self.baseline if self.baseline else None

    def row(self) -> dict[str, object]:
        """The figure as its JSON object."""
        row = asdict(self) | {"ratio": self.ratio}
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}


def write(figures: Sequence[Figure], file: Path) -> None:
    """Write the figures of one benchmark as a JSON list."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps([figure.row() for figure in figures], indent=2)
    file.write_text(text + "\n", encoding="utf-8")


def show(title: str, figures: Sequence[Figure]) -> None:
    """Print the figures of one benchmark as a table."""
    table = Table(title=title, title_justify="left")
    for heading in ("figure", "unit"):
        table.add_column(heading, no_wrap=True)
    for heading in ("value", "baseline", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("compared with")
    for figure in figures:
        table.add_row(
            figure.name,
            figure.unit,
            _number(figure.value),
            _number(figure.baseline),
            _number(figure.ratio),
            figure.baseline_name or "",
        )
    Console(width=132).print(table)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"
