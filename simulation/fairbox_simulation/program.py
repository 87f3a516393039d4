"""The program: worlds under faults that a seed decides, against the guarantees.

A seed that breaks a guarantee is named with the command that repeats it to the last call.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.errors import InvalidInput

from fairbox_simulation.scenarios import FAULT_PROFILES, SCENARIOS, without

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COUNT: Final = 10_000
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class World:
    """One world of a run: its scenario, seed, number of messages, and faults."""

    scenario: str
    seed: int
    messages: int
    profile: str = ""
    left_out: tuple[str, ...] = ()

    def breaches(self) -> list[str]:
        """Run it; return every breach of a guarantee."""
        chaos = without(FAULT_PROFILES[self.profile], self.left_out)
        return SCENARIOS[self.scenario].breaches(self.seed, chaos, self.messages)

    @property
    def command(self) -> str:
        """The command that runs this world alone."""
        words = [f"python -m fairbox_simulation --scenario {self.scenario} --seed {self.seed}"]
        words += [f"--seeds 1 --messages {self.messages}"]
        words += [f"--{self.profile}"] * bool(self.profile)
        words += [f"--without {fault}" for fault in self.left_out]
        return " ".join(words)


def worlds(
    name: str, *, seed: int, messages: int | None, seeds: int | None, profile: str,
    left_out: tuple[str, ...],
) -> Iterator[World]:  # fmt: skip
    """Yield the worlds of a run.

    Args:
        name: of the scenario.
        seed: of the first world; the others have the next ones.
        messages: in all, of worlds of the natural size; with `seeds`, of each world.
        seeds: number of worlds.
        profile: of the faults: empty, `calm` or `stormy`.
        left_out: faults.
    """
    natural = SCENARIOS[name].per_world
    if seeds is not None:
        for number in range(seeds):
            yield World(name, seed + number, messages or natural, profile, left_out)
        return

    left = messages or COUNT
    while left > 0:
        yield World(name, seed, min(natural, left), profile, left_out)
        seed, left = seed + 1, left - natural


def run(world: World) -> tuple[World, list[str]]:
    """Run a world; return it with its breaches."""
    return world, world.breaches()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worlds that the arguments ask for; return 1 when one broke a guarantee."""
    parser = argparse.ArgumentParser(prog="python -m fairbox_simulation", description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the scenarios, and end")
    parser.add_argument("--scenario", metavar="NAME", choices=SCENARIOS, help="which worlds")
    parser.add_argument("--seed", type=int, default=0, help="of the first world")
    parser.add_argument(
        "--messages", type=_positive, metavar="N", help=f"in all ({COUNT:,}); with --seeds, of each"
    )
    parser.add_argument("--seeds", type=_positive, metavar="K", help="number of worlds")
    parser.add_argument(
        "--workers", type=_positive, default=os.cpu_count(), help="processes; one a core"
    )
    profile = parser.add_mutually_exclusive_group()
    for name in FAULT_PROFILES:
        if name:
            profile.add_argument(f"--{name}", dest="profile", action="store_const", const=name)
    parser.add_argument(
        "--without", action="append", default=[], metavar="FAULT", help="leave a fault out"
    )
    chosen = parser.parse_args(arguments)
    if chosen.list:
        for scenario in SCENARIOS.values():
            print(f"{scenario.name:<10}{scenario.summary}; {scenario.per_world} messages a world")
        return 0

    if chosen.scenario is None:
        parser.error(f"--scenario: expected one of {', '.join(SCENARIOS)}")
    left_out = tuple(dict.fromkeys(name.replace("-", "_") for name in chosen.without))
    try:
        without(FAULT_PROFILES[""], left_out)
    except InvalidInput as error:
        parser.error(str(error))
    wanted = worlds(
        chosen.scenario, seed=chosen.seed, messages=chosen.messages, seeds=chosen.seeds,
        profile=chosen.profile or "", left_out=left_out,
    )  # fmt: skip
    return _run(list(wanted), chosen.workers)


def _run(wanted: Sequence[World], workers: int) -> int:
    """Run worlds, and say what they broke."""
    broken = 0
    for world, breaches in _results(wanted, workers):
        if not breaches:
            continue
        broken += 1
        print(f"seed {world.seed} breaks guarantees; again: {world.command}")
        more = [f"and {len(breaches) - _SHOWN} more"] * (len(breaches) > _SHOWN)
        print(*(f"  {text}" for text in [*breaches[:_SHOWN], *more]), sep="\n", flush=True)

    messages = sum(world.messages for world in wanted)
    told = f"{broken:,} broke a guarantee" if broken else "every guarantee held"
    print(f"{messages:,} messages of {wanted[0].scenario} in {len(wanted):,} worlds: {told}")
    return 1 if broken else 0


def _results(wanted: Sequence[World], workers: int) -> Iterator[tuple[World, list[str]]]:
    if workers == 1 or len(wanted) == 1:
        yield from map(run, wanted)
        return
    # children that share nothing: a fork would copy whatever threads hold at the moment
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=_begin) as pool:
        yield from pool.map(run, wanted)


def _begin() -> None:
    """Leave an interrupt to the process that waits, which ends the others; log no fault."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.ERROR)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1; got {text}")
    return number
