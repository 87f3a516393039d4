"""Runs the command line, and says what is missing where it cannot."""

from __future__ import annotations

import sys
from typing import Final

_EXTRAS: Final = {
    "typer": "cli",
    "rich": "cli",
    "fairbox_simulation": "simulation",
    "greenlet": "simulation",
}
"""Modules that may be missing, and the extra that has them."""


def main() -> None:
    """Run `fairbox` with the process's arguments; exits 0, 1 failed, 2 usage, 130 interrupted."""
    try:
        # an interrupt while modules load ends as quietly as one later
        from fairbox.cli.app import app  # noqa: PLC0415

        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        name = (error.name or "").replace("_", "-")
        sys.exit(f"fairbox: {name} is missing: pip install 'fairbox[{extra}]'")


if __name__ == "__main__":
    main()
