"""Runs the simulation of the application under faults for many seeds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.simulation.chaos import CALM, Chaos
from tests.simulation.oracle import run
from tests.simulation.ordered import run_ordered
from tests.simulation.rider_oracle import run_riding
from tests.simulation.world import World

if TYPE_CHECKING:
    from fairbox.topics import OnDead

SHOWN = 10


def main() -> int:
    """Run the seeds; name each that breaks a promise, and how to run it again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--messages", type=int, default=300, help="messages of each")
    parser.add_argument("--calm", action="store_true", help="only destinations that refuse")
    parser.add_argument("--riding", action="store_true", help="with batches that ride on messages")
    parser.add_argument(
        "--ordered", action="store_true", help="an ordered topic; odd seeds with on_dead=block"
    )
    given = parser.parse_args()
    chaos = CALM if given.calm else Chaos()
    broken = 0
    for seed in tqdm(range(given.first, given.first + given.seeds), unit="seed", disable=None):
        if given.riding:
            breaches = run_riding(seed, chaos, given.messages)
        elif given.ordered:
            on_dead: OnDead = "block" if seed % 2 else "skip"
            breaches = run_ordered(seed, chaos, given.messages, on_dead).breaches
        else:
            breaches = run(World(seed, chaos), given.messages)
        if not breaches:
            continue
        broken += 1
        print(f"seed {seed}: {len(breaches)} breaches (--first {seed} --seeds 1)")
        for breach in breaches[:SHOWN]:
            print(f"  {breach}")
    print(f"{given.seeds} seeds of {given.messages} messages: {broken} broke a promise")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
