"""One chaos run from its start to its account: load, harm, healing, draining."""

from __future__ import annotations

import json
import logging
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from fairbox.errors import FairboxError

from local.chaos.account import Account, Finding, account
from local.chaos.evidence import load, write_state
from local.chaos.killer import Killer
from local.chaos.rig import Rig, Settings
from local.chaos.showing import Teller, lines_in, show
from local.chaos.state import standing
from local.workspace import LocalError

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rich.console import Console

FIRST: Final = 10
START_SECONDS: Final = 600.0
DRAIN_SECONDS: Final = 600.0
SETTLE_SECONDS: Final = 180.0
SECONDS_A_RESTART: Final = 150.0
REPAIRS: Final = 3  # counts are corrected after two equal findings; the third takes rows off
_PROGRESS_SECONDS: Final = 15.0


@dataclass
class Run:
    """A run.

    Args:
        assembly: the synthesised application.
        folder: for all that it keeps.
        settings: the rig's.
        seconds: for how long harm is done.
        rng: chooses the harm.
        pause: seconds between two deeds, on average.
        fewest: messages that are acknowledged at least, however slow the machine is.
        console: is told what happens.
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
        """Run to the account; on return, and on any exception, nothing of it runs any more."""
        teller = Teller(self.console)
        say = teller.say
        say(f"starting the application; seed {self.settings.seed}, {self.settings.rate:g} a second")
        with Rig(self.assembly, self.folder, self.settings) as rig:
            _log_to(self.folder / "log" / "application.log")
            restarts = max(1, round(self.seconds / SECONDS_A_RESTART))
            killer = Killer(rig, self.rng, say, self.pause, restarts)
            rig.produce()
            say(f"records are in {self.folder}; waiting for the first messages to be acknowledged")
            with _progress(rig, teller):
                self._wait_acknowledged(rig, FIRST)
                say(f"harm for {self.seconds / 60:g} minutes")
                killer.rage(self.seconds)
                self._wait_acknowledged(rig, self.fewest)
                self._heal(rig, teller)
                made = self._settle(rig, teller)
            made.findings += [Finding("crashed", "", "", name) for name in rig.crashed()]
        _write(self.folder / "account.json", made, killer.done)
        show(self.console, made, killer.done)
        return made

    def _wait_acknowledged(self, rig: Rig, number: int) -> None:
        """Wait until producers have been told so often that their messages are there.

        Raises:
            LocalError: it takes too long.
        """
        end = time.monotonic() + START_SECONDS
        while lines_in(rig.journals / "producers", b'"t":"ok"') < number:
            if time.monotonic() > end:
                raise LocalError(f"no {number} messages acknowledged in {START_SECONDS:g} s")
            time.sleep(0.5)

    def _heal(self, rig: Rig, teller: Teller) -> None:
        """Let everything live and be well; wait until nothing is outstanding, or for too long."""
        rig.heal()
        teller.say("no more harm: everything lives and is well; producers finish")
        for name in rig.stop_producing():
            teller.say(f"{name} did not finish")
        rig.resume()
        teller.say("draining")
        end = time.monotonic() + DRAIN_SECONDS
        while (left := rig.outstanding()) and time.monotonic() < end:
            time.sleep(2)
        teller.say(f"not drained: {left}" if left else "drained: nothing is outstanding")

    def _settle(self, rig: Rig, teller: Teller) -> Account:
        """Repair, and account until nothing is wrong, or for too long."""
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            for _ in range(REPAIRS):
                rig.repair()
            write_state(self.folder, standing(rig.outbox, rig.app.clients["dynamodb"]))
            made = account(load(self.folder))
            if not made.findings or time.monotonic() > end:
                return made
            teller.say(f"{len(made.findings)} open: {made.findings[0]}")
            time.sleep(5)


@contextmanager
def _progress(rig: Rig, teller: Teller) -> Iterator[None]:
    """Say now and then how far it is."""
    ending = threading.Event()

    def tell() -> None:
        while not ending.wait(_PROGRESS_SECONDS):
            written = lines_in(rig.journals / "producers")
            arrived = lines_in(rig.journals / "arrivals")
            try:
                left = f"{sum(rig.outstanding().values()):,}"
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
    """Write what triggers say, as of a stream that does not answer, to a file."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    logging.getLogger("local").addHandler(handler)


def _write(path: Path, made: Account, harm: Mapping[str, int]) -> None:
    found = asdict(made) | {"total": asdict(made.total), "harm": dict(harm)}
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
