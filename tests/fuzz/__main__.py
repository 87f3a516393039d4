"""Fuzzes the HTTP API: `python -m tests.fuzz --cases 10000`, and says what it found."""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import TYPE_CHECKING

from tests.fuzz.api import Findings, run_at, run_in_process

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXAMPLES = 20  # of an operation and phase in a round, after which it tells what it found
_AGAIN = {"coverage": {"enabled": False}, "examples": {"enabled": False}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until so many cases were sent; return 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="at least (%(default)s)")
    parser.add_argument("--seed", type=int, help="of the first round; printed")
    parser.add_argument("--url", help="of an application that runs, such as http://127.0.0.1:8080")
    chosen = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if chosen.seed is None else chosen.seed
    print(f"{chosen.cases} cases from seed {seed}", flush=True)
    findings = Findings()
    began = time.monotonic()
    while findings.cases.total() < chosen.cases:
        phases = _AGAIN if findings.cases else {}
        if chosen.url:
            run_at(chosen.url, findings, examples=_EXAMPLES, seed=seed, phases=phases)
        else:
            run_in_process(findings, examples=_EXAMPLES, seed=seed, phases=phases)
        seconds = time.monotonic() - began
        told = (
            f"{findings.cases.total()} cases in {seconds:.0f} s, {len(findings.failures)} findings"
        )
        print(f"seed {seed}: {told}", *findings.failures, sep="\n  ", flush=True)
        seed += 1
    show(findings)
    return 0 if findings.good else 1


def show(findings: Findings) -> None:
    """Print what was found, and how deep the requests reached."""
    for name, shown in sorted(findings.failures.items()):
        print(f"\n* {name}\n{shown}")
    for error in dict.fromkeys(findings.errors):
        print(f"\n! {error}")
    print(f"\ncases: {dict(findings.cases)}")
    print(f"answers: {dict(sorted(findings.statuses.items()))}")
    print(f"excused: {dict(findings.excused)}")
    print(f"found: {len(findings.failures)} failures, {len(set(findings.errors))} errors")


if __name__ == "__main__":
    sys.exit(main())
