"""Item ids from arguments, files and standard input, settled in calls of bounded size."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

import typer

from fairbox.errors import BatchBusy, BatchEnded, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fairbox.cli.session import Session

CALL_ITEMS: Final = 10_000
"""Ids of one call: what is wrong with one of them stops its call whole."""

_BUSY_TRIES: Final = 5
_BUSY_SECONDS: Final = 0.1


def item_ids(given: list[str] | None, path: Path | None, what: str = "item ids") -> Iterator[str]:
    """Yield ids as they are given, then one a line from a file; `-` is standard input.

    Raises:
        typer.BadParameter: there are none of either, or the file cannot be read.
        InvalidInput: a line is not UTF-8.
    """
    if not given and path is None:
        raise typer.BadParameter(f"no {what}: give some, or --file PATH, or - for standard input")

    for text in given or []:
        if text == "-":
            yield from _lines(sys.stdin, what)
        else:
            yield text

    if path is not None and str(path) == "-":
        yield from _lines(sys.stdin, what)
    elif path is not None:
        try:
            with path.open(encoding="utf-8", errors="surrogateescape") as file:
                yield from _lines(file, what)
        except OSError as error:
            raise typer.BadParameter(f"{path}: {error.strerror}") from None


def _lines(file: Iterable[str], what: str) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        text = line.removeprefix("\ufeff").strip()  # a byte order mark
        # bytes that are no UTF-8 were read as these surrogates
        if any("\udc80" <= c <= "\udcff" for c in text):
            raise InvalidInput(what, f"lines of UTF-8; line {number} is none")
        if text:
            yield text


def calls_of(items: Iterable[str], size: int = CALL_ITEMS) -> Iterator[list[str]]:
    """Yield the ids in lists of at most `size`, each read when it is asked for."""
    rest = iter(items)
    while call := list(islice(rest, size)):
        yield call


def settle(
    session: Session,
    verb: Literal["ack", "fail", "retry"],
    items: Iterable[str],
    reason: str = "",
) -> None:
    """Settle items call by call, and show what changed.

    What stays busy is sent again. A call that is refused ends the run; `session.done` says what
    was done before it.
    """
    changed, count = 0, 0
    completed: list[str] = []
    for call in calls_of(items):
        for part in _until_done(session, verb, call, reason):
            changed += part[0]
            completed += part[1]
            session.done = {"ids": count, "changed": changed, "completed": completed}
        count += len(call)
        session.done = {"ids": count, "changed": changed, "completed": completed}

    fields: dict[str, object] = {"ids": count, "changed": changed, "completed": completed}
    text = f"{changed} of {count} items changed"
    session.show(fields, "\n".join([text, *(f"complete: {batch}" for batch in completed)]))


def _until_done(
    session: Session, verb: str, call: list[str], reason: str
) -> Iterator[tuple[int, tuple[str, ...]]]:
    for attempt in range(1, _BUSY_TRIES + 1):
        batches = session.batches
        try:
            if verb == "fail":
                result = batches.fail(call, reason)
            else:
                result = batches.ack(call) if verb == "ack" else batches.retry(call)
        except BatchEnded as error:
            # counted before the error ends the run
            yield error.changed, error.completed
            raise
        except BatchBusy as error:
            yield error.changed, error.completed
            if attempt == _BUSY_TRIES:
                raise

            # the rest alone: settled items would be no error, but cost their groups' reads again
            call = list(error.left)
            session.clock.sleep(_BUSY_SECONDS * 2**attempt)
        else:
            yield result.changed, result.completed
            return


def check(session: Session, items: Iterable[str]) -> None:
    """Show how many ids can be settled, and name those that cannot; change nothing."""
    good, bad = 0, list[str]()
    for call in calls_of(items):
        known, unknown = session.maintenance.settlement.split_known(call)
        good += len(known)
        bad += unknown
    fields: dict[str, object] = {"ids": good + len(bad), "known": good, "unknown": bad}
    text = f"{good} of {good + len(bad)} items can be settled"
    session.show(fields, "\n".join([text, *(f"unknown: {item}" for item in bad)]))
    if bad:
        raise typer.Exit(1)
