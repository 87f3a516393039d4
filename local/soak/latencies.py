"""Latency from publishing to the takers, by the phase in which a message was published."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from fairbox import MessageRef
from fairbox.model.ids import time_of

from local.accounting import journal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from local.accounting.evidence import Evidence
    from local.soak.phases import Phase

_NANOSECONDS: Final = 1e9
_MILLISECONDS: Final = 1e3


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from publishing to the first arrival, of the messages published in a phase."""

    count: int
    p50: float
    p99: float


def delayed(journals: Path) -> set[str]:
    """Return the names of the delayed messages, from their refs."""
    lines = journal.read_all(journals / "producers")
    return {line["n"] for line in lines if line["t"] == "ok" and _is_delayed(line["ref"])}


def _is_delayed(ref: str) -> bool:
    return MessageRef.parse(ref).due is not None


def latencies(
    found: Evidence, phases: Mapping[str, Phase], *, ahead: float, but: Collection[str] = ()
) -> dict[str, Latency | None]:
    """Return the latency of each phase; None if nothing was published in it.

    Args:
        found: publishing and arrivals.
        phases: on the monotonic clock.
        ahead: seconds by which the wall clock, used in ids, is ahead of the monotonic one.
        but: names to leave out.
    """
    by_phase: dict[str, list[float]] = {name: [] for name in phases}
    for begun, taken in _journeys(found, ahead, but):
        for name, phase in phases.items():
            if phase.measures(begun):
                by_phase[name].append(taken - begun)
    return {name: _of(sorted(values)) for name, values in by_phase.items()}


def _journeys(found: Evidence, ahead: float, but: Collection[str]) -> Iterator[tuple[float, float]]:
    """Yield times of publishing and first arrival of each acknowledged message, for each taker."""
    for (_, _, name), arrivals in found.arrivals.items():
        if name not in found.acked or name in but:
            continue
        begun = time_of(found.acked[name]) / _MILLISECONDS - ahead
        yield begun, min(arrival.at for arrival in arrivals) / _NANOSECONDS


def _of(values: Sequence[float]) -> Latency | None:
    if not values:
        return None
    return Latency(len(values), median(values), values[len(values) * 99 // 100])
