"""A bar of what is done of many calls, on a terminal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fairbox.cli.session import interactive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal, nothing elsewhere; yield the function that takes the number done.

    Args:
        what: the work, as the bar names it.
        total: the number in all; None: unknown.
    """
    if not interactive():
        yield lambda _: None
        return

    # imported where somebody looks
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    text = "{task.completed:,.0f}" + ("" if total is None else " of {task.total:,.0f}")
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(text),
        TimeElapsedColumn(),
    )
    # on standard error, so that the result on standard output can be piped
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
