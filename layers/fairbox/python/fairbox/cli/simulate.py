"""`fairbox simulate`: worlds under faults, against the guarantees; failing seeds made small."""

from __future__ import annotations

import math
import os
import time
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fairbox.cli.progress import progress
from fairbox.cli.session import FAILED, Session
from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox_simulation.reproduction import Finding
    from fairbox_simulation.runner import Part, Plan, Tally
    from fairbox_simulation.scenarios import Scenario

# the worlds are imported when they are run: no other verb waits for them

COUNT: Final = 10_000
_SHOWN: Final = 10


def simulate(
    session: Session,
    *,
    scenario: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which worlds; `--list` names them.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the first world.")] = 0,
    messages: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"Messages (of scenario `batches`: batches) in all, {COUNT:,} by default; with"
            " `--seeds`, of each world.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="So many worlds; by default as many as it takes."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="W", help="Processes; one a core by default.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, metavar="M", help="Begin no more worlds after so many.")
    ] = None,
    calm: Annotated[
        bool, typer.Option("--calm", help="Only destinations that refuse go wrong.")
    ] = False,
    stormy: Annotated[
        bool, typer.Option("--stormy", help="About five times as much goes wrong.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="FAULT", help="A fault to leave out; may be repeated."),
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink/--no-shrink", help="Make failing worlds small.")
    ] = True,
    names: Annotated[
        bool, typer.Option("--list", help="Name the scenarios and the faults, and end.")
    ] = False,
) -> None:
    """Run the application in memory under faults that a seed decides.

    A seed that breaks a guarantee is named with the command that replays it.
    """
    from fairbox_simulation import scenarios  # noqa: PLC0415 - see above
    from fairbox_simulation.reproduction import FaultOptions, findings  # noqa: PLC0415 - see above
    from fairbox_simulation.runner import Plan  # noqa: PLC0415 - see above

    if names:
        _list(session, list(scenarios.SCENARIOS.values()))
        return
    if calm and stormy:
        raise InvalidInput("--calm", "one of --calm and --stormy; got both")
    chosen = scenarios.scenario_of(scenario)
    left_out = tuple(dict.fromkeys(name.replace("-", "_") for name in without or ()))
    profile = "calm" if calm else "stormy" if stormy else ""
    chaos = scenarios.without(scenarios.FAULT_PROFILES[profile], left_out)
    if chosen.needs:
        import_module(chosen.needs)
    count = messages or (COUNT if seeds is None else chosen.per_world)
    plan = Plan(chosen, chaos, seed, count, seeds)
    began = time.monotonic()
    until = math.inf if minutes is None else began + minutes * 60
    tally = _run(session, plan, workers or os.cpu_count() or 1, until)
    seconds = time.monotonic() - began
    broken = findings(plan, FaultOptions(profile, left_out), tally, shrink=shrink)
    _tell(session, plan, tally, list(islice(broken, _SHOWN)), seconds)
    if tally.broken:
        raise typer.Exit(FAILED)


def _run(session: Session, plan: Plan, workers: int, until: float) -> Tally:
    from fairbox_simulation.runner import run_all  # noqa: PLC0415 - see above

    with progress(plan.scenario.unit, plan.total) as done:

        def told(tally: Tally, part: Part) -> None:
            done(tally.count)
            for failure in part.failures:
                if tally.broken <= _SHOWN:
                    session.note(f"seed {failure.share.seed}: {failure.breaches[0]}")

        return run_all(plan, workers=workers, late=lambda: time.monotonic() >= until, told=told)


def _tell(session: Session, plan: Plan, tally: Tally, found: list[Finding], seconds: float) -> None:
    fields = {
        "scenario": plan.scenario.name,
        "seed": plan.seed,
        "worlds": tally.worlds,
        plan.scenario.unit: tally.count,
        "broken": tally.broken,
        "failures": [finding.fields() for finding in found],
        "seconds": round(seconds, 1),
    }
    text = "".join(_told(finding, plan.scenario) for finding in found)
    worlds = f"{tally.worlds:,} worlds from seed {plan.seed} on"
    broken = f"{tally.broken:,} broke a guarantee" if tally.broken else "every guarantee held"
    text += f"{tally.count:,} {plan.scenario.unit} of {plan.scenario.name} in {worlds}: {broken}"
    if tally.count < plan.total:
        text += f"; {plan.total - tally.count:,} were left"
    session.show(fields, text)


def _told(finding: Finding, scenario: Scenario) -> str:
    failure = finding.failure
    lines = [f"seed {failure.share.seed} breaks guarantees; again: {finding.command}"]
    lines += _breaches(failure.breaches)
    shrunk = finding.shrunk
    if shrunk is not None:
        what = f"{shrunk.case.count} {scenario.unit}"
        if shrunk.case.left_out:
            what += f", without {', '.join(shrunk.case.left_out)}"
        lines.append(f"smallest ({what}, after {shrunk.runs} more runs): {finding.smallest}")
        lines += _breaches(shrunk.breaches)
    return "\n".join([*lines, ""])


def _breaches(breaches: Sequence[str]) -> list[str]:
    more = len(breaches) - _SHOWN
    return [f"  {b}" for b in breaches[:_SHOWN]] + [f"  and {more} more"] * (more > 0)


def _list(session: Session, scenarios: list[Scenario]) -> None:
    if session.json:
        session.show({"scenarios": [_described(scenario) for scenario in scenarios]})
        return
    for scenario in scenarios:
        session.show({}, f"{scenario.name:<10}{scenario.summary}")
        each = f"{scenario.per_world} {scenario.unit} a world"
        session.show({}, f"{'':<10}{each}; faults: {', '.join(scenario.faults)}")


def _described(scenario: Scenario) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "summary": scenario.summary,
        "unit": scenario.unit,
        "per_world": scenario.per_world,
        "faults": list(scenario.faults),
    }
