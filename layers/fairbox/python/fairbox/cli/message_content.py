"""Bodies and headers of messages, as they are given on the command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


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
