"""Fuzzes the targets, guided by coverage: `python -m tests.fuzz.guided --minutes 10`.

Each target runs in a process of its own, whose fuzzer (atheris) keeps the inputs that reached new
code under `.local/fuzz`, and begins with them the next time. Where atheris does not run, hypothesis
draws at random for as long.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / ".local" / "fuzz"
_MEGABYTES: Final = 2048
_INPUT_SECONDS: Final = 20
_ROUND: Final = 500


def guide(name: str, seconds: int, folder: Path) -> None:
    """Fuzz one target in this process, which ends in it; the first finding ends it with 77."""
    import atheris  # noqa: PLC0415 - instruments what is imported after it

    with atheris.instrument_imports(include=["fairbox"]):
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - see above

    one_input = settings(suppress_health_check=list(HealthCheck), deadline=None, database=None)(
        TARGETS[name]
    ).hypothesis.fuzz_one_input  # type: ignore[attr-defined]  # hypothesis adds it
    corpus = folder / name
    corpus.mkdir(parents=True, exist_ok=True)
    arguments = [
        f"fuzz-{name}",
        str(corpus),
        f"-artifact_prefix={corpus}/../{name}.",
        f"-max_total_time={seconds}",
        f"-timeout={_INPUT_SECONDS}",
        f"-rss_limit_mb={_MEGABYTES}",
        "-max_len=4096",
        "-len_control=0",  # short inputs draw nothing
        "-print_final_stats=1",
    ]
    atheris.Setup(arguments, one_input)
    atheris.Fuzz()


def at_random(name: str, seconds: int) -> int:
    """Draw for one target until the time is over; return how many examples were drawn."""
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - as `guide` does

    end = time.monotonic() + seconds
    chosen = settings(
        max_examples=_ROUND, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    run: Callable[[], None] = chosen(TARGETS[name])
    rounds = 0
    while time.monotonic() < end:
        run()
        rounds += 1
    return rounds * _ROUND


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz the targets one after the other; return 1 when one of them found something."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="in all (%(default)s)")
    parser.add_argument("--target", action="append", help="one of them; else all")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of inputs (%(default)s)")
    chosen = parser.parse_args(arguments)
    guided = importlib.util.find_spec("atheris") is not None
    if chosen.only:
        if guided:
            guide(chosen.only, chosen.seconds, chosen.folder)
        else:
            at_random(chosen.only, chosen.seconds)
        return 0
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - the children import it instrumented

    wanted = chosen.target or sorted(TARGETS)
    if unknown := set(wanted) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}: {', '.join(sorted(TARGETS))}")
    seconds = max(1, round(chosen.minutes * 60 / len(wanted)))
    print(f"{len(wanted)} targets, {seconds} s each, {'guided' if guided else 'at random'}")
    found = [name for name in wanted if not _survives(name, seconds, chosen.folder)]
    print(f"found something: {', '.join(found)}" if found else "nothing found")
    return 1 if found else 0


def _survives(name: str, seconds: int, folder: Path) -> bool:
    log = folder / f"{name}.log"
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.guided", "--only", name]
    command += ["--seconds", str(seconds), "--folder", str(folder)]
    # found on the path, and not by an editable install's own finder, modules are instrumented
    environment = os.environ | {"PYTHONPATH": str(ROOT / "layers" / "fairbox" / "python")}
    with log.open("wb") as output:
        code = subprocess.run(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=environment,
            check=False,
        ).returncode
    told = log.read_text(errors="replace").splitlines()
    runs = next((line.split()[-1] for line in told if "number_of_executed_units" in line), "")
    verdict = "nothing" if code == 0 else f"FOUND, see {log}"
    print(f"{name}: {verdict}, {runs or '?'} inputs", flush=True)
    return code == 0


if __name__ == "__main__":
    sys.exit(main())
