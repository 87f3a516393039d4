"""Runs the command line, and says what is missing where it cannot."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Final

_EXTRAS: Final = {
    "typer": "cli",
    "rich": "cli",
    "websockets": "feeds",
    "fairbox_simulation": "simulation",
    "greenlet": "simulation",
}
"""Modules that may be missing, and the extra that has them."""


def main() -> None:
    """Run `fairbox` with the process's arguments; exits 0, 1 failed, 2 usage, 130 interrupted."""
    _prepare_streams()
    try:
        # an interrupt while modules load ends as quietly as one later
        from fairbox.cli.command_line import app  # noqa: PLC0415

        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        # what is still to be written would fail again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(f"fairbox: {error}")
    except ModuleNotFoundError as error:
        # a module that no extra has is missing by a fault, whose traceback says where
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        name = (error.name or "").replace("_", "-")
        sys.exit(f"fairbox: {name} is missing: install Fairbox with its extra {extra!r}")


def _prepare_streams() -> None:
    """Let output escape what its encoding lacks, and piped input be UTF-8 whatever the locale.

    A stream that the caller has closed is empty, and drops what is written.
    """
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("r+", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and name != "stdin":
            stream.reconfigure(errors="backslashreplace")
        elif isinstance(stream, io.TextIOWrapper) and not stream.isatty():
            # bytes that are no UTF-8 survive as surrogates, and whoever reads them names the line
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")


if __name__ == "__main__":
    main()
