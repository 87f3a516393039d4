"""The pipeline's figures: rows a second, growth, memory, reruns.

Every run is a process of its own on two cores, without the start of the JVM. The fixed cost of a
run (creating tables, compiling queries) is that of an archive of a hundred events; the rest of a
run's time grows with the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure, show
from benchmarks.pipeline_archive import write_archive
from local.workspace import LocalError, Workspace

SIZES: Final = (200_000, 2_000_000, 5_000_000)
FEW: Final = 100
CORES: Final = 2
_SECONDS: Final = 3_600
_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Run:
    """One run of job `history`: seconds without the start, peak memory of all processes."""

    seconds: float
    peak_mb: float
    events: int


def figures(sizes: tuple[int, ...] = SIZES) -> list[Figure]:
    """Measure archives of so many lines.

    Raises:
        LocalError: a run fails.
    """
    folder = Workspace().root / "bench" / "pipeline"
    fixed = _history(_archive(folder, FEW), folder / "w").seconds
    rows = [Figure("pipeline.fixed_seconds", "s", fixed)]
    marginal: dict[int, float] = {}
    for size in sizes:
        archive = _archive(folder, size)
        first = _history(archive, folder / "w")
        again = _history(archive, folder / "w", keep=True)
        marginal[size] = (first.seconds - fixed) / size * 1e6
        name = f"pipeline.{size}"
        base = marginal[sizes[0]]
        rows += [
            Figure(f"{name}.seconds", "s", first.seconds),
            Figure(f"{name}.rows_per_second", "1/s", size / first.seconds),
            Figure(f"{name}.us_per_row", "us", marginal[size], base, f"{sizes[0]} rows"),
            Figure(f"{name}.peak_memory", "MB", first.peak_mb),
            Figure(f"{name}.second_run", "s", again.seconds, first.seconds, "first run"),
        ]
        shutil.rmtree(archive)
    shutil.rmtree(folder)
    return rows


def _archive(folder: Path, events: int) -> Path:
    archive = folder / f"archive-{events}"
    shutil.rmtree(archive, ignore_errors=True)
    write_archive(archive, events)
    return archive


def _history(archive: Path, warehouse: Path, *, keep: bool = False) -> Run:
    if not keep:
        shutil.rmtree(warehouse, ignore_errors=True)
    command = [str(Path(sys.executable).with_name("fairbox-pipeline")), "history", "--json"]
    command += ["--archive", str(archive), "--warehouse", str(warehouse)]
    out, err, peak = _measured(command)
    told = err.partition(" files in ")[2].partition(" s;")[0]
    return Run(float(told), peak, json.loads(out)["events"])


def _measured(command: list[str]) -> tuple[str, str, float]:
    """Run on two cores; return standard output and error, and the peak memory of all processes."""
    cores = set(sorted(os.sched_getaffinity(0))[:CORES])
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),  # noqa: PLW1509 - no thread runs yet
    )
    peak = [0.0]
    watcher = threading.Thread(target=_watch, args=(process, peak), daemon=True)
    watcher.start()
    out, err = process.communicate(timeout=_SECONDS)
    watcher.join()
    if process.returncode:
        raise LocalError(f"{' '.join(command[:2])} failed: {err.strip().splitlines()[-1:]}")
    return out, err, peak[0]


def _watch(process: subprocess.Popen[str], peak: list[float]) -> None:
    while process.poll() is None:
        peak[0] = max(peak[0], _resident_mb(process.pid))
        time.sleep(_LOOK_SECONDS)


def _resident_mb(session: int) -> float:
    """Return the resident memory of a session's processes; shared pages count for each."""
    pages = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            told = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(told[3]) == session:
                pages += int((folder / "statm").read_text().split()[1])
        except OSError:  # it has just ended
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Measure the given sizes and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("events", nargs="*", type=int, help="lines of each archive")
    sizes = tuple(parser.parse_args().events) or SIZES
    show("pipeline", figures(sizes))


if __name__ == "__main__":
    main()
