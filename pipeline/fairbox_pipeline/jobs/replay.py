"""Job `replay`: messages chosen from the history, back into the outbox."""

from __future__ import annotations

import json
import re
import uuid
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline.arguments import moment_ms
from fairbox_pipeline.errors import PipelineError, UsageError
from fairbox_pipeline.job import Context, Figures, Job
from fairbox_pipeline.progress import say
from fairbox_pipeline.schemas import (
    EVENTS_TABLE,
    FINDING_KINDS,
    FINDINGS_TABLE,
    KEY,
    MESSAGES_TABLE,
    REPLAYS_TABLE,
    STATES,
)
from fairbox_pipeline.times import Window
from fairbox_pipeline.transforms import replay

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from fairbox.client.outbox import Outbox
    from pyspark.sql import DataFrame

DOLLARS_A_WRU: Final = 0.625 / 1_000_000
"""On demand in us-east-1."""
_REPLAY: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_RATE: Final = 100.0
_CURSOR_WRU: Final = 2
_A_STEP: Final = 99
_PART_BYTES: Final = 64 << 20
"""Bodies that the driver holds at a time."""
_SELECTORS: Final = ("topic", "key", "state", "added_since", "added_until", "findings")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job's own arguments."""
    many: dict[str, Any] = {"action": "append", "default": [], "metavar": "TEXT"}
    parser.add_argument("--topic", **many, help="messages of this topic; again: or of that")
    parser.add_argument("--key", **many, help="with this partition key; again: or with that")
    parser.add_argument(
        "--state", action="append", default=[], choices=STATES, help="in this state"
    )
    parser.add_argument("--added-since", type=moment_ms, metavar="T", help="added from then on")
    parser.add_argument("--added-until", type=moment_ms, metavar="T", help="added before then")
    parser.add_argument(
        "--findings",
        action="append",
        default=[],
        choices=FINDING_KINDS,
        help="that the last reconcile found so",
    )
    parser.add_argument("--everything", action="store_true", help="all there is")
    parser.add_argument("--ids", choices=("new", "same"), default="new", help="of what is put back")
    parser.add_argument(
        "--replay",
        metavar="ID",
        help="id of this replay; with the id of another run, go on with it",
    )
    parser.add_argument("--rate", type=_positive, default=_RATE, help="messages a second, at most")
    parser.add_argument("--dry-run", action="store_true", help="counts and cost; write nothing")


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value <= 100_000:
        raise ValueError(text)
    return value


def figures(context: Context) -> Figures:
    """Plan, or resume the existing plan; then put messages back."""
    options, tables = context.options, context.warehouse
    asked = {name: getattr(options, name) for name in (*_SELECTORS, "everything", "ids")}
    chooses = options.everything or any(asked[name] not in (None, []) for name in _SELECTORS)
    name = options.replay or str(uuid.uuid4())
    if not (chooses or options.replay):
        raise UsageError(
            "choose what to replay: --topic, --key, --state, --added-since, --added-until, "
            "--findings, or --everything"
        )
    if not _REPLAY.fullmatch(name):
        raise UsageError("--replay: 1 to 64 letters, digits, '.', '_' or '-'")
    before = tables.current(REPLAYS_TABLE).snapshot
    found = tables.read(REPLAYS_TABLE).where(F.col("replay") == name).select("plan").first()
    begun = json.loads(found[0]) if found else asked
    if chooses and begun | asked != begun:
        raise UsageError(
            f"replay {name} was begun with {json.dumps(begun)}: give it another --replay ID"
        )
    if not found and not chooses:
        raise UsageError(f"there is no replay {name} to go on with: choose what to replay")
    chosen, left_out = (_planned(context, name), 0) if found else _chosen(context, name)
    content = replay.with_content(chosen, tables.read(EVENTS_TABLE))
    figures = _costs(name, begun, content, left_out, dry_run=options.dry_run)
    if options.dry_run:
        return figures
    outbox = _outbox(list(figures["topics"]))
    if not found:
        same = asked["ids"] == "same"
        plan = replay.planned(content, replay=name, started=context.now, same_ids=same)
        asked_for = F.lit(json.dumps(asked)).alias("plan")
        # in one commit, unless another run has written one since
        tables.append_after(REPLAYS_TABLE, plan.select("*", asked_for), before)
    return figures | {"outcome": _put_back(context, outbox, name, figures["bytes"])}


def _planned(context: Context, name: str) -> DataFrame:
    """Return the messages of a plan, with their places."""
    read = context.warehouse.read
    plan = read(REPLAYS_TABLE).where(F.col("replay") == name)
    return read(MESSAGES_TABLE).join(plan.select(*KEY, "position", "new_id", "finding"), list(KEY))


def _chosen(context: Context, name: str) -> tuple[DataFrame, int]:
    """Return the chosen messages with `finding`, and how many are left out."""
    options, read = context.options, context.warehouse.read
    messages = replay.chosen(
        read(MESSAGES_TABLE),
        topics=options.topic,
        keys=options.key,
        states=options.state,
        added=Window(options.added_since, options.added_until),
    )
    if not options.findings:
        return messages.withColumn("finding", F.lit(None).cast("string")), 0
    named = replay.named_by(messages, read(FINDINGS_TABLE), tuple(options.findings))
    others = read(REPLAYS_TABLE).where(F.col("replay") != name)
    settled = replay.settled(named, others).select(*KEY).localCheckpoint()
    return named.join(settled, list(KEY), "left_anti"), settled.count()


def _costs(
    name: str, asked: dict[str, Any], content: DataFrame, left_out: int, *, dry_run: bool
) -> Figures:
    """Count the messages to put back, and their cost until they are delivered again."""
    rows = replay.units(content).orderBy("topic").collect()
    topics = {row["topic"]: row["messages"] for row in rows}
    plain = sum(row["wru"] for row in rows)
    messages = sum(topics.values())
    # each in a transaction with its cursor; later deleted
    wru = 2 * plain + _CURSOR_WRU * -(-messages // _A_STEP) + plain
    return {
        "replay": name,
        "dry_run": dry_run,
        "ids": asked["ids"],
        "chosen": messages,
        "left_out": left_out,
        "without_body": sum(row["without_body"] for row in rows),
        "bytes": sum(row["bytes"] or 0 for row in rows),
        "wru": wru,
        "cost_usd": round(wru * DOLLARS_A_WRU, 6),
        "topics": topics,
    }


def _outbox(topics: Sequence[str]) -> Outbox:
    """Return the outbox, if it has the topics.

    Raises:
        PipelineError: a topic no longer exists, or the outbox cannot be reached.
    """
    from fairbox.client.outbox import Outbox  # noqa: PLC0415
    from fairbox.errors import FairboxError  # noqa: PLC0415 - not every job has the library

    try:
        outbox = Outbox.from_env()
        known = {state.topic.name for state in outbox.topics()}
    except FairboxError as error:
        raise PipelineError(f"the outbox cannot be read: {error}") from error
    missing = sorted(set(topics) - known)
    if missing:
        raise PipelineError(f"the outbox has no topic {', '.join(missing)}: create it, or choose")
    return outbox


def _put_back(context: Context, outbox: Outbox, name: str, size: int) -> dict[str, int]:
    """Put back the messages of a plan, in the order of their places."""
    from fairbox.consumer.turnstile import RateLimit  # noqa: PLC0415
    from fairbox.model.clock import SystemClock  # noqa: PLC0415 - not every job has the library

    from fairbox_pipeline.putting_back import Replay  # noqa: PLC0415 - as above

    rows = replay.with_content(_planned(context, name), context.warehouse.read(EVENTS_TABLE))
    parts = max(1, -(-size // _PART_BYTES))
    ordered = rows.repartitionByRange(parts, "position").sortWithinPartitions("position")
    say(f"replay {name}: again with --replay {name} it goes on where it stands")
    clock = SystemClock()
    putting = Replay(name, outbox, RateLimit(context.options.rate, clock.now), clock)
    found = putting.put_back(row.asDict() for row in ordered.toLocalIterator())
    return dict(sorted(found.items()))


JOB: Final = Job("replay", "Put messages back into the outbox.", figures, arguments)
