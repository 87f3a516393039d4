"""Write the tables of `docs/explanation/costs.md` from the meter, or check them (`--check`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import topics
from benchmarks.cost_scenarios import SCENARIOS, measure
from scripts.marked_parts import run

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS: Final = 20


def _kinds() -> Iterator[str]:
    """Yield the table of kinds of topics."""
    yield "| destinations, and use | WRU | RRU | calls to the database | calls to destinations |"
    yield "|---|---|---|---|---|"
    for scenario in SCENARIOS:
        cost = measure(scenario)
        values = (cost.wru, cost.rru, cost.calls, cost.sends)
        yield f"| {scenario.title} | " + " | ".join(f"{value:.2f}" for value in values) + " |"


def _topics() -> Iterator[str]:
    """Yield the table of reads by number of topics."""
    found, _ = topics.figures(seconds=_SECONDS, destinations=(False,))
    values = {figure.name: figure.value for figure in found}
    functions = ("relay", "mark", "producer")
    yield (
        "| topics | administration | `relay` | `mark_delivered` | producers | in all "
        "| a process's start |"
    )
    yield "|---|---|---|---|---|---|---|"
    for size in topics.SIZES:
        start = values[f"topics.queues.quiet.at_{size}.rru_of_a_start"]
        for mood, shown in (("quiet", "none"), ("changing", "each 10 s")):
            place = f"topics.queues.{mood}.at_{size}.rru_per_message"
            own = [values[f"{place}.{name}"] for name in functions]
            row = [f"{value:.3f}" for value in (*own, sum(own))]
            yield f"| {size:,} | {shown} | {' | '.join(row)} | {start:.0f} |"


PAGES: Final = {"docs/explanation/costs.md": {"kinds": _kinds, "topics": _topics}}

if __name__ == "__main__":
    sys.exit(run("write_costs.py", PAGES))
