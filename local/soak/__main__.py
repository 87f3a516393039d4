"""`make soak`: steady load, overload and recovery; memory, latency, back-pressure, an account."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from local.accounting.report import Teller, make_console
from local.chaos.harness import Settings
from local.chaos.load_processes import nothing_left
from local.cloudformation.synthesis import synthesise
from local.soak.report import show
from local.soak.run import Soak
from local.soak.verdict import Bounds, faults
from local.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from local.soak.verdict import Result

CALLERS: Final = 160  # the gateway lets 64 wait


def main(arguments: Sequence[str] | None = None) -> None:
    """Run; exit 1 if a message is lost, memory grows, or the overload has lasting effects."""
    given = _parser().parse_args(arguments)
    console = make_console()
    workspace = Workspace()
    folder = (given.folder or workspace.root / "soak").resolve()
    result = _run(given, console, folder)
    bounds = Bounds(growth=given.growth, level=given.level, latency=given.latency)
    wrong = faults(result, bounds)
    show(console, result)
    shown = json.dumps(result.shown() | {"faults": wrong}, indent=2)
    (folder / "soak.json").write_text(shown + "\n", encoding="utf-8")
    for fault in wrong:
        print(f"fairbox: {fault}", file=sys.stderr)
    if wrong:
        sys.exit(1)
    console.print("fairbox: nothing is lost, memory is flat, latency is back", highlight=False)


def _parser() -> argparse.ArgumentParser:
    bounds = Bounds()
    parser = argparse.ArgumentParser(prog="python -m local.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of all phases together")
    parser.add_argument("--rate", type=float, default=10.0, help="messages a second, steadily")
    parser.add_argument("--factor", type=float, default=4.0, help="times it, more in the overload")
    parser.add_argument("--callers", type=int, default=CALLERS, help="of the API, in the overload")
    parser.add_argument("--seed", default="1", help="of what is published")
    parser.add_argument("--folder", type=Path, help="for all that it keeps (.local/soak)")
    parser.add_argument("--growth", type=float, default=bounds.growth, help="MB an hour, at most")
    parser.add_argument("--level", type=float, default=bounds.level, help="memory after by before")
    parser.add_argument("--latency", type=float, default=bounds.latency, help="after by before")
    return parser


def _run(given: argparse.Namespace, console: Console, folder: Path) -> Result:
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell lets background jobs ignore SIGINT
        signal.signal(number, signal.default_int_handler)
    settings = Settings(
        seed=given.seed, rate=given.rate, producers=1, flapping=False, durable=False
    )
    soak = Soak(
        assembly=synthesise(Workspace()),
        folder=folder,
        settings=settings,
        seconds=given.minutes * 60,
        factor=given.factor,
        callers=given.callers,
        say=Teller(console).say,
    )
    with nothing_left():
        return soak.run()


if __name__ == "__main__":
    main()
