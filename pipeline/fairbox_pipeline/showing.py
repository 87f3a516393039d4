"""Figures of a job as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

from fairbox_pipeline.times import UNDER_A_SECOND, is_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ROWS: Final = 40


def show(title: str, figures: Mapping[str, Any], console: Console | None = None) -> None:
    """Print figures: single values in one table, objects and lists in one each."""
    console = console or Console(soft_wrap=True, markup=False)
    single = {k: v for k, v in figures.items() if not isinstance(v, dict | list)}
    if single:
        _print(console, title, ["figure", "value"], [[k, v] for k, v in single.items()])
    for name, value in figures.items():
        if isinstance(value, dict):
            _print(console, name, [name, "value"], [[k, _flat(v)] for k, v in value.items()])
        elif name == "advice":
            _print_advice(console, value)
        elif isinstance(value, list):
            rows = [_shown(row) for row in value]
            headings = list(rows[0]) if rows else []
            _print(console, name, headings, [list(row.values()) for row in rows])


def _print_advice(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print each advice as a sentence, and its command alone on a line, to be copied."""
    if not rows:
        console.print("nothing to advise", highlight=False)
    for row in rows:
        about = " ".join(filter(None, (row["topic"], row["subscription"])))
        text = f"{row['severity']}: {row['kind']} {about}: {row['why']}"
        shell = f"\n  {row['shell']}" if row["shell"] else ""
        console.print(text + shell, highlight=False)


def _print(
    console: Console, title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading)
    for row in rows[:_ROWS]:
        table.add_row(*(_text(value) for value in row))
    console.print(table)
    if len(rows) > _ROWS:
        console.print(f"and {len(rows) - _ROWS:,} rows more: --json has all of them")


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without `precision`: a latency that is not known is no number."""
    precision = row.get("precision")
    unknown = {n for n, v in row.items() if n.endswith("_ms") and is_unknown(v, precision)}
    return {n: UNDER_A_SECOND if n in unknown else v for n, v in row.items() if n != "precision"}


def _flat(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items())
    return value


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)
