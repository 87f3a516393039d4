"""The result of a soak run and its violations."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from local.soak.flood import ACCEPTED, NO_ANSWER, TOO_MANY, UNAVAILABLE
from local.soak.phases import RECOVERED, STEADY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from local.accounting.account import Account
    from local.soak.latencies import Latency
    from local.soak.memory import Memory


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Accepted limits.

    Attributes:
        growth: MB an hour by which a process may surely grow, before and after the overload.
        level: memory after the overload divided by memory before it.
        latency: median latency after the overload divided by that before it.
    """

    growth: float = 24.0
    level: float = 2.0
    latency: float = 3.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """The measurements of a run.

    Attributes:
        account: of every message.
        memory: of every process except the engines.
        latency: by phase.
        draining: seconds until the backlog of the overload was delivered.
        answers: number of answers to the flood by (status, whether it had `Retry-After`).
    """

    account: Account
    memory: Sequence[Memory]
    latency: Mapping[str, Latency | None]
    draining: float
    answers: Counter[tuple[int, bool]] = field(default_factory=Counter)

    @property
    def offered(self) -> float:
        """Requests of the flood divided by those accepted; 0 if none was."""
        taken = sum(n for (status, _), n in self.answers.items() if status == ACCEPTED)
        return self.answers.total() / taken if taken else 0.0

    @property
    def recovered(self) -> float | None:
        """Median latency after the overload divided by that before it; None: no measurement."""
        before, after = (self.latency.get(name) for name in (STEADY, RECOVERED))
        return after.p50 / before.p50 if before and after and before.p50 else None

    def shown(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "messages": asdict(self.account.total),
            "memory": [asdict(one) | {"ratio": one.ratio} for one in self.memory],
            "latency": {k: None if v is None else asdict(v) for k, v in self.latency.items()},
            "recovered": self.recovered,
            "draining_seconds": self.draining,
            "offered": self.offered,
            "answers": [
                {"status": status, "retry_after": told, "count": count}
                for (status, told), count in sorted(self.answers.items())
            ],
        }


def faults(result: Result, bounds: Bounds) -> list[str]:
    """Return the violations in words; empty: the run is good."""
    found = [str(finding) for finding in result.account.findings]
    found += _growing(result.memory, bounds)
    found += _late(result, bounds)
    return found + list(_answers(result.answers))


def _growing(memory: Sequence[Memory], bounds: Bounds) -> Iterator[str]:
    if all(one.growth is None for one in memory):
        yield "no process lived long enough to tell whether its memory is flat"
    for one in memory:
        if one.growth is not None and one.growth.low > bounds.growth:
            rate = f"{one.growth.low:.0f} MB an hour at least, over {bounds.growth:g}"
            yield f"{one.name} (process {one.pid}) grows by {rate}"
        if one.ratio is not None and one.ratio > bounds.level:
            yield f"{one.name} (process {one.pid}) kept {one.ratio:.1f} times its memory"


def _late(result: Result, bounds: Bounds) -> Iterator[str]:
    if result.recovered is None:
        yield "nothing was delivered before the overload, or nothing after it"
    elif result.recovered > bounds.latency:
        yield f"latency stayed {result.recovered:.1f} times what it was before the overload"


def _answers(answers: Counter[tuple[int, bool]]) -> Iterator[str]:
    if not sum(count for (status, _), count in answers.items() if status == TOO_MANY):
        yield "the overload was none: nobody was answered 429"
    if not sum(count for (status, _), count in answers.items() if status == ACCEPTED):
        yield "the overload was a wall: nobody was answered 202"
    for (status, told), count in sorted(answers.items()):
        if status == TOO_MANY and not told:
            yield f"{count} answers 429 did not say when to come again"
        elif status not in (ACCEPTED, TOO_MANY, UNAVAILABLE, NO_ANSWER):
            yield f"{count} answers {status}"
