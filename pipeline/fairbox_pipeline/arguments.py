"""The arguments that every job takes."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fairbox_pipeline.lines import MOST
from fairbox_pipeline.session import location
from fairbox_pipeline.times import Window

if TYPE_CHECKING:
    from collections.abc import Callable


def parser_of(
    job: str, about: str, add: Callable[[argparse.ArgumentParser], None]
) -> argparse.ArgumentParser:
    """Return a job's parser: the common arguments, and its own."""
    parser = argparse.ArgumentParser(
        prog=f"fairbox-pipeline {job}",
        description=about,
        allow_abbrev=False,
        conflict_handler="resolve",  # jobs that run together share arguments
    )
    parser.add_argument(
        "--archive", required=True, type=location, metavar="URI", help="folder of the archive"
    )
    parser.add_argument(
        "--warehouse", required=True, type=location, metavar="URI", help="folder of the tables"
    )
    moment = "ISO 8601 (UTC unless it says otherwise) or ms since 1970"
    parser.add_argument(
        "--since",
        type=moment_ms,
        metavar="T",
        help=f"show messages from then on, by their first event: {moment}",
    )
    parser.add_argument(
        "--until", type=moment_ms, metavar="T", help=f"show messages before then: {moment}"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    add(parser)
    return parser


def add_outbox(parser: argparse.ArgumentParser) -> None:
    """Add `--outstanding` and `--topics`, which several jobs take."""
    parser.add_argument(
        "--outstanding",
        type=location,
        metavar="URI",
        help="what the outbox still holds: an export of its table, or NDJSON of topic, epoch, "
        "shard, id",
    )
    parser.add_argument(
        "--topics",
        type=location,
        metavar="FILE",
        help="output of `fairbox topic list --json`; else topics are those of the export that "
        "--outstanding names",
    )


def moment_ms(text: str) -> int:
    """Return a time in ms since 1970 UTC.

    Raises:
        argparse.ArgumentTypeError: the text is not a time.
    """
    try:
        if text.lstrip("-").isdigit():
            return _within(int(text))
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a time: {text[:60]!r}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _within(ms: int) -> int:
    """Return the number, if an event may have it; ValueError: it may not."""
    if abs(ms) > MOST:
        raise ValueError(ms)
    return ms


def window_of(options: argparse.Namespace) -> Window:
    """Return the window of a run's figures.

    Raises:
        argparse.ArgumentTypeError: it ends before it begins.
    """
    if None not in (options.since, options.until) and options.since >= options.until:
        raise argparse.ArgumentTypeError("--until is not after --since")
    return Window(options.since, options.until)
