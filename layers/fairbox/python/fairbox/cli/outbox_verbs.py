"""Noun `outbox`: what lies in it and what left it, sweeps, replays; and rows of other outboxes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fairbox.cli.commands import DryRun, Limit, OptionalLimit, Time, Yes, noun, verb
from fairbox.cli.output_fields import (
    DELIVERY_COLUMNS,
    delivery_fields,
    misplaced_fields,
    stored_fields,
)
from fairbox.cli.progress import bar
from fairbox.cli.session import FAILED, USAGE, Session
from fairbox.cli.verb_input import read_body
from fairbox.errors import InvalidInput, Unavailable
from fairbox.settings import DEPLOYED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.tables.row_layouts import RowLayout

outbox = noun("Count and list what lies in the outbox and what was delivered; ring; replay.")

OptionalTopic = Annotated[
    str | None, typer.Argument(metavar="[TOPIC]", show_default=False, help="All by default.")
]

Ids = Literal["new", "same"]
_SHOWN = 20  # rows that are left
_PIPELINE = "fairbox_pipeline"


class State(StrEnum):
    """The outcome of a message, from the history."""

    CANCELLED = "cancelled"
    PURGED = "purged"
    EXPIRED = "expired"
    DEAD = "dead"
    DELIVERED = "delivered"
    OUTSTANDING = "outstanding"


@verb(outbox, "count", example="fairbox outbox count orders")
def count(session: Session, topic: OptionalTopic = None, limit: OptionalLimit = None) -> None:
    """Count what is outstanding: exact, or the limit and one where there is more."""
    found = session.outbox.outstanding_count(topic, limit=limit)
    session.show({"topic": topic, "outstanding": found}, str(found))


@verb(outbox, "outstanding", example="fairbox outbox outstanding orders --older-than 60")
def outstanding(
    session: Session,
    topic: OptionalTopic = None,
    older_than: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Only what is older.")
    ] = None,
    limit: Limit = 100,
) -> None:
    """List what is outstanding, by id, without bodies."""
    found = session.outbox.stored("ready", topic, older_than=older_than, limit=limit)
    columns = ("ref", "size", "partition_key")
    session.table(columns, (stored_fields(stored, "outstanding") for stored in found))


@verb(outbox, "delivered", example="fairbox outbox delivered orders --limit 10")
def delivered(
    session: Session,
    topic: OptionalTopic = None,
    since: Time = None,
    until: Time = None,
    limit: Limit = 100,
) -> None:
    """List deliveries from the ledger, by time."""
    found = session.outbox.delivered(topic, since=_utc(since), until=_utc(until), limit=limit)
    session.table(DELIVERY_COLUMNS, (delivery_fields(delivery) for delivery in found))


def _utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


@verb(outbox, "sweep", example="fairbox outbox sweep --older-than 60")
def sweep(
    session: Session,
    older_than: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Since a message was due.")
    ] = 60,
    limit: OptionalLimit = None,
) -> None:
    """Ring for what is overdue, found by a scan of the table."""
    result = session.outbox.sweep(older_than=older_than, limit=limit)
    fields = {"overdue": result.overdue, "shards": result.shards, "rung": result.rung}
    session.show(fields)


@verb(outbox, "misplaced", example="fairbox outbox misplaced")
def misplaced(
    session: Session,
    topic: OptionalTopic = None,
    *,
    repair: Annotated[bool, typer.Option("--repair", help="Put them where they belong.")] = False,
    units: Annotated[
        float, typer.Option(min=1, metavar="N", help="Read units a second, at most.")
    ] = 200,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """List messages that lie in a shard where they do not belong, found by a scan of the table."""
    columns = ("ref", "belongs")
    if not repair:
        found = session.outbox.misplaced(topic, units_a_second=units)
        session.table(columns, map(misplaced_fields, found))
        return

    if not dry_run:
        session.confirm("Move the misplaced messages?", yes=yes)
    with bar("scanning") as advance:
        result = session.outbox.repair_misplaced(
            topic, dry_run=dry_run, units_a_second=units, progress=advance
        )

    fields = {
        "moved": [misplaced_fields(one) for one in result.moved],
        "left": [str(ref) for ref in result.left],
        "scanned": result.scanned,
        "dry_run": result.dry_run,
    }
    done = "would be moved" if dry_run else "moved"
    text = f"{len(result.moved)} {done}, {len(result.left)} left, of {result.scanned} items"
    session.show(fields, text)


@verb(
    outbox,
    "replay",
    example="fairbox outbox replay --archive $ARCHIVE --warehouse $WAREHOUSE --topic orders"
    " --state delivered --added-since 2026-11-18 --dry-run",
)
def replay(
    session: Session,
    archive: Annotated[str, typer.Option(metavar="URI", help="The archive's folder.")],
    warehouse: Annotated[str, typer.Option(metavar="URI", help="The history's folder.")],
    *,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Of this topic; may be repeated.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="With this key; may be repeated.")
    ] = None,
    state: Annotated[
        list[State] | None, typer.Option(help="In this state; may be repeated.")
    ] = None,
    added_since: Time = None,
    added_until: Time = None,
    everything: Annotated[bool, typer.Option("--everything", help="All there is.")] = False,
    ids: Annotated[Ids, typer.Option(help="Of what is put back.")] = "new",
    resume: Annotated[
        str | None, typer.Option("--replay", metavar="ID", help="Go on with this replay.")
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0.001, max=100_000, metavar="N", help="At most so many a second.")
    ] = 100,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Put messages of the archive back, with the pipeline, which chooses them from the history."""
    begin, end = _utc(added_since), _utc(added_until)
    chosen = [
        *(f"--topic={name}" for name in topic or []),
        *(f"--key={name}" for name in key or []),
        *(f"--state={name}" for name in state or []),
        *([f"--added-since={begin.isoformat()}"] if begin else []),
        *([f"--added-until={end.isoformat()}"] if end else []),
        *(["--everything"] if everything else []),
        *([f"--replay={resume}"] if resume else []),
    ]

    if not chosen:
        raise InvalidInput(
            "topic", "a choice: --topic, --key, --state, --added-since, --everything, --replay"
        )

    if not dry_run:
        session.confirm("Put the chosen messages back into the outbox?", yes=yes)

    where = [f"--archive={archive}", f"--warehouse={warehouse}"]
    how = [f"--ids={ids}", f"--rate={rate}", *(["--dry-run"] if dry_run else [])]
    run_job(session, "replay", [*where, *chosen, *how])


def import_rows(
    session: Session,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", show_default=False, help="The other outbox's table.")
    ],
    *,
    layout: Annotated[
        str, typer.Option(metavar="LAYOUT", help="`brighter`, or a file: JSON of a `RowLayout`.")
    ],
    topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="Rows of this topic alone, as they name it.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Publish to this topic instead.")
    ] = None,
    limit: OptionalLimit = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Move rows that wait in another outbox's table into this one, the oldest first."""
    # imported where it is used: `fairbox --help` does without the library
    from fairbox.client.row_import import RowImport  # noqa: PLC0415

    chosen = _layout(layout)
    chosen = chosen if to is None else replace(chosen, to=to)
    if not dry_run:
        session.confirm(f"Move what waits in table {table} into the outbox?", yes=yes)
    with bar("importing") as advance:
        result = RowImport(session.outbox).move(
            table, chosen, topic=topic, limit=limit, dry_run=dry_run, progress=advance
        )

    count = sum(result.topics.values())
    left = [{"row": row, "reason": reason} for row, reason in result.left]
    lines = [f"left: {row}: {reason}" for row, reason in result.left[:_SHOWN]]
    lines += [f"{name}: {number}" for name, number in sorted(result.topics.items())]
    lines.append(f"{count} {'would be moved' if dry_run else 'moved'}, {len(left)} left")
    fields = {"count": count, "topics": dict(result.topics), "left": left, "dry_run": dry_run}
    session.show(fields, "\n".join(lines))

    if left:
        raise typer.Exit(FAILED)


def _layout(given: str) -> RowLayout:
    from fairbox.tables.row_layouts import RowLayout  # noqa: PLC0415 - as above

    if given == "brighter":
        return RowLayout.brighter()
    try:
        values = json.loads(read_body(Path(given)))
    except ValueError as error:
        raise InvalidInput("layout", f"'brighter' or a JSON file; {given}: {error}") from None
    return RowLayout.of(values)


def run_job(session: Session, job: str, arguments: Sequence[str]) -> None:
    """Run a job of the pipeline in a process of its own, for the library does without Spark.

    It works on the outbox that the environment names; what it prints is printed. It says on
    standard error how far it is, and why it fails; that ends the run, 2 for a wrong value and
    else 1.

    Raises:
        Unavailable: the pipeline is not installed.
    """
    if find_spec(_PIPELINE) is None:
        raise Unavailable(job, "it is a job of the pipeline: install fairbox-pipeline")

    # imported where it is used: `fairbox --help` does without the SDK
    from fairbox.aws.deployed_settings import settings_with  # noqa: PLC0415

    environment = dict(settings_with(DEPLOYED, None, session.clients.client).values)
    if session.clients.endpoint_url is not None:
        # the SDK of the job reads it by itself
        environment["AWS_ENDPOINT_URL_DYNAMODB"] = session.clients.endpoint_url

    asked = [sys.executable, "-m", f"{_PIPELINE}.cli", job, *arguments, "--json"]
    # standard error is not caught: its progress is to be seen while it runs
    done = subprocess.run(asked, env=environment, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise typer.Exit(USAGE if done.returncode == USAGE else FAILED)
    session.show(json.loads(done.stdout))
