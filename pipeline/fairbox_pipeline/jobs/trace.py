"""Command `trace`: the life of messages from the tables, as text or JSON."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline.arguments import moment_ms, window_of
from fairbox_pipeline.errors import Exit, UsageError
from fairbox_pipeline.job import FAILURES, one_line
from fairbox_pipeline.progress import say
from fairbox_pipeline.runs import WorkMeter
from fairbox_pipeline.schemas import EVENTS_TABLE, KEY, MESSAGES_TABLE, REPLAYS_TABLE
from fairbox_pipeline.session import location, open_session
from fairbox_pipeline.times import COARSE, iso_time
from fairbox_pipeline.transforms.traces import of_batch, traced, with_trace
from fairbox_pipeline.warehouse import FOLDED_PROPERTY, Warehouse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column

LIMIT: Final = 100
MOST: Final = 1000
_ABOUT: Final = (
    "Show every event of messages, and of those that are one step away: copies on other topics, "
    "replays, and the ends of their batches. It only reads the tables, as the last run left them: "
    "run history first for what is new in the archive."
)
_TRACE: Final = re.compile(r"(?:[0-9a-f]{2}-)?(?!0{32})([0-9a-f]{32})(?:-.*)?")
_REF: Final = re.compile(r"([^/]+)/([0-9]{1,15})/([0-9]{1,15})/([^/]+)(/[0-9]{1,15})?")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fairbox-pipeline trace", description=_ABOUT, allow_abbrev=False
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument(
        "ref", nargs="?", type=_ref, metavar="REF", help="one message: topic/epoch/shard/id"
    )
    asked.add_argument("--id", help="messages with this id, of every topic")
    asked.add_argument(
        "--traceparent",
        type=_trace,
        metavar="TP",
        help="messages whose header has this trace id: a traceparent of W3C, or its trace id",
    )
    asked.add_argument("--batch", metavar="B", help="messages with items of a batch")
    asked.add_argument("--key", metavar="KEY", help="messages with a partition key")
    parser.add_argument(
        "--topic", metavar="T", help="with --key: of this topic; needed where several have the key"
    )
    parser.add_argument(
        "--warehouse", required=True, type=location, metavar="URI", help="folder of the tables"
    )
    for name, about in (("since", "from then on"), ("until", "before then")):
        told = f"messages whose first event is {about}; reads fewer days"
        parser.add_argument(f"--{name}", type=moment_ms, metavar="T", help=told)
    parser.add_argument(
        "--limit", type=_limit, default=LIMIT, metavar="N", help=f"messages at most ({LIMIT})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    return parser


def _ref(text: str) -> tuple[Any, ...]:
    found = _REF.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"not topic/epoch/shard/id: {text!r}")
    return found[1], int(found[2]), int(found[3]), found[4]


def _trace(text: str) -> str:
    found = _TRACE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"not a traceparent (00-TRACE-PARENT-FLAGS) nor a trace id of 32 hex digits: {text!r}"
        )
    return found[1]


def _limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"not a whole number from 1 to {MOST}: {text!r}")
    return int(text)


def _asked(options: argparse.Namespace, warehouse: Warehouse) -> Column:
    """Return the condition that the question puts on messages."""
    if options.traceparent is not None:
        return with_trace(warehouse, options.traceparent, window_of(options), options.limit)
    if options.batch is not None:
        return of_batch(options.batch)
    values = {"topic": options.topic, "partition_key": options.key, "id": options.id}
    values |= dict(zip(KEY, options.ref or (), strict=False))
    found = F.lit(True)
    for name, value in values.items():
        if value is not None:
            found = found & (F.col(name) == value)
    return found


def _answer(options: argparse.Namespace) -> dict[str, Any]:
    if options.topic is not None and options.key is None:
        raise UsageError("--topic goes with --key")
    spark = open_session(options.warehouse)
    meter, warehouse = WorkMeter(spark), Warehouse(spark)
    warehouse.require((EVENTS_TABLE, MESSAGES_TABLE, REPLAYS_TABLE))
    folded = warehouse.property_of(MESSAGES_TABLE, FOLDED_PROPERTY)
    if warehouse.commits(EVENTS_TABLE, None if folded is None else int(folded)) != []:
        say("table messages stands behind table events: run history")
    asked = _asked(options, warehouse)
    messages, cut = traced(warehouse, asked, window_of(options), options.limit)
    work = meter.read()
    say(f"trace: {work.stages} stages read {work.input_rows:,} rows")
    if not messages:
        raise UsageError("no such message in the tables; for a new one run history first")
    topics = sorted({one["topic"] for one in messages if one["found_by"] == "question"})
    if options.key is not None and len(topics) > 1:
        raise UsageError(f"--key is on topics {', '.join(topics)}: add --topic")
    return {"messages": messages, "limit": options.limit, "cut": cut}


def main(argv: Sequence[str] | None = None) -> int:
    """Answer a question about messages; return the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        answer = _answer(options)
    except argparse.ArgumentTypeError as exc:
        parser.error(str(exc))
    except FAILURES as exc:
        error = one_line(exc)
        say(_printable(str(error)))
        return int(error.exit_code)
    if options.json:
        sys.stdout.write(json.dumps(answer, ensure_ascii=False) + "\n")
        return int(Exit.OK)
    for message in answer["messages"]:
        sys.stdout.writelines(_printable(line) + "\n" for line in _lines(message))
    if answer["cut"]:
        sys.stdout.write(f"there is more: --limit {answer['limit']} cut it\n")
    return int(Exit.OK)


def _lines(message: Mapping[str, Any]) -> Iterator[str]:
    yield f"{message['ref']}  {message['state']}  (found by {message['found_by']})"
    events = message["events"]
    facts = {
        "key": message["partition_key"],
        "type": message["content_type"],
        "bytes": message["size"],
        "batch item": message["batch_item"],
        "traceparent": next((one["traceparent"] for one in events if one["traceparent"]), None),
        "due": None if message["due"] is None else iso_time(message["due"]),
    }
    yield "  " + ", ".join(f"{name} {told}" for name, told in facts.items() if told is not None)
    for event in events:
        time = iso_time(event["at"])
        if event["precision"] == COARSE:
            time = time.replace(".000Z", "Z")
        place = " to ".join(filter(None, (event["subscription"], event["destination"])))
        attempt = "" if event["attempt"] is None else f"attempt {event['attempt']}"
        details = ", ".join(filter(None, (place, attempt, event["reason"])))
        yield f"  {time:<24}  {event['event']:<9}  {details}".rstrip()


def _printable(text: str) -> str:
    r"""Escape control characters, line breaks and marks of direction, as `\n` or `\u202e`."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
