"""Rehearse a deployment on paper: `python -m scripts.rehearsal [--setting NAME]`.

The exit code is 0 if CloudFormation would refuse nothing and nothing would be lost, else 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from scripts.rehearsal import plan
from scripts.rehearsal.accepted import ACCEPTED
from scripts.rehearsal.report import Report
from scripts.rehearsal.synthesis import synthesise_all
from scripts.rehearsal.templates import ROOT, previous_release, read_stored
from scripts.rehearsal.variations import NoValuesError, Overrides, variations
from stacks.assets import AssetError, library_version
from stacks.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if something is refused, 2 if nothing could be rehearsed."""
    parser = argparse.ArgumentParser(prog="make rehearse", description=__doc__)
    parser.add_argument("--setting", help="rehearse this setting alone")
    chosen = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        report = rehearse(chosen.setting)
    except (AssetError, ConfigError, NoValuesError) as error:
        print(f"fairbox: {error}", file=sys.stderr)
        return 2
    for line in report.lines():
        print(line)
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if report.refused or report.superfluous else 0


def rehearse(setting: str | None = None) -> Report:
    """Rehearse everything, or one setting alone."""
    chosen = [(name, values) for name, values in variations() if setting in {None, name}]
    if not chosen:
        raise NoValuesError(f"{setting} is not a setting")
    wanted: list[Overrides] = [{}, *(one for _, values in chosen for one in values)]
    default, *others = synthesise_all(wanted)
    pairs = iter(zip(wanted[1:], others, strict=True))
    steps: list[plan.Step] = []
    if setting is None:
        steps += plan.creation(default)
    for name, values in chosen:
        steps += plan.change(name, default, [next(pairs) for _ in values])
    if setting is None:
        before = previous_release(library_version(ROOT))
        steps += plan.upgrade(before.stem, read_stored(before), default)
    return Report(steps=steps, accepted=ACCEPTED, whole=setting is None)


if __name__ == "__main__":
    sys.exit(main())
