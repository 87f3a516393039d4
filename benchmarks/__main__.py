"""`python -m benchmarks [NAME ...]`: runs benchmarks, prints their figures, writes them as JSON."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Final

from benchmarks import (
    batches,
    cold_start,
    cost,
    cost_scenarios,
    fairness,
    feeds,
    latency,
    pipeline,
    queue,
    throughput,
    topics,
)
from benchmarks.figures import Figure, show, write
from local.workspace import LocalError, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Measured = tuple[list[Figure], list[str]]  # figures, and what is wrong with them


BENCHMARKS: Final[Mapping[str, Callable[[], Measured]]] = {
    "cost": lambda: ([*cost.figures(), *cost_scenarios.figures()], []),
    "batches": lambda: (batches.figures(), []),
    "queue": lambda: (queue.figures(), []),
    "topics": topics.figures,
    "cold_start": lambda: (cold_start.figures(), []),
    "throughput": throughput.figures,
    "fairness": lambda: (fairness.figures(), []),
    "feeds": lambda: (feeds.figures(), []),
    "latency": lambda: (latency.figures(), []),
    "pipeline": lambda: (pipeline.figures(), []),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the named benchmarks, or all; return 1 if a figure cannot be trusted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"{', '.join(BENCHMARKS)}; none: all of them")
    names = parser.parse_args(arguments).name or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}")
    workspace = Workspace()
    wrong: list[str] = []
    for name in names:
        began = time.monotonic()
        print(f"fairbox: benchmark {name}", flush=True)
        try:
            figures, faults = BENCHMARKS[name]()
        except LocalError as error:
            print(f"fairbox: {error}", file=sys.stderr)
            return 1
        file = workspace.root / "bench" / f"{name}.json"
        write(figures, file)
        show(f"{name} ({time.monotonic() - began:.0f} s)", figures)
        wrong += [f"{name}: {fault}" for fault in faults]
    for fault in wrong:
        print(f"fairbox: {fault}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
