"""Waiting for a batch: cheap progress, asked for ever less often, shown as a bar."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import typer

from fairbox.cli.session import FAILED, interactive
from fairbox.tables.batch_values import ENDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairbox.batches.results import Progress
    from fairbox.cli.session import Session

FIRST_SECONDS: Final = 0.2
MOST_SECONDS: Final = 5.0
_SLOWER: Final = 1.5


def wait(session: Session, batch: str, timeout: float | None) -> Progress:
    """Return the progress of a batch when it has ended, or when `timeout` seconds have passed.

    A look costs at most 121 RRU, whatever the size of the batch.
    """
    end = None if timeout is None else session.clock.now() + timeout
    pause = FIRST_SECONDS
    with _bar() as update:
        while True:
            progress = session.batches.progress(batch, exact=False)
            update(progress)
            left = pause if end is None else end - session.clock.now()
            if progress.state in ENDED or left <= 0:
                return progress
            session.clock.sleep(min(pause, left))
            pause = min(MOST_SECONDS, pause * _SLOWER)


def end(session: Session, progress: Progress, timeout: float | None) -> None:
    """End a run that waited: 0 when the batch is complete, else 1 with the reason."""
    # a batch that was cancelled or reaped has ended too, but is no success
    if progress.complete:
        return
    if progress.state in ENDED:
        session.note(f"fairbox: batch {progress.id} was {progress.state}")
    else:
        session.note(f"fairbox: batch {progress.id} is not complete after {timeout:g} s")
    raise typer.Exit(FAILED)


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None]]:
    """Yield what shows a progress: a bar on a terminal, nothing elsewhere."""
    if not interactive():
        yield lambda _: None
        return

    # imported where somebody looks
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}, {task.fields[failed]:,} failed"),
        TimeElapsedColumn(),
    )
    # on standard error, so that the result on standard output can be piped
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("waiting", total=0, failed=0)

        def update(found: Progress) -> None:
            done = found.total - found.pending
            bar.update(
                task,
                description=found.state,
                total=found.total,
                completed=done,
                failed=found.failed,
            )

        yield update
