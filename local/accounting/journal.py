"""Append-only records of a run: JSON objects in whole lines, even if the writer is killed."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from local.workspace import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Journal:
    """Writes lines from any thread; a line survives a `kill -9` once `write` has returned."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._file = path.open("a+b", buffering=0)  # unbuffered: each line is one write
        if self._file.tell():
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":  # an earlier life was killed within a line
                self._file.write(b"\n")

    def write(self, **fields: Any) -> None:
        """Append one line."""
        line = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            self._file.write(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of one journal, except a line that a kill cut off.

    A cut line is not a JSON object, because its closing brace would be its last character.
    """
    with path.open("rb") as file:
        for line in file:
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def read_all(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of all journals of a folder, journal by journal."""
    for path in sorted(folder.glob("*.jsonl")):
        yield from read(path)


def lines_in(folder: Path, part: bytes = b"\n") -> int:
    """Return the number of lines in the journals of a folder, or of those that hold a part."""
    return sum(path.read_bytes().count(part) for path in folder.glob("*.jsonl"))


def wait_for_lines(folder: Path, number: int, part: bytes = b"\n", *, seconds: float) -> None:
    """Wait until the journals of a folder hold so many lines (that hold a part).

    Raises:
        LocalError: it takes too long.
    """
    end = time.monotonic() + seconds
    while lines_in(folder, part) < number:
        if time.monotonic() > end:
            raise LocalError(f"{folder.name}: no {number} lines in {seconds:g} s")
        time.sleep(0.2)
