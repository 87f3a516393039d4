"""Runs the simulation of the application under faults for many seeds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairbox.simulation.chaos import CALM, Chaos
from fairbox.simulation.oracle import run
from fairbox.simulation.ordered import run_ordered
from fairbox.simulation.resizing import ResizingWorld, run_resizing
from fairbox.simulation.rider_oracle import run_riding
from fairbox.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.topics import OnDead

SHOWN = 10


def of_delivery(seed: int, chaos: Chaos, messages: int) -> list[str]:
    """Relay, visits, sweep and repair of several topics."""
    return run(World(seed, chaos), messages)


def of_order(seed: int, chaos: Chaos, messages: int) -> list[str]:
    """One ordered topic; odd seeds with on_dead=block."""
    on_dead: OnDead = "block" if seed % 2 else "skip"
    return run_ordered(seed, chaos, messages, on_dead).breaches


def of_resizes(seed: int, chaos: Chaos, messages: int) -> list[str]:
    """Topics that are resized in storms."""
    return run_resizing(ResizingWorld(seed, chaos), messages)


WORLDS: Final[dict[str, Callable[[int, Chaos, int], list[str]]]] = {
    "delivery": of_delivery,
    "riding": run_riding,
    "ordered": of_order,
    "resizing": of_resizes,
}


def main() -> int:
    """Run the seeds; name each that breaks a promise, and how to run it again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--messages", type=int, default=300, help="messages of each")
    parser.add_argument("--calm", action="store_true", help="only destinations that refuse")
    worlds = parser.add_mutually_exclusive_group()
    for name, text in (
        ("riding", "with batches that ride on messages"),
        ("ordered", "an ordered topic; odd seeds with on_dead=block"),
        ("resizing", "with topics that are resized in storms"),
    ):
        worlds.add_argument(f"--{name}", dest="world", action="store_const", const=name, help=text)
    given = parser.parse_args()
    chaos = CALM if given.calm else Chaos()
    world = given.world or "delivery"
    broken = 0
    for seed in tqdm(range(given.first, given.first + given.seeds), unit="seed", disable=None):
        breaches = WORLDS[world](seed, chaos, given.messages)
        if not breaches:
            continue
        broken += 1
        again = f"--first {seed} --seeds 1 --messages {given.messages}"
        print(f"seed {seed}: {len(breaches)} breaches ({again})")
        for breach in breaches[:SHOWN]:
            print(f"  {breach}")
    print(f"{given.seeds} seeds of {given.messages} messages: {broken} broke a promise")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
