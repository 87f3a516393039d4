"""Command `trace`: the life of messages from the tables, as text, JSON and a picture."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from fairbox_pipeline.arguments import moment_ms
from fairbox_pipeline.errors import Exit, UsageError
from fairbox_pipeline.ingest import FOLDED_PROPERTY
from fairbox_pipeline.job import FAILURES, one_line
from fairbox_pipeline.lineage import printable
from fairbox_pipeline.progress import Teller
from fairbox_pipeline.report.lineage_picture import picture
from fairbox_pipeline.report.lineage_tree import notes, trees
from fairbox_pipeline.runs import WorkMeter
from fairbox_pipeline.schemas import EVENTS_TABLE, MESSAGES_TABLE, REPLAYS_TABLE
from fairbox_pipeline.session import location, open_session
from fairbox_pipeline.transforms.lineage import Question, is_uuid7, lineage_of
from fairbox_pipeline.warehouse import Warehouse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox_pipeline.lineage import Lineage

LIMIT: Final = 100
MOST: Final = 1000
_ABOUT: Final = (
    "Show the life of messages: their attempts by subscription, their copies by destinations "
    "`topic:`, their replays, and the ends of their batches. It only reads the tables, as the last "
    "run left them: run history first for what is new in the archive."
)
_WHOLE: Final = 1_000_000
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_REF: Final = re.compile(r"([^/]+)/([0-9]{1,15})/([0-9]{1,15})/([^/]+)(/[0-9]{1,15})?")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fairbox-pipeline trace", description=_ABOUT, allow_abbrev=False
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument(
        "ref", nargs="?", type=_ref, metavar="REF", help="one message: topic/epoch/shard/id"
    )
    asked.add_argument("--id", type=_id, help="messages with this id, of every topic")
    asked.add_argument(
        "--traceparent",
        type=_trace,
        metavar="TP",
        help="messages whose header has this trace id: a traceparent of W3C, or its trace id",
    )
    asked.add_argument("--batch", metavar="B", type=_batch, help="messages with items of a batch")
    asked.add_argument(
        "--key", nargs=2, metavar=("TOPIC", "KEY"), help="messages of a topic with a partition key"
    )
    parser.add_argument(
        "--warehouse", required=True, type=location, metavar="URI", help="folder of the tables"
    )
    for name, about in (("since", "from then on"), ("until", "before then")):
        parser.add_argument(
            f"--{name}",
            type=moment_ms,
            metavar="T",
            help=f"with --traceparent, --batch, --key: first events {about}; reads fewer days",
        )
    parser.add_argument(
        "--limit", type=_limit, default=LIMIT, metavar="N", help=f"messages at most ({LIMIT})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also draw a picture into a file")
    return parser


def _ref(text: str) -> tuple[Any, ...]:
    found = _REF.fullmatch(text)
    if found is None or not is_uuid7(found[4]):
        raise argparse.ArgumentTypeError(f"not topic/epoch/shard/id: {text!r}")
    return found[1], int(found[2]), int(found[3]), found[4]


def _id(text: str) -> str:
    if not is_uuid7(text):
        raise argparse.ArgumentTypeError(f"not a UUIDv7 in lower case: {text!r}")
    return text


def _trace(text: str) -> str:
    found = _TRACEPARENT.fullmatch(text)
    trace = found[1] if found else text
    if not re.fullmatch("[0-9a-f]{32}", trace) or not trace.strip("0"):
        raise argparse.ArgumentTypeError(
            f"not a traceparent (00-TRACE-PARENT-FLAGS) nor a trace id of 32 hex digits: {text!r}"
        )
    return trace


def _batch(text: str) -> str:
    if not text or ":" in text:
        raise argparse.ArgumentTypeError(f"not the id of a batch: {text!r}")
    return text


def _limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"not a whole number from 1 to {MOST}: {text!r}")
    return int(text)


def _question(options: argparse.Namespace) -> Question:
    try:
        "".join((*(options.ref or ())[:1], *(options.key or ()), options.batch or "")).encode()
    except UnicodeEncodeError:
        raise UsageError("REF, --key, --batch: not text in UTF-8") from None
    window = options.since, options.until
    if options.ref or options.id:
        if window != (None, None):
            raise UsageError("--since, --until: an id has its time; leave them away")
        return Question("ref", options.ref) if options.ref else Question("id", (options.id,))
    if None not in window and options.since >= options.until:
        raise UsageError("--until is not after --since")
    for by in ("traceparent", "batch"):
        if value := getattr(options, by):
            return Question(by, (value,), *window)
    return Question("key", tuple(options.key), *window)


def _found(options: argparse.Namespace, teller: Teller) -> Lineage:
    question = _question(options)
    if options.svg is not None and not options.svg.absolute().parent.is_dir():
        raise UsageError(f"--svg: there is no folder {options.svg.absolute().parent}")
    spark = open_session(options.warehouse)
    meter, warehouse = WorkMeter(spark), Warehouse(spark)
    warehouse.require((EVENTS_TABLE, MESSAGES_TABLE, REPLAYS_TABLE))
    folded = warehouse.property_of(MESSAGES_TABLE, FOLDED_PROPERTY)
    if warehouse.commits(EVENTS_TABLE, None if folded is None else int(folded)) != []:
        teller.say("table messages stands behind table events: run history")
    with Teller(spark).step("trace"):
        lineage = lineage_of(warehouse, question, options.limit)
    if lineage is None:
        named = " ".join(("REF" if question.by == "ref" else f"--{question.by}", *question.texts))
        raise UsageError(f"{named}: no such message in the tables; for a new one run history first")
    work = meter.read()
    teller.say(f"trace: {work.stages} stages read {work.input_rows:,} rows")
    return lineage


def main(argv: Sequence[str] | None = None) -> int:
    """Answer a question about messages; return the exit code."""
    options = _parser().parse_args(argv)
    teller = Teller()
    try:
        lineage = _found(options, teller)
        if options.svg is not None:
            _write(options.svg, picture(lineage))
    except FAILURES as exc:
        error = one_line(exc)
        teller.say(printable(str(error)))
        return int(error.exit_code)
    if options.json:
        sys.stdout.write(json.dumps(lineage.as_dict(), ensure_ascii=False) + "\n")
        return int(Exit.OK)
    # a file or a pipe gets whole lines
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WHOLE)
    for tree in trees(lineage):
        console.print(tree)
    for note in notes(lineage):
        console.print(note)
    return int(Exit.OK)


def _write(file: Path, drawing: str) -> None:
    """Write a file as a whole."""
    partial = file.with_name(f"{file.name}.new")
    try:
        partial.write_text(drawing, encoding="utf-8")
        partial.replace(file)
    except OSError as exc:
        partial.unlink(missing_ok=True)
        raise UsageError(f"--svg: {file} cannot be written: {exc.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
