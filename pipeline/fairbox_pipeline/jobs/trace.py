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
from fairbox_pipeline.schemas import EVENTS_TABLE, MESSAGES_TABLE, REPLAYS_TABLE
from fairbox_pipeline.session import location, open_session
from fairbox_pipeline.times import COARSE, iso_time
from fairbox_pipeline.transforms.traces import is_uuid7, of_batch, traced, with_trace
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
    asked.add_argument("--key", metavar="KEY", help="messages with a partition key")
    parser.add_argument(
        "--topic", metavar="T", help="with --key: of this topic; needed where several have the key"
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


def _checked(options: argparse.Namespace) -> None:
    try:
        for text in ((options.ref or ("",))[0], options.key, options.topic, options.batch):
            (text or "").encode()
    except UnicodeEncodeError:
        raise UsageError("REF, --key, --topic, --batch: not text in UTF-8") from None
    if (options.ref or options.id) and (options.since, options.until) != (None, None):
        raise UsageError("--since, --until: an id has its time; leave them away")
    if options.topic is not None and options.key is None:
        raise UsageError("--topic goes with --key")


def _asked(options: argparse.Namespace, warehouse: Warehouse) -> Column:
    """Return the condition that the question puts on messages."""
    if options.ref:
        names = ("topic", "epoch", "shard", "id")
        return _all(dict(zip(names, options.ref, strict=True)))
    if options.id:
        return _all({"id": options.id})
    if options.traceparent:
        return with_trace(warehouse, options.traceparent, window_of(options), options.limit)
    if options.batch:
        return of_batch(options.batch)
    if options.topic is not None:
        return _all({"topic": options.topic, "partition_key": options.key})
    return _all({"partition_key": options.key})


def _all(values: Mapping[str, Any]) -> Column:
    found = F.lit(True)
    for name, value in values.items():
        found = found & (F.col(name) == value)
    return found


def _answer(options: argparse.Namespace) -> dict[str, Any]:
    _checked(options)
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
    for line in _lines(answer):
        sys.stdout.write(_printable(line) + "\n")
    return int(Exit.OK)


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    for message in answer["messages"]:
        yield f"{message['ref']}  {message['state']}  (found by {message['found_by']})"
        yield f"  {', '.join(_facts(message))}"
        for event in message["events"]:
            yield f"  {_time(event):<24}  {event['event']:<9}  {_details(event)}".rstrip()
    if answer["cut"]:
        yield f"there is more: --limit {answer['limit']} cut it"


def _facts(message: Mapping[str, Any]) -> Iterator[str]:
    named = {"partition_key": "key", "content_type": "type", "size": "bytes"}
    traceparent = next(
        (one["traceparent"] for one in message["events"] if one["traceparent"]), None
    )
    facts = {**message, "traceparent": traceparent}
    for name in (*named, "batch_item", "traceparent"):
        if facts[name] is not None:
            yield f"{named.get(name, name.replace('_', ' '))} {facts[name]}"
    if message["due"] is not None:
        yield f"due {iso_time(message['due'])}"


def _time(event: Mapping[str, Any]) -> str:
    """Return the time of an event; without milliseconds where they are not known."""
    text = iso_time(event["at"])
    return text.replace(".000Z", "Z") if event["precision"] == COARSE else text


def _details(event: Mapping[str, Any]) -> str:
    place = " to ".join(event[name] for name in ("subscription", "destination") if event[name])
    attempt = "" if event["attempt"] is None else f"attempt {event['attempt']}"
    return ", ".join(filter(None, (place, attempt, event["reason"])))


def _printable(text: str) -> str:
    r"""Escape control characters, line breaks and marks of direction, as `\n` or `\u202e`."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
