"""The scenarios: worlds that a seed decides, by name, and how much goes wrong in them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Final

from fairbox.errors import InvalidInput

from fairbox_simulation.chaos import CALM, Chaos

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.model.topics import OnDead

FAULTS: Final = tuple(field.name for field in fields(Chaos))
"""All faults; each can be left out."""

STORMY: Final = Chaos(
    tables=0.2,
    kills=0.12,
    repeats=0.3,
    interleaved=0.2,
    refused=0.2,
    throttled=0.1,
    away=0.1,
    lost_answers=0.1,
    lost_doorbells=0.1,
    outages=0.1,
    frozen=0.2,
    late=0.05,
    stale=0.6,
    twice=0.2,
)
"""About five times as many faults as there are without a word."""

FAULT_PROFILES: Final = {"": Chaos(), "calm": CALM, "stormy": STORMY}
"""Fault profiles by the option's name; calm: only destinations that refuse."""


@dataclass(frozen=True)
class Scenario:
    """A world that can be simulated for any seed.

    Attributes:
        name: of the scenario.
        summary: what the world has, in a line.
        run: seed, chaos and how many messages -> every breach of a guarantee, each as
            `kind: what exactly`. The same arguments give the same breaches in any process.
        per_world: messages of one world at its natural size.
        faults: of the fields of `Chaos`, those that the world knows.
    """

    name: str
    summary: str
    run: Callable[[int, Chaos, int], list[str]]
    per_world: int = 450
    faults: tuple[str, ...] = FAULTS

    def breaches(self, seed: int, chaos: Chaos, count: int) -> list[str]:
        """Run one world; what it raises breaks a guarantee too."""
        try:
            return self.run(seed, chaos, count)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this seed's
            return [f"raised {type(error).__name__}: {error}"]


def without(chaos: Chaos, faults: Sequence[str]) -> Chaos:
    """Return the chaos with these faults left out.

    Raises:
        InvalidInput: a fault that is none.
    """
    for fault in faults:
        if fault not in FAULTS:
            raise InvalidInput("--without", f"one of {', '.join(FAULTS)}; got {fault!r}")
    return replace(chaos, **{fault: type(getattr(chaos, fault))(0) for fault in faults})


# each world is imported where it is run: most runs need one of them


def _delivery(seed: int, chaos: Chaos, messages: int) -> list[str]:
    from fairbox_simulation.oracle import run  # noqa: PLC0415
    from fairbox_simulation.world import World  # noqa: PLC0415

    return run(World(seed, chaos), messages)


def _ordered(seed: int, chaos: Chaos, messages: int) -> list[str]:
    from fairbox_simulation.ordered_world import run_ordered  # noqa: PLC0415

    on_dead: OnDead = "block" if seed % 2 else "skip"
    return run_ordered(seed, chaos, messages, on_dead).breaches


def _resizing(seed: int, chaos: Chaos, messages: int) -> list[str]:
    from fairbox_simulation.resizing_world import ResizingWorld, run_resizing  # noqa: PLC0415

    return run_resizing(ResizingWorld(seed, chaos), messages)


def _whole(seed: int, chaos: Chaos, messages: int) -> list[str]:
    from fairbox_simulation.whole_run import run_whole  # noqa: PLC0415

    return run_whole(seed, chaos, messages)


def _expiring(seed: int, chaos: Chaos, messages: int) -> list[str]:
    from fairbox_simulation.expiring_world import run_expiring  # noqa: PLC0415

    return run_expiring(seed, chaos, messages)


def _batch_items(seed: int, chaos: Chaos, messages: int) -> list[str]:
    from fairbox_simulation.batch_item_oracle import run_batch_items  # noqa: PLC0415

    return run_batch_items(seed, chaos, messages)


def _loaded(name: str) -> Callable[[int, Chaos, int], list[str]]:
    """Return what runs a world of the load simulation, by its module."""

    def run(seed: int, chaos: Chaos, messages: int) -> list[str]:
        module = import_module(f"fairbox_simulation.load.{name}")
        found: list[str] = getattr(module, f"run_{name}")(seed, chaos, messages)
        return found

    return run


_LOADED: Final = {
    "backlog": (
        "a deep shard; 1, 5 or 60 subscriptions paused, closed (410) or away for hours; delays",
        3000,
        ("lost_doorbells",),
    ),
    "latency": (
        "a fast webhook beside slow ones, an ordered topic beside thirty, limits in flight",
        450,
        (),
    ),
    "rates": ("a backlog that waits for a rate, on 1, 8 or 32 shards", 400, ()),
    "payloads": ("bodies in S3 for 2, 6 or 20 webhooks, whose fetches fail", 24, ("tables",)),
    "tenants": ("1, 60 or 150 topics, while others are created and paused", 2000, ()),
    "attempts": ("messages that 1, 5 or 60 subscriptions refuse until they die", 120, ()),
    "overdue": ("thousands of shards whose doorbells were lost", 3000, ()),
    "adding": ("producers that add again what consumers hold", 40, ()),
}
"""Scenarios of the load simulation: summary, messages of a world, faults that it knows."""

SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "whole",
            "the full system: all of the below, queues with consumers, redrives, cleanup",
            _whole,
            per_world=150,
        ),
        Scenario(
            "expiring",
            "as whole, with queues whose messages expire after a minute",
            _expiring,
            per_world=150,
        ),
        Scenario(
            "delivery",
            "topics of every kind: relay, visits, marking, sweep, repair, cancels, outages",
            _delivery,
        ),
        Scenario(
            "ordered",
            "one ordered topic, late commits, visits at once; odd seeds with on_dead=block",
            _ordered,
            per_world=1200,
            faults=(
                *("tables", "kills", "interleaved", "refused", "throttled", "lost_doorbells"),
                *("frozen", "skew", "twice"),
            ),
        ),
        Scenario(
            "resizing",
            "as delivery, while topics are resized by producers with views of any age",
            _resizing,
            per_world=1200,
        ),
        Scenario(
            "riding",
            "as delivery, with batches whose items are carried by messages, and redrives",
            _batch_items,
            per_world=60,
        ),
        *(
            Scenario(name, summary, _loaded(name), per_world=size, faults=faults)
            for name, (summary, size, faults) in _LOADED.items()
        ),
    )
}
