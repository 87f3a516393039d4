"""`make chaos`: load, killing and an account; `account FOLDER` makes the account again."""

from __future__ import annotations

import argparse
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from local.accounting.account import account
from local.accounting.evidence import load
from local.accounting.report import make_console, show
from local.chaos.harness import Settings
from local.chaos.load_processes import nothing_left
from local.chaos.run import Run
from local.cloudformation.synthesis import synthesise
from local.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from local.accounting.account import Account

DEFAULT_MINUTES: Final = 10.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; exit 1 if anything is lost, out of order or announced twice."""
    given = _parser().parse_args(arguments)
    console = make_console()
    if given.command == "account":
        made = account(load(given.folder))
        show(console, made, {})
    else:
        made = _run(given, console)
    if made.findings:
        sys.exit(f"fairbox: {len(made.findings)} findings, the first: {made.findings[0]}")
    total = made.total
    console.print(
        f"fairbox: of {total.sent:,} acknowledged none is lost: {total.delivered:,} delivered, "
        f"{total.outstanding:,} outstanding, {total.dead:,} dead, {total.cancelled:,} cancelled",
        highlight=False,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local.chaos", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="load, kill, heal, account")
    run.add_argument("--minutes", type=float, default=DEFAULT_MINUTES, help="of killing")
    run.add_argument("--seed", default="1", help="decides what is killed when")
    run.add_argument("--rate", type=float, default=20.0, help="messages a second")
    run.add_argument("--pause", type=float, default=3.0, help="seconds between two faults")
    run.add_argument("--folder", type=Path, help="for all that it keeps (.local/chaos)")
    run.add_argument("--fewest", type=int, default=0, help="messages acknowledged at least")
    again = commands.add_parser("account", help="the account of a run that is over")
    again.add_argument("folder", type=Path, help="that the run kept")
    return parser


def _run(given: argparse.Namespace, console: Console) -> Account:
    workspace = Workspace()
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell lets background jobs ignore SIGINT
        signal.signal(number, signal.default_int_handler)
    run = Run(
        assembly=synthesise(workspace),
        folder=(given.folder or workspace.root / "chaos").resolve(),
        settings=Settings(seed=given.seed, rate=given.rate),
        seconds=given.minutes * 60,
        rng=random.Random(given.seed),  # noqa: S311 - no secret
        pause=given.pause,
        fewest=given.fewest,
        console=console,
    )
    with nothing_left():
        return run.run()


if __name__ == "__main__":
    main()
