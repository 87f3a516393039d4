"""Append-only records of chaos runs: JSON objects, whole lines however the writer ends."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Journal:
    """Writes lines from any thread; on return a line outlives a `kill -9` of this process."""

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
    """Yield the lines of one journal; a line that a kill cut off was not written, and is left out.

    A cut line is no JSON object: its closing brace is its last character.
    """
    with path.open("rb") as file:
        for line in file:
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def read_all(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of all journals of a folder, journal by journal."""
    for path in sorted(folder.glob("*.jsonl")):
        yield from read(path)
