"""One soak run: steady load, overload, recovery, then the account of every message."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from local.chaos.account import Account, Finding, account
from local.chaos.evidence import load, write_state
from local.chaos.helpers import Helper
from local.chaos.rig import FINISH_SECONDS, Rig, Settings
from local.chaos.run import DRAIN_SECONDS, REPAIRS, SETTLE_SECONDS, START_SECONDS
from local.chaos.showing import lines_in
from local.chaos.state import standing
from local.soak.flood import ACCEPTED, TOO_MANY, answered
from local.soak.judging import Result
from local.soak.latencies import delayed, latencies
from local.soak.memory import Sampler, memories
from local.soak.phases import (
    DRAINING,
    OVERLOAD,
    RECOVERED,
    SHARES,
    STEADY,
    WARMING,
    Phase,
)
from local.workspace import REPOSITORY, LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from local.soak.latencies import Latency

_SAMPLES: Final = 600
_FIRST: Final = 40  # lines of producers' journals, when their first messages are on their way
_WARM_CALLS: Final = 3  # of a function's process, that has loaded what it needs by then
_UNDER_WAY_SECONDS: Final = 15  # of the steady rate: what is outstanding at any moment, at most


@dataclass
class Soak:
    """A soak run.

    Args:
        assembly: the synthesised application.
        folder: for all that it keeps; emptied first.
        settings: the rig's; its rate is the steady one.
        seconds: of the phases together; starting, draining and accounting come on top.
        factor: times the steady rate, that further producers add in the overload.
        callers: of the HTTP API at a time, in the overload.
        say: takes lines for people.
    """

    assembly: Path
    folder: Path
    settings: Settings
    seconds: float
    factor: float
    callers: int
    say: Callable[[str], None]
    phases: dict[str, Phase] = field(default_factory=dict)

    def run(self) -> Result:
        """Run to the result; on return nothing of it runs any more."""
        self.say(f"starting the application; {self.settings.rate:g} messages a second")
        with Rig(self.assembly, self.folder, self.settings) as rig:
            rig.produce()
            sampler = Sampler(lambda: _pids(rig), max(0.5, self.seconds / _SAMPLES))
            sampler.start()
            try:
                self._pass(rig)
            finally:
                sampler.stop()
            made = self._account(rig)
        return Result(
            account=made,
            memory=memories(sampler.series(), self.phases),
            latency=self._latency(),
            draining=self.phases[DRAINING].seconds,
            answers=answered(self._answers),
        )

    @property
    def _answers(self) -> Path:
        return self.folder / "journals" / "floods" / "answers.jsonl"

    def _pass(self, rig: Rig) -> None:
        """Let the phases pass; each begins when what it needs is there, on a slow machine too.

        Raises:
            LocalError: nothing is published, or the overload does not begin.
        """
        self._wait_for(rig.journals / "producers", _FIRST)
        self._last(WARMING)
        self._last(STEADY)
        before = self._backlog(rig)
        self._flood(rig)
        self._wait_for(self._answers.parent, 1)
        self._last(OVERLOAD, until=self._pressed)
        for helper in rig.of_kind(OVERLOAD):
            if not helper.finish(seconds=FINISH_SECONDS):
                self.say(f"{helper.name} did not finish")
        self.say("draining")
        self._drain(rig, max(2 * before, round(_UNDER_WAY_SECONDS * self.settings.rate)))
        self._last(RECOVERED)

    def _last(self, name: str, until: Callable[[], bool] = lambda: True) -> None:
        """Let a phase last as long as it should, and until it has done what it is for."""
        seconds = self.seconds * SHARES[name]
        self.say(f"{name} for {seconds:.0f} s")
        begins = time.monotonic()
        time.sleep(seconds)
        while not until() and time.monotonic() - begins < START_SECONDS:
            time.sleep(0.2)
        self.phases[name] = Phase(begins, time.monotonic())

    def _pressed(self) -> bool:
        """Whether some callers were taken and some refused."""
        return {ACCEPTED, TOO_MANY} <= {status for status, _ in answered(self._answers)}

    def _drain(self, rig: Rig, least: int) -> None:
        begins = time.monotonic()
        while (left := self._backlog(rig)) > least and time.monotonic() - begins < DRAIN_SECONDS:
            time.sleep(1)
        self.phases[DRAINING] = Phase(begins, time.monotonic())
        self.say(f"{left} outstanding after {self.phases[DRAINING].seconds:.0f} s")

    @staticmethod
    def _backlog(rig: Rig) -> int:
        return sum(rig.outstanding().values())

    def _wait_for(self, journals: Path, lines: int) -> None:
        end = time.monotonic() + START_SECONDS
        while lines_in(journals) < lines:
            if time.monotonic() > end:
                raise LocalError(f"{journals.name}: nothing in {START_SECONDS:g} s")
            time.sleep(0.2)

    def _flood(self, rig: Rig) -> None:
        journals = rig.journals / "producers"
        calls = ["--journal", str(journals / "flood.jsonl"), "--answers", str(self._answers)]
        calls += ["--api", rig.app.api_url, "--callers", str(self.callers), "--seed", "flood"]
        self._start(rig, "flood", ["local.soak.flood", *calls])
        rate = str(self.settings.rate * self.factor)
        more = ["--journal", str(journals / "more.jsonl"), "--rate", rate]
        more += ["--api", rig.app.api_url, "--seed", f"{self.settings.seed}-more"]
        self._start(rig, "more", ["local.chaos.producer", "more", "1", *more])

    def _start(self, rig: Rig, name: str, arguments: Sequence[str]) -> None:
        helper = Helper(
            name=name,
            kind=OVERLOAD,
            command=lambda _: [sys.executable, "-m", *arguments],
            environment={**os.environ, **rig.app.env},
            log_file=self.folder / "log" / f"{name}.log",
            folder=REPOSITORY,
        )
        rig.helpers[name] = helper
        helper.start()

    def _account(self, rig: Rig) -> Account:
        """Stop the load, let everything be delivered, and account for every message."""
        self.say("producers finish")
        for name in rig.stop_producing():
            self.say(f"{name} did not finish")
        end = time.monotonic() + DRAIN_SECONDS
        while (left := rig.outstanding()) and time.monotonic() < end:
            time.sleep(1)
        self.say(f"not drained: {left}" if left else "drained: nothing is outstanding")
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            for _ in range(REPAIRS):
                rig.repair()
            write_state(self.folder, standing(rig.outbox, rig.app.clients["dynamodb"]))
            made = account(load(self.folder))
            made.findings += [Finding("crashed", "", "", name) for name in rig.crashed()]
            if not made.findings or time.monotonic() > end:
                return made
            self.say(f"{len(made.findings)} open: {made.findings[0]}")
            time.sleep(3)

    def _latency(self) -> dict[str, Latency | None]:
        ahead = time.time() - time.monotonic()
        late = delayed(self.folder / "journals")
        return latencies(load(self.folder), self.phases, ahead=ahead, but=late)


def _pids(rig: Rig) -> list[tuple[str, int]]:
    """Return the processes whose memory is to be flat: all but the engines, and the overload's."""
    invoker = rig.app.invoker
    found = [
        (f"function {name}", pid)
        for name in invoker.functions()
        for pid in invoker.pool(name).pids(calls=_WARM_CALLS)
    ]
    found += [
        (f"{helper.kind} {name}", helper.pid)
        for name, helper in list(rig.helpers.items())
        if helper.pid is not None and helper.kind != OVERLOAD
    ]
    return [*found, ("gateway and triggers", os.getpid())]
