"""How a subscription stands: its circuit, and whether it was paused by hand. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from random import Random

CircuitState = Literal["closed", "open", "half-open"]
Admission = Literal["all", "one", "none"]

FAILURES_TO_OPEN: Final = 5
PROBE_MS: Final = 20_000
"""How long the answer to a probe is awaited: a call takes 14 s at most."""
QUIET_BASE_SECONDS: Final = 1.0
QUIET_CAP_SECONDS: Final = 900.0
LOOK_MS: Final = 5_000
"""After which what somebody else may have changed is read again."""
_REASON_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of a subscription's destination, as its row has it.

    Attributes:
        circuit: `closed`: everything is sent; `open`: nothing is, until `until`; `half-open`: one
            message is on its way as a probe.
        until: open: when the next probe may go; half-open: when this probe counts as lost. In
            milliseconds since 1970 UTC.
        failures: how often the quiet period has grown; 0 while closed.
        since: when the circuit opened (ms).
        reason: what the destination last said.
        paused_at: since when nothing is sent by somebody's wish (ms); None: it is not paused.
        pause_reason: what was said of it.
        version: counts every change, for compare-and-set.
    """

    circuit: CircuitState = "closed"
    until: int = 0
    failures: int = 0
    since: int = 0
    reason: str = ""
    paused_at: int | None = None
    pause_reason: str = ""
    version: int = 0

    @property
    def paused(self) -> bool:
        """Whether somebody paused it."""
        return self.paused_at is not None

    @property
    def ready(self) -> bool:
        """Whether everything is sent."""
        return self.circuit == "closed" and not self.paused

    def shown(self) -> dict[str, Any]:
        """Return what operators see of it: circuit, next probe, error, pause."""
        closed = self.circuit == "closed"
        return {
            "circuit": self.circuit,
            "next_probe_at": None if closed else self.until,
            "error": None if closed else self.reason,
            "paused_at": self.paused_at,
            "pause_reason": self.pause_reason if self.paused else None,
        }

    def admits(self, now: int) -> Admission:
        """Return how many messages may go at `now` (ms): all, one as a probe, or none."""
        if self.paused:
            return "none"
        if self.circuit == "closed":
            return "all"
        return "one" if now >= self.until else "none"

    def wants_look(self, read_at: int, now: int) -> bool:
        """Whether others may have changed it by now, where it was read at `read_at` (ms).

        Nobody probes an open circuit before its time, and who opens or pauses announces it; so
        nothing is read again while it must be quiet.
        """
        if self.paused or self.circuit == "closed":
            return False
        if self.circuit == "half-open":
            return now - read_at >= LOOK_MS or now >= self.until
        return now >= self.until > read_at

    def opened(self, now: int, reason: str, rng: Random, *, asked: float | None = None) -> Standing:
        """Return it with an open circuit, quiet for longer each time that a probe fails.

        Args:
            now: milliseconds since 1970 UTC.
            reason: what the destination said.
            rng: jitter.
            asked: seconds of quiet that the destination asked for; None: it did not.
        """
        failures = self.failures + 1
        bound = min(QUIET_CAP_SECONDS, QUIET_BASE_SECONDS * 2.0 ** min(failures, 60))
        quiet = QUIET_BASE_SECONDS + rng.random() * (bound - QUIET_BASE_SECONDS)
        return replace(
            self,
            circuit="open",
            until=now + round(1000 * (quiet if asked is None else max(asked, QUIET_BASE_SECONDS))),
            failures=failures,
            since=now if self.circuit == "closed" else self.since,
            reason=reason[:_REASON_CHARACTERS],
            version=self.version + 1,
        )

    def undecided(self, now: int) -> Standing:
        """Return it open as before a probe that said nothing of the destination: try another."""
        until = now + round(1000 * QUIET_BASE_SECONDS)
        return replace(self, circuit="open", until=until, version=self.version + 1)

    def probing(self, now: int, rng: Random) -> Standing:
        """Return it with a probe on its way; by chance its own, so that two claims differ."""
        until = now + PROBE_MS + rng.randrange(1000)
        return replace(self, circuit="half-open", until=until, version=self.version + 1)

    def closed(self) -> Standing:
        """Return it with a closed circuit."""
        return Standing(
            paused_at=self.paused_at, pause_reason=self.pause_reason, version=self.version + 1
        )

    def paused_by(self, now: int, reason: str) -> Standing:
        """Return it paused; the circuit closed, for nothing more is known of it then."""
        return Standing(
            paused_at=now, pause_reason=reason[:_REASON_CHARACTERS], version=self.version + 1
        )

    def reset(self) -> Standing:
        """Return it with its circuit closed; one that never changed stays new."""
        return self.closed() if self.version else self

    def resumed(self) -> Standing:
        """Return it as new: neither paused nor open."""
        return Standing(version=self.version + 1)


NEW: Final = Standing()
