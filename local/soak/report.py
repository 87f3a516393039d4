"""Output of a soak run: memory by process, latency by phase, answers, the account."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from local.accounting.report import show as show_account
from local.soak.flood import NO_ANSWER

if TYPE_CHECKING:
    from rich.console import Console

    from local.soak.trends import Trend
    from local.soak.verdict import Result


def show(console: Console, result: Result) -> None:
    """Print the tables."""
    show_account(console, result.account, {})
    _memory(console, result)
    _latency(console, result)
    _answers(console, result)


def _memory(console: Console, result: Result) -> None:
    table = Table(title="memory in MB; growth in MB an hour, with its 99.9 % bounds")
    for heading in ("process", "id", "before", "after", "ratio", "most", "growth", "from", "to"):
        table.add_column(
            heading, justify="left" if heading == "process" else "right", overflow="fold"
        )
    for one in result.memory:
        figures = (one.before, one.after, one.ratio, one.most)
        table.add_row(
            one.name, str(one.pid), *(_number(value) for value in figures), *_trend(one.growth)
        )
    console.print(table)


def _trend(growth: Trend | None) -> tuple[str, str, str]:
    if growth is None:
        return "", "", ""
    return f"{growth.slope:.1f}", f"{growth.low:.1f}", f"{growth.high:.1f}"


def _latency(console: Console, result: Result) -> None:
    table = Table("phase", "messages", "p50 s", "p99 s", title="published to taken")
    for name, latency in result.latency.items():
        if latency is not None:
            table.add_row(name, f"{latency.count:,}", f"{latency.p50:.3f}", f"{latency.p99:.3f}")
    console.print(table)
    console.print(f"backlog of the overload gone after {result.draining:.0f} s", highlight=False)
    console.print(f"median after by before: {_number(result.recovered)}", highlight=False)


def _answers(console: Console, result: Result) -> None:
    table = Table("answer", "Retry-After", "count", title="what the overload was answered")
    for (status, told), count in sorted(result.answers.items()):
        shown = "none" if status == NO_ANSWER else str(status)
        table.add_row(shown, "yes" if told else "no", f"{count:,}")
    console.print(table)
    console.print(f"offered: {result.offered:.1f} times what was taken", highlight=False)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
