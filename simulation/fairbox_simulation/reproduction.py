"""The commands that replay what broke a guarantee, as it was and as small as it gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairbox_simulation.runner import Failure, Share
from fairbox_simulation.scenarios import kind_of
from fairbox_simulation.shrinker import Case, Shrinker, Shrunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox_simulation.runner import Plan, Tally
    from fairbox_simulation.scenarios import Scenario


@dataclass(frozen=True)
class FaultOptions:
    """The options that chose the faults of a run.

    Attributes:
        name: of `FAULT_PROFILES`.
        left_out: faults left out of it.
    """

    name: str = ""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """A world that broke a guarantee.

    Attributes:
        kind: of its first breach.
        failure: the world.
        command: replays it.
        shrunk: a smaller one that breaks the same guarantee; None: nobody looked for one.
        smallest: replays that.
    """

    kind: str
    failure: Failure
    command: str
    shrunk: Shrunk | None = None
    smallest: str = ""

    def fields(self) -> dict[str, object]:
        """Return all of it as JSON has it."""
        found: dict[str, object] = {
            "seed": self.failure.share.seed,
            "count": self.failure.share.count,
            "kind": self.kind,
            "breaches": list(self.failure.breaches),
            "command": self.command,
        }
        if self.shrunk is not None:
            found["smallest"] = {
                "count": self.shrunk.case.count,
                "without": list(self.shrunk.case.left_out),
                "breaches": list(self.shrunk.breaches),
                "command": self.smallest,
                "runs": self.shrunk.runs,
            }
        return found


def command(scenario: Scenario, share: Share, options: FaultOptions) -> str:
    """Return the command line that runs this one world."""
    words = [f"fairbox simulate --scenario {scenario.name} --seed {share.seed}"]
    words.append(f"--messages {share.count}")
    if share.count > scenario.per_world:
        words.append("--seeds 1")
    if options.name:
        words.append(f"--{options.name}")
    words += [f"--without {fault}" for fault in options.left_out]
    return " ".join(words)


def findings(plan: Plan, options: FaultOptions, tally: Tally, *, shrink: bool) -> Iterator[Finding]:
    """Yield the failures of the lowest seeds, until each kind of breach has one."""
    told: set[str] = set()
    failures = {failure.share.seed: failure for failure in tally.first.values()}
    for _, failure in sorted(failures.items()):
        kinds = list(dict.fromkeys(map(kind_of, failure.breaches)))
        new = [kind for kind in kinds if kind not in told]
        if new:
            told.update(kinds)
            yield _finding(plan, options, failure, new[0], shrink=shrink)


def _finding(
    plan: Plan, options: FaultOptions, failure: Failure, kind: str, *, shrink: bool
) -> Finding:
    share = failure.share
    again = command(plan.scenario, share, options)
    if not shrink:
        return Finding(kind, failure, again)
    shrinker = Shrinker(plan.scenario, share.seed, plan.chaos, kind)
    shrunk = shrinker.shrink(Case(share.count), failure.breaches)
    smaller = Share(share.seed, shrunk.case.count)
    simpler = FaultOptions(options.name, (*options.left_out, *shrunk.case.left_out))
    return Finding(kind, failure, again, shrunk, command(plan.scenario, smaller, simpler))
