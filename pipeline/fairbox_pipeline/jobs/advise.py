"""Job `advise`: what to do, why, and the command for each; with `--apply` it runs them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline import advice
from fairbox_pipeline.arguments import add_outstanding, add_topics
from fairbox_pipeline.errors import Exit, UsageError
from fairbox_pipeline.job import Context, Figures, Job
from fairbox_pipeline.jobs import sizing
from fairbox_pipeline.jobs.reconcile import STUCK_AFTER_SECONDS
from fairbox_pipeline.progress import say
from fairbox_pipeline.schemas import FINDINGS_TABLE
from fairbox_pipeline.transforms.causes import dead_causes, waits

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

MOST_CAUSES: Final = 100


def figures(context: Context) -> Figures:
    """Return the advice; with `--apply`, run its commands.

    Raises:
        UsageError: `--apply` has nobody to ask.
    """
    options = context.options
    if getattr(options, "apply", False) and not (options.yes or sys.stdin.isatty()):
        raise UsageError("--apply asks before each command: there is no terminal, so pass --yes")
    rows = advice_of(context)
    found: Figures = {"advice": rows}
    if getattr(options, "apply", False):
        found |= _apply(context, [row for row in rows if row["command"]])
    return found


def advice_of(context: Context) -> list[advice.Row]:
    """Return the advice of this run, the most urgent first."""
    done = context.found.get("advise", {}).get("advice")
    if done is not None:
        return list(done)
    return [one.as_row() for one in advice.in_order(_advice(context))]


def _advice(context: Context) -> list[advice.Advice]:
    read, options = context.warehouse.read, context.options
    sized = context.found.get("sizing") or sizing.figures(context)
    loads: list[advice.Row] = sized["topics"]
    if sized["without_messages"] or any(load["shards_from"] != "seen" for load in loads):
        # all topics are known: one that is only seen no longer exists
        gone = {load["topic"] for load in loads if load["shards_from"] == "seen"}
    else:
        gone = set()
    named = read(FINDINGS_TABLE).where(F.col("kind").isin("lost", "stuck"))
    findings = named.groupBy("kind", "topic").agg(F.count(F.lit(1)).alias("messages"))
    places = ["--archive", options.archive, "--warehouse", options.warehouse]
    after: float = getattr(options, "stuck_after", STUCK_AFTER_SECONDS)
    every = [
        *advice.of_load(loads),
        *advice.of_findings(_rows(findings), places, after),
        *advice.of_causes(_rows(dead_causes(context.judged(), MOST_CAUSES))),
        *advice.of_waits(_rows(waits(context.messages()))),
        *advice.of_disuse(loads, sized["without_messages"]),
    ]
    return [one for one in every if one.topic not in gone]


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def _apply(context: Context, rows: Sequence[advice.Row]) -> Figures:
    """Run the commands that are agreed to; the first that fails does not stop the others."""
    applied, failed = 0, []
    for row in rows:
        say(f"{row['topic']}: {row['why']}")
        say(f"$ {row['shell']}")
        if not (context.options.yes or _agreed()):
            continue
        fault = _fault_of(row["command"])
        if fault is None:
            applied += 1
        else:
            say(f"failed, {fault}: {row['shell']}")
            failed.append(row["shell"])
    found: Figures = {"applied": applied}
    if failed:
        text = f"{len(failed)} of {len(rows)} commands failed: {'; '.join(failed)}"
        found |= {"failed": text, "code": int(Exit.FAILED)}
    return found


def _agreed() -> bool:
    say("run it? (y/N)")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _fault_of(command: Sequence[str]) -> str | None:
    """Run a command, its output to standard error; return how it failed."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, check=False)
    except OSError as error:
        return str(error)
    return f"exit code {done.returncode}" if done.returncode else None


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that only advise."""
    sizing.JOB.arguments(parser)
    add_outstanding(parser)
    add_topics(parser)


def _all_arguments(parser: argparse.ArgumentParser) -> None:
    arguments(parser)
    parser.add_argument("--apply", action="store_true", help="ask, and run each command")
    parser.add_argument("--yes", action="store_true", help="with --apply: do not ask")


JOB: Final = Job("advise", "Tell what to do, why, and the command.", figures, _all_arguments)
ADVICE: Final = replace(JOB, arguments=arguments)
"""The job without `--apply`, beside others."""
