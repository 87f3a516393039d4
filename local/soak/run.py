"""One soak run: steady load, overload, recovery, then the account of every message."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from local.accounting.evidence import load
from local.accounting.journal import wait_for_lines
from local.chaos.harness import FINISH_SECONDS, START_SECONDS, Harness, Settings
from local.chaos.settlement import DRAIN_SECONDS, drain, finish_producers, settle
from local.soak.flood import ACCEPTED, TOO_MANY, answered
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
from local.soak.verdict import Result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from local.accounting.account import Account
    from local.soak.latencies import Latency

_SAMPLES: Final = 600
_FIRST: Final = 40  # lines of producers' journals once their first messages are under way
_WARM_CALLS: Final = 3  # calls after which a function's process has loaded everything
_UNDER_WAY_SECONDS: Final = 15  # of the steady rate: the most that is outstanding at any moment


@dataclass
class Soak:
    """A soak run.

    Args:
        assembly: the synthesised application.
        folder: for all its files; emptied first.
        settings: the harness's; its rate is the steady one.
        seconds: of all phases; starting, draining and accounting come on top.
        factor: multiple of the steady rate that a further producer adds in the overload.
        callers: number of concurrent callers of the HTTP API in the overload.
        say: prints a line.
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
        """Run to the result; on return all its processes have ended."""
        self.say(f"starting the application; {self.settings.rate:g} messages a second")
        with Harness(self.assembly, self.folder, self.settings) as harness:
            harness.produce()
            sampler = Sampler(lambda: _pids(harness), max(0.5, self.seconds / _SAMPLES))
            sampler.start()
            try:
                self._pass(harness)
            finally:
                sampler.stop()
            made = self._account(harness)
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

    def _pass(self, harness: Harness) -> None:
        """Run the phases; each begins when its preconditions hold, on a slow machine too.

        Raises:
            LocalError: nothing is published, or the overload does not begin.
        """
        wait_for_lines(harness.journals / "producers", _FIRST, seconds=START_SECONDS)
        self._last(WARMING)
        self._last(STEADY)
        before = self._backlog(harness)
        self._flood(harness)
        wait_for_lines(self._answers.parent, 1, seconds=START_SECONDS)
        self._last(OVERLOAD, until=self._pressed)
        for process in harness.of_kind(OVERLOAD):
            if not process.finish(seconds=FINISH_SECONDS):
                self.say(f"{process.name} did not finish")
        self.say("draining")
        self._drain(harness, max(2 * before, round(_UNDER_WAY_SECONDS * self.settings.rate)))
        self._last(RECOVERED)

    def _last(self, name: str, until: Callable[[], bool] = lambda: True) -> None:
        """Let a phase last its time, and until its purpose is reached."""
        seconds = self.seconds * SHARES[name]
        self.say(f"{name} for {seconds:.0f} s")
        begins = time.monotonic()
        time.sleep(seconds)
        while not until() and time.monotonic() - begins < START_SECONDS:
            time.sleep(0.2)
        self.phases[name] = Phase(begins, time.monotonic())

    def _pressed(self) -> bool:
        """Whether some requests were accepted and some refused."""
        return {ACCEPTED, TOO_MANY} <= {status for status, _ in answered(self._answers)}

    def _drain(self, harness: Harness, least: int) -> None:
        begins = time.monotonic()
        while (
            left := self._backlog(harness)
        ) > least and time.monotonic() - begins < DRAIN_SECONDS:
            time.sleep(1)
        self.phases[DRAINING] = Phase(begins, time.monotonic())
        self.say(f"{left} outstanding after {self.phases[DRAINING].seconds:.0f} s")

    @staticmethod
    def _backlog(harness: Harness) -> int:
        return sum(harness.outstanding().values())

    def _flood(self, harness: Harness) -> None:
        journals = harness.journals / "producers"
        calls = ["--journal", str(journals / "flood.jsonl"), "--answers", str(self._answers)]
        calls += ["--api", harness.app.api_url, "--callers", str(self.callers), "--seed", "flood"]
        harness.add("flood", OVERLOAD, "local.soak.flood", lambda _: calls)
        rate = str(self.settings.rate * self.factor)
        more = ["--journal", str(journals / "more.jsonl"), "--rate", rate]
        more += ["--api", harness.app.api_url, "--seed", f"{self.settings.seed}-more"]
        harness.add("more", OVERLOAD, "local.chaos.producer", lambda _: ["more", "1", *more])

    def _account(self, harness: Harness) -> Account:
        """Stop the load, let everything be delivered, and account for every message."""
        self.say("producers finish")
        finish_producers(harness, self.say)
        drain(harness, self.say)
        return settle(harness, self.say)

    def _latency(self) -> dict[str, Latency | None]:
        ahead = time.time() - time.monotonic()
        late = delayed(self.folder / "journals")
        return latencies(load(self.folder), self.phases, ahead=ahead, but=late)


def _pids(harness: Harness) -> list[tuple[str, int]]:
    """Return the processes whose memory must be flat: all except the engines and the overload's."""
    invoker = harness.app.invoker
    found = [
        (f"function {name}", pid)
        for name in invoker.functions()
        for pid in invoker.pool(name).pids(calls=_WARM_CALLS)
    ]
    found += [
        (f"{process.kind} {name}", process.pid)
        for name, process in list(harness.processes.items())
        if process.pid is not None and process.kind != OVERLOAD
    ]
    return [*found, ("gateway and triggers", os.getpid())]
