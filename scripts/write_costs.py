"""Write the tables of `docs/explanation/costs.md` from the meter, or check them (`--check`)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import topics
from benchmarks.cost_scenarios import SCENARIOS, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PAGE: Final = Path(__file__).resolve().parent.parent / "docs/explanation/costs.md"
_NOTE: Final = "<!-- written by scripts/write_costs.py: {} -->"
_END: Final = "<!-- end -->"
_SECONDS: Final = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables; with `--check` write nothing, and return 1 when one is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when stale")
    parser.add_argument("--page", type=Path, default=PAGE, help="where to (%(default)s)")
    chosen = parser.parse_args(arguments)
    before = chosen.page.read_text(encoding="utf-8")
    text = before
    for name, table in TABLES.items():
        text = _replaced(text, name, table())
    if text == before:
        return 0
    if chosen.check:
        print(f"{chosen.page.name}: stale: run scripts/write_costs.py")
        return 1
    chosen.page.write_text(text, encoding="utf-8")
    print(f"{chosen.page.name}: written")
    return 0


def _replaced(text: str, name: str, lines: Iterator[str]) -> str:
    """Return a page with the lines between the marks of a table."""
    note = _NOTE.format(name)
    head, found, rest = text.partition(f"{note}\n")
    if not found:
        raise SystemExit(f"write_costs: the page has no line {note}")
    _, _, tail = rest.partition(_END)
    return f"{head}{note}\n\n" + "\n".join(lines) + f"\n\n{_END}{tail}"


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


TABLES: Final[dict[str, Callable[[], Iterator[str]]]] = {"kinds": _kinds, "topics": _topics}

if __name__ == "__main__":
    sys.exit(main())
