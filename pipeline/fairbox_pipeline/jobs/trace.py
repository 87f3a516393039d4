"""Command `trace`: the life of messages from the tables, as text or JSON.

It shows the messages that a question names, and those one step away: messages of the same id
(copies by a destination `topic:`), both ends of a replay, and the notices that batches have ended.
It reads the tables as the last run left them, and writes none.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline.arguments import moment_ms, window_of
from fairbox_pipeline.errors import Exit, UsageError
from fairbox_pipeline.job import FAILURES
from fairbox_pipeline.progress import say
from fairbox_pipeline.runs import WorkMeter
from fairbox_pipeline.schemas import DAY_MS, EVENTS_TABLE, KEY, MESSAGES_TABLE, REPLAYS_TABLE
from fairbox_pipeline.session import location, open_session
from fairbox_pipeline.times import COARSE, iso_time
from fairbox_pipeline.warehouse import FOLDED_PROPERTY, Warehouse, failure

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, Row

    from fairbox_pipeline.times import Window

LIMIT: Final = 100
MOST: Final = 1000
MOST_EVENTS: Final = 10_000
_TRACE: Final = re.compile(r"(?:[0-9a-f]{2}-)?(?!0{32})([0-9a-f]{32})(?:-.*)?")
_REF: Final = re.compile(r"([^/]+)/([0-9]{1,15})/([0-9]{1,15})/([^/]+)(/[0-9]{1,15})?")
_OF_MESSAGE: Final = (
    *(*KEY, "state", "partition_key", "content_type", "size", "batch_item", "due"),
    *("first_at", "last_at"),
)
_OF_EVENT: Final = (
    *("event", "at", "precision", "subscription", "destination", "attempt", "reason"),
    "traceparent",
)
Found = dict[str, Any]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fairbox-pipeline trace", description=__doc__, allow_abbrev=False
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument(
        "ref", nargs="?", type=_ref, metavar="REF", help="one message: topic/epoch/shard/id"
    )
    asked.add_argument("--id", help="messages with this id, of every topic")
    about = "messages whose header has this trace id: a traceparent of W3C, or its trace id"
    asked.add_argument("--traceparent", type=_trace, metavar="TP", help=about)
    asked.add_argument("--batch", metavar="B", help="messages with items of a batch")
    asked.add_argument("--key", metavar="KEY", help="messages with a partition key")
    about = "with --key: of this topic; needed where several have the key"
    parser.add_argument("--topic", metavar="T", help=about)
    parser.add_argument(
        "--warehouse", required=True, type=location, metavar="URI", help="folder of the tables"
    )
    about = "messages whose first event is {}; reads fewer days"
    parser.add_argument("--since", type=moment_ms, help=about.format("from then on"), metavar="T")
    parser.add_argument("--until", type=moment_ms, help=about.format("before then"), metavar="T")
    about = f"messages at most ({LIMIT})"
    parser.add_argument("--limit", type=_limit, default=LIMIT, metavar="N", help=about)
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


def main(argv: Sequence[str] | None = None) -> int:
    """Answer a question about messages; return the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        answer = _answer(options)
    except argparse.ArgumentTypeError as exc:
        parser.error(str(exc))
    except FAILURES as exc:
        error = failure(exc)
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


def _answer(options: argparse.Namespace) -> dict[str, Any]:
    if options.topic is not None and options.key is None:
        raise UsageError("--topic goes with --key")
    window = window_of(options)
    spark = open_session(options.warehouse)
    meter, warehouse = WorkMeter(spark), Warehouse(spark)
    warehouse.require((EVENTS_TABLE, MESSAGES_TABLE, REPLAYS_TABLE))
    folded = warehouse.property_of(MESSAGES_TABLE, FOLDED_PROPERTY)
    if warehouse.commits(EVENTS_TABLE, None if folded is None else int(folded)) != []:
        say("table messages stands behind table events: run history")
    messages = _messages(warehouse, _asked(options, warehouse, window), window, options.limit)
    kept = dict(list(messages.items())[: options.limit])
    events = _events(warehouse, kept.values())
    work = meter.read()
    say(f"trace: {work['stages']} stages read {work['input_rows']:,} rows")
    if not messages:
        raise UsageError("no such message in the tables; for a new one run history first")
    topics = sorted({one["topic"] for one in kept.values() if one["found_by"] == "question"})
    if options.key is not None and len(topics) > 1:
        raise UsageError(f"--key is on topics {', '.join(topics)}: add --topic")
    for event in events[:MOST_EVENTS]:
        if _key(event) in kept:  # or it is of the same id on another topic
            kept[_key(event)]["events"].append({name: event[name] for name in _OF_EVENT})
    return {
        "messages": sorted(kept.values(), key=lambda one: int(one["first_at"])),
        "limit": options.limit,
        "cut": len(messages) > options.limit or len(events) > MOST_EVENTS,
    }


def _asked(options: argparse.Namespace, warehouse: Warehouse, window: Window) -> Column:
    """Return the condition that the question puts on messages."""
    if options.traceparent is not None:
        named = F.exists(
            F.map_entries("headers"),
            lambda header: _is_tracing(header) & header["value"].contains(options.traceparent),
        )
        events = warehouse.read(EVENTS_TABLE).where((F.col("event") == "added") & named)
        first = window.of(events, "at").orderBy("at", "id").limit(options.limit + 1)
        return _among("id", {row["id"] for row in first.select("id").collect()})
    if options.batch is not None:
        return F.col("batch_item").startswith(f"{options.batch}:") | _tells_of([options.batch])
    values = {"topic": options.topic, "partition_key": options.key, "id": options.id}
    values |= dict(zip(KEY, options.ref or (), strict=False))
    found = F.lit(True)
    for name, value in values.items():
        found = found if value is None else found & (F.col(name) == value)
    return found


def _messages(
    warehouse: Warehouse, asked: Column, window: Window, limit: int
) -> dict[tuple[Any, ...], Found]:
    """Return the messages that are asked for, then those one step away, by key; `limit` of each.

    Each has `found_by`: `question`, `id`, `replay` or `batch`.
    """
    messages = warehouse.read(MESSAGES_TABLE).select(*_OF_MESSAGE)
    found: dict[tuple[Any, ...], Found] = {}

    def take(rows: DataFrame, found_by: str) -> None:
        for row in rows.orderBy("first_at", *KEY).limit(limit + 1).collect():
            one = {"ref": "/".join(map(str, _key(row))), "found_by": found_by, **row.asDict()}
            found.setdefault(_key(row), {**one, "events": []})

    take(window.of(messages.where(asked), "first_at"), "question")
    ids = {one["id"] for one in found.values()}
    take(messages.where(_among("id", ids)), "id")
    plans = warehouse.read(REPLAYS_TABLE).where(_among("id", ids) | _among("new_id", ids))
    ends = plans.select("id", "new_id").distinct().limit(MOST_EVENTS).collect()
    take(messages.where(_among("id", {end for plan in ends for end in plan} - ids)), "replay")
    batches = {one["batch_item"].partition(":")[0] for one in found.values() if one["batch_item"]}
    since = min((one["first_at"] for one in found.values()), default=0) - DAY_MS
    take(messages.where(_tells_of(batches) & (F.col("first_at") >= since)), "batch")
    return found


def _events(warehouse: Warehouse, messages: Collection[Found]) -> list[Row]:
    """Return the events of messages by time, of one second by attempt."""
    times = [time for one in messages for time in (one["first_at"], one["last_at"])]
    between = F.col("at").between(min(times, default=0), max(times, default=0))
    tracing = F.get(F.filter(F.map_entries("headers"), _is_tracing), F.lit(0))["value"]
    attempt = F.when(F.col("event") == "added", -1).otherwise(F.col("attempt"))
    theirs = warehouse.read(EVENTS_TABLE).where(between & _among("id", {m["id"] for m in messages}))
    ordered = theirs.withColumn("traceparent", tracing).orderBy(
        F.expr("at div 1000"), attempt.asc_nulls_last(), "at", "event_id"
    )
    return ordered.select(*KEY, *_OF_EVENT).limit(MOST_EVENTS + 1).collect()


def _tells_of(batches: Collection[str]) -> Column:
    """Return the condition on messages that tell of the end of batches."""
    return F.col("topic").startswith("fairbox.batches.") & _among("partition_key", batches)


def _key(row: Row | Found) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def _among(name: str, values: Collection[str]) -> Column:
    return F.col(name).isin(*sorted(values)) if values else F.lit(False)


def _is_tracing(header: Column) -> Column:
    return F.lower(header["key"]).isin("traceparent", "ce-traceparent")


def _lines(message: Found) -> Iterator[str]:
    yield f"{message['ref']}  {message['state']}  (found by {message['found_by']})"
    events: list[Mapping[str, Any]] = message["events"]
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
