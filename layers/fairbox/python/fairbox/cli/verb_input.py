"""Input of verbs: ids, bodies and headers, from arguments, files and standard input."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Final

import typer

from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

CALL_ITEMS: Final = 10_000
"""Ids of one call: what is wrong with one of them stops its call whole."""


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


def read_body(path: Path | None) -> bytes:
    """Return a file's bytes; None and `-` are standard input.

    Raises:
        typer.BadParameter: it cannot be read.
    """
    if path is None or str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from None


def headers_of(texts: Iterable[str]) -> dict[str, str]:
    """Return the headers that texts `NAME=VALUE` are.

    Raises:
        typer.BadParameter: one is none.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--header {text!r}: expected NAME=VALUE")
        found[name] = value
    return found
