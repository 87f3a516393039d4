"""Progress of long work: a bar on a terminal, and waiting for batches and resizes."""

from __future__ import annotations

from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Final

import typer

from fairbox.cli.session import FAILED, Session, interactive
from fairbox.tables.batch_values import ENDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairbox.batches.results import Progress
    from fairbox.client.resize import EpochStatus
    from fairbox.model.clock import Clock

BATCH_SECONDS: Final = (0.2, 5.0)
"""Seconds between the first two looks at a batch, and between two at most."""
RESIZE_SECONDS: Final = (1.0, 15.0)
_SLOWER: Final = 1.5
_COUNTED_MS: Final = 60_000


@contextmanager
def bar(what: str, total: int | None = None, **numbers: Any) -> Iterator[Callable[..., None]]:
    """Show a bar on a terminal, nothing elsewhere; yield the function that takes the number done.

    That function takes changes of the bar's other fields too, by name.

    Args:
        what: the work, as the bar names it.
        total: the number in all; None: unknown.
        numbers: further ones, shown by name.
    """
    if not interactive():
        yield lambda *_, **__: None
        return

    # imported where somebody looks
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    text = "{task.completed:,.0f}" + ("" if total is None else " of {task.total:,.0f}")
    text += "".join(f", {{task.fields[{name}]:,}} {name}" for name in numbers)
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(text),
        TimeElapsedColumn(),
    )
    # on standard error, so that the result on standard output can be piped
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total, **numbers)
        yield lambda done=None, **changed: shown.update(task, completed=done, **changed)


def wait_for_batch(session: Session, batch: str, timeout: float | None) -> Progress:
    """Return the progress of a batch when it has ended, or when `timeout` seconds have passed.

    A look costs at most 121 RRU, whatever the size of the batch.
    """
    looks = _looks(session.clock, _end(session.clock, timeout), *BATCH_SECONDS)
    with bar("waiting", 0, failed=0) as update:
        while True:
            found = session.batches.progress(batch, exact=False)
            update(
                found.total - found.pending,
                description=found.state,
                total=found.total,
                failed=found.failed,
            )
            if found.state in ENDED or not next(looks):
                return found


def end_wait(session: Session, progress: Progress, timeout: float | None) -> None:
    """End a run that waited: 0 when the batch is complete, else 1 with the reason."""
    # a batch that was cancelled or reaped has ended too, but is no success
    if progress.complete:
        return
    if progress.state in ENDED:
        session.note(f"fairbox: batch {progress.id} was {progress.state}")
    else:
        session.note(f"fairbox: batch {progress.id} is not complete after {timeout:g} s")
    raise typer.Exit(FAILED)


def watch_resize(session: Session, topic: str, timeout: float | None) -> bool:
    """Show the progress of a resize until old epochs hold at most dead letters; True: they do.

    A look costs 1 RRU a shard.

    Args:
        session: shows each change on standard error.
        topic: the topic.
        timeout: seconds after which to give up; None: never.
    """
    looks = _looks(session.clock, _end(session.clock, timeout), *RESIZE_SECONDS)
    shown: dict[int, str] = {}
    while True:
        statuses = session.outbox.epochs(topic)
        # an epoch that is retired is listed no more
        for number in [n for n in shown if n not in {s.epoch.number for s in statuses}]:
            del shown[number]
            session.note(f"epoch {number}: retired")
        for status in statuses:
            text = _text(status)
            if shown.get(status.epoch.number) != text:
                shown[status.epoch.number] = text
                session.note(f"epoch {status.epoch.number} ({status.epoch.shards} shards): {text}")

        # counts trail by half a minute: what came just before the cut may not be in them yet
        past = session.clock.now() * 1000 - statuses[-1].epoch.since >= _COUNTED_MS
        if past and _drained(statuses):
            return True
        if not next(looks):
            return False


def _end(clock: Clock, timeout: float | None) -> float:
    return inf if timeout is None else clock.now() + timeout


def _looks(clock: Clock, end: float, pause: float, longest: float) -> Iterator[bool]:
    """Wait before each further look, for ever longer; yield False once the time is over."""
    while (left := end - clock.now()) > 0:
        clock.sleep(min(pause, left))
        pause = min(longest, pause * _SLOWER)
        yield True
    yield False


def _drained(statuses: list[EpochStatus]) -> bool:
    """Whether the newest epoch has begun, and older ones hold at most dead letters."""
    *old, newest = statuses
    return newest.phase == "current" and not any(status.ready or status.later for status in old)


def _text(status: EpochStatus) -> str:
    lanes = {"ready": status.ready, "waiting": status.later, "dead": status.dead}
    parts = ", ".join(f"{count:,} {lane}" for lane, count in lanes.items() if count)
    if status.phase == "draining" and not status.empty and not (status.ready or status.later):
        return f"drained, but for {parts}: it stays until they are redriven or purged"
    if status.phase == "draining" and status.empty:
        return "drained; it is retired within hours"
    if status.phase in ("draining", "closed"):
        return f"{status.phase}{f', {parts}' if parts else ''}"
    return status.phase
