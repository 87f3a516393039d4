"""A program in a process of its own, on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SECONDS = 60


class Terminal:
    """Types into a program, and reads what it prints.

    Args:
        command: the program and its arguments.
        folder: where it runs.
        env: its environment, beside this process's own.
    """

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | env | {"TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, pattern: str) -> str:
        """Return what was printed until a pattern came; it is not looked at again."""
        end = time.monotonic() + SECONDS
        while not (found := re.search(pattern, self._seen)):
            assert time.monotonic() < end, self._seen
            if select.select([self._master], [], [], 1)[0]:
                try:
                    part = os.read(self._master, 65536).decode(errors="replace")
                except OSError:  # the other end is closed
                    part = ""
                assert part, self._seen
                if "\x1b[6n" in part:
                    self.type("\x1b[1;1R")  # where the cursor is: a terminal answers
                self._seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", part)
        seen, self._seen = self._seen[: found.end()], self._seen[found.end() :]
        return seen

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
