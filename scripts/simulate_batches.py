"""Simulates many batches under faults; names each seed that breaks a promise."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairbox.simulation.batches.world import FAIR, STORMY, World, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 500
SHOWN = 10


class Part(NamedTuple):
    """What a range of seeds came to: batches, and seeds with what they broke."""

    batches: int
    broken: list[tuple[int, list[str]]]


def run(seeds: range, *, stormy: bool) -> Part:
    """Simulate a range of seeds."""
    world = World(STORMY if stormy else FAIR)
    broken = [(seed, breaches) for seed, breaches in simulate(world, seeds) if breaches]
    return Part(world.batches, broken)


def parts(first: int, batches: int, workers: int, *, until: float, stormy: bool) -> Iterator[Part]:
    """Yield parts until so many batches are simulated, or it is too late to begin another."""
    size = min(CHUNK, batches)
    with ProcessPoolExecutor(workers) as pool:
        starts = itertools.count(first, size)
        running: set[Future[Part]] = set()
        done = 0
        while done < batches:
            late = time.monotonic() >= until
            while not late and len(running) < workers and done + len(running) * size < batches:
                start = next(starts)
                running.add(pool.submit(run, range(start, start + size), stormy=stormy))
            if not running:
                return
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                done += future.result().batches
                yield future.result()


def main(arguments: list[str] | None = None) -> int:
    """Run; return 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=1_000_000, help="how many batches at least")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; each is its own run")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--minutes", type=float, default=math.inf, help="for so long at most")
    parser.add_argument("--stormy", action="store_true", help="five times as many faults")
    given = parser.parse_args(arguments)
    if min(given.batches, given.workers) < 1:
        parser.error("--batches and --workers are whole numbers from 1")
    console, began, done = Console(), time.monotonic(), 0
    broken: list[tuple[int, list[str]]] = []
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(),
               TimeElapsedColumn(), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("batches", total=given.batches)
        until = began + given.minutes * 60
        for part in parts(
            given.seed, given.batches, given.workers, until=until, stormy=given.stormy
        ):
            done += part.batches
            progress.update(task, completed=min(done, given.batches))
            for seed, breaches in part.broken:
                storm = " --stormy" if given.stormy else ""
                console.print(f"seed {seed} (again: --seed {seed} --batches 1{storm})")
                for breach in breaches[:SHOWN]:
                    console.print(f"  {breach}")
            broken += part.broken
    seconds = time.monotonic() - began
    console.print(
        f"{done} batches in {seconds:.0f} s: {len(broken)} seeds broke a promise", highlight=False
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
