"""`fairbox-pipeline JOB ...`: the command."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

from fairbox_pipeline.job import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

JOBS: Final = {
    "history": "archive to tables events and messages",
    "latency": "due to delivered, by topic, subscription and hour",
    "sizing": "load by shard, skew, hot keys, and how many shards each topic needs",
    "reconcile": "what was lost, duplicated, out of order or is stuck",
    "batches": "batch progress from the history, compared with the trackers",
    "advise": "what to do, why, and the command for each",
    "replay": "messages back into the outbox",
    "trace": "every event of a message, and of its copies, replays and batch",
    "report": "one HTML page with the plots",
    "maintain": "files merged by day, old snapshots and orphans removed; retention and erasure",
    "all": "history, reconcile and report in one session",
    "daily": "all but replay and trace in one session, also before anything has been archived",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job that the first argument names; return its exit code."""
    names = "\n".join(f"  {name:<10} {about}" for name, about in JOBS.items())
    parser = argparse.ArgumentParser(
        prog="fairbox-pipeline",
        description="What happened to every message, from the archive.",
        epilog=f"jobs:\n{names}\n\nfairbox-pipeline JOB --help tells a job's arguments",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", choices=list(JOBS), metavar="JOB")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the job")
    chosen = parser.parse_args(argv)
    try:
        "".join(chosen.arguments).encode()
    except UnicodeEncodeError:
        parser.error("an argument is not text in UTF-8")
    try:
        with _clean_output():
            return run_job(chosen.job, chosen.arguments)
    except BrokenPipeError:  # who read has seen enough
        return 1


def run_job(name: str, argv: Sequence[str]) -> int:
    """Run a job; return its exit code."""
    module = import_module(f"fairbox_pipeline.jobs.{name}")
    return int(module.main(argv) if name == "trace" else run(module.JOB, argv))


@contextlib.contextmanager
def _clean_output() -> Iterator[None]:
    """Reserve standard output for the figures: redirect the JVM's output to standard error."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # not a file: a caller reads it
        yield
        return
    sys.stdout.flush()
    kept = os.dup(descriptor)
    os.dup2(2, descriptor)
    before = sys.stdout
    sys.stdout = os.fdopen(kept, "w", encoding="utf-8")
    try:
        yield
    finally:
        ours, sys.stdout = sys.stdout, before
        ours.close()


if __name__ == "__main__":
    sys.exit(main())
