"""A chaos run from its start to its account: load, faults, healing, draining."""

from __future__ import annotations

import json
import logging
import threading
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from fairbox.errors import FairboxError

from local.accounting.journal import lines_in, wait_for_lines
from local.accounting.report import Teller, show
from local.chaos.harness import START_SECONDS, Harness, Settings
from local.chaos.killer import Killer
from local.chaos.settlement import drain, finish_producers, settle

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rich.console import Console

    from local.accounting.account import Account

FIRST: Final = 10
SECONDS_A_RESTART: Final = 150.0
_PROGRESS_SECONDS: Final = 15.0


@dataclass
class Run:
    """A chaos run.

    Args:
        assembly: the synthesised application.
        folder: for all its files.
        settings: the harness's.
        seconds: duration of the fault injection.
        rng: chooses the faults.
        pause: seconds between two faults, on average.
        fewest: least number of acknowledged messages, however slow the machine is.
        console: for the output.
    """

    assembly: Path
    folder: Path
    settings: Settings
    seconds: float
    rng: random.Random
    pause: float
    console: Console
    fewest: int = 0

    def run(self) -> Account:
        """Run to the account; on return, and on any exception, all its processes have ended."""
        teller = Teller(self.console)
        say = teller.say
        say(f"starting the application; seed {self.settings.seed}, {self.settings.rate:g} a second")
        with Harness(self.assembly, self.folder, self.settings) as harness:
            _log_to(self.folder / "log" / "application.log")
            restarts = max(1, round(self.seconds / SECONDS_A_RESTART))
            killer = Killer(harness, self.rng, say, self.pause, restarts)
            harness.produce()
            say(f"records are in {self.folder}; waiting for the first messages to be acknowledged")
            with _progress(harness, teller):
                self._wait_acknowledged(harness, FIRST)
                say(f"harm for {self.seconds / 60:g} minutes")
                killer.rage(self.seconds)
                self._wait_acknowledged(harness, self.fewest)
                self._heal(harness, teller)
                made = settle(harness, say)
        _write(self.folder / "account.json", made, killer.done)
        show(self.console, made, killer.done)
        return made

    def _wait_acknowledged(self, harness: Harness, number: int) -> None:
        """Wait until so many messages are acknowledged to the producers.

        Raises:
            LocalError: it takes too long.
        """
        wait_for_lines(harness.journals / "producers", number, b'"t":"ok"', seconds=START_SECONDS)

    def _heal(self, harness: Harness, teller: Teller) -> None:
        """Heal all processes; wait until nothing is outstanding, or for too long."""
        harness.heal()
        teller.say("no more harm: everything lives and is well; producers finish")
        finish_producers(harness, teller.say)
        harness.resume()
        teller.say("draining")
        drain(harness, teller.say)


@contextmanager
def _progress(harness: Harness, teller: Teller) -> Iterator[None]:
    """Print the progress periodically."""
    ending = threading.Event()

    def tell() -> None:
        while not ending.wait(_PROGRESS_SECONDS):
            written = lines_in(harness.journals / "producers")
            arrived = lines_in(harness.journals / "arrivals")
            try:
                left = f"{sum(harness.outstanding().values()):,}"
            except FairboxError:
                left = "an unknown number"
            teller.say(
                f"records: {written:,} of producers, {arrived:,} arrivals; {left} outstanding"
            )

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def _log_to(path: Path) -> None:
    """Write the triggers' warnings to a file."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    logging.getLogger("local").addHandler(handler)


def _write(path: Path, made: Account, harm: Mapping[str, int]) -> None:
    found = asdict(made) | {"total": asdict(made.total), "harm": dict(harm)}
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
