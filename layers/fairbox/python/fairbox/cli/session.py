"""One run of a verb: its clients, what it prints, and how it fails."""

from __future__ import annotations

import base64
import json
import sys
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, NoReturn

import typer

from fairbox.errors import (
    BatchBusy,
    BatchEnded,
    FairboxError,
    InvalidInput,
    MessagesClaimed,
    MessagesNotFound,
    MessagesNotWritten,
    StaleReceipt,
    UnknownItems,
)
from fairbox.problems import URN, refusal_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fairbox.cli.library_clients import Clients
    from fairbox.client.batch_maintenance import BatchMaintenance
    from fairbox.client.batches import Batches
    from fairbox.client.feeds import Feeds
    from fairbox.client.outbox import Outbox
    from fairbox.client.partitioned_queue import PartitionedQueue
    from fairbox.client.queue import Queue
    from fairbox.model.clock import Clock

FAILED = 1
USAGE = 2
_TIMES = ("at", "since", "held_until")  # and what ends in `_at`, in milliseconds
_MOST_CHARACTERS = 4000  # of a body: a screen or two


class Session:
    """The clients, options and output of one verb.

    Attributes:
        clients: the library's entrances.
        json: print JSON.
        done: what a verb that works in several calls has done so far; problem when it fails.
    """

    def __init__(self, clients: Clients, *, json: bool = False) -> None:
        self.clients = clients
        self.json = json
        self.done: dict[str, object] = {}

    @property
    def outbox(self) -> Outbox:
        """The outbox."""
        return self.clients.outbox

    @property
    def queue(self) -> Queue:
        """The queue."""
        return self.clients.queue

    @property
    def batches(self) -> Batches:
        """The batches."""
        return self.clients.batches

    @property
    def feeds(self) -> Feeds:
        """The feeds."""
        return self.clients.feeds

    @property
    def maintenance(self) -> BatchMaintenance:
        """The upkeep of all batches."""
        # imported where it is used: `fairbox --help` does without the library
        from fairbox.client.batch_maintenance import BatchMaintenance  # noqa: PLC0415

        return BatchMaintenance(self.batches)

    def partitions(self, name: str) -> PartitionedQueue:
        """Return the partitioned queue of a logical name."""
        from fairbox.client.partitioned_queue import PartitionedQueue  # noqa: PLC0415 - as above

        return PartitionedQueue.registered(self.outbox, name)

    @property
    def clock(self) -> Clock:
        """The time."""
        return self.clients.clock

    def new_id(self, after: str | None = None) -> str:
        """Return a new UUIDv7, above another one."""
        return self.clients.new_id(after)

    def show(self, fields: Mapping[str, object], text: str | None = None) -> None:
        """Print one thing: its fields as JSON; or a text, by default a line a field."""
        if self.json:
            typer.echo(as_json(fields))
        elif text is not None:
            typer.echo(printable(text))
        else:
            cells = {n: cell(n, v) for n, v in fields.items() if v is not None}
            if "body" in cells:
                cells["body"] = body_text(fields)
                cells.pop("body_encoding", None)
            width = max(map(len, cells), default=0)
            for name, value in cells.items():
                typer.echo(f"{name:<{width}}  " + value.replace("\n", "\n" + " " * (width + 2)))

    def details(self, columns: Sequence[str], entries: Iterable[Mapping[str, object]]) -> None:
        """Print things with their bodies: JSON objects, one a line, or some fields of each."""
        printed = False
        for fields in entries:
            if printed and not self.json:
                typer.echo()
            chosen = (*columns, "content_type", "body", "body_encoding")
            self.show(fields if self.json else {name: fields.get(name) for name in chosen})
            printed = True
        if not printed:
            self.note("nothing")

    def lines(self, entries: Iterable[tuple[Mapping[str, object], str]]) -> None:
        """Print a list as it comes: JSON objects, or texts, one a line."""
        for fields, text in entries:
            typer.echo(as_json(fields) if self.json else printable(text))

    def table(self, columns: Sequence[str], entries: Iterable[Mapping[str, object]]) -> None:
        """Print a list: JSON objects with all fields, one a line, or a table of some columns."""
        if self.json:
            for fields in entries:
                typer.echo(as_json(fields))
            return

        rows = [[cell(column, fields.get(column)) for column in columns] for fields in entries]
        if not rows:
            self.note("nothing")
            return

        # a few of them make no table worth a library
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        for row in ([column.upper() for column in columns], *rows):
            padded = (f"{text:<{width}}" for text, width in zip(row, widths, strict=True))
            typer.echo("  ".join(padded).rstrip())

    def note(self, text: str) -> None:
        """Say something beside the result, on standard error; nothing with JSON."""
        if not self.json:
            typer.echo(printable(text), err=True)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask, unless the answer was given; any other answer ends the run, 1."""
        if yes:
            return
        try:
            # on standard error: standard output has results alone
            agreed = typer.confirm(question, err=True)
        except typer.Abort:  # nobody is there to answer
            typer.echo(err=True)
            agreed = False
        if not agreed:
            typer.echo("Aborted: nothing was changed. Answer y, or give --yes.", err=True)
            raise typer.Exit(FAILED)

    def fail(self, error: FairboxError) -> NoReturn:
        """Print an error on standard error, one line, and end: 2 for a wrong value, else 1."""
        if self.json:
            typer.echo(as_json(problem(error) | self.done), err=True)
        else:
            # an error is one line, whatever texts of users it quotes
            text = " ".join(str(error).split())
            done = "".join(f"; {name}: {value}" for name, value in self.done.items() if value)
            typer.echo(printable(f"fairbox: {text}{done}"), err=True)
        raise typer.Exit(USAGE if isinstance(error, InvalidInput) else FAILED)


def problem(error: FairboxError) -> dict[str, object]:
    """Return an error as the HTTP API would say it, with all ids that it names."""
    refusal = refusal_of(error)
    body = refusal.problem("")
    fields: dict[str, object] = {
        "type": URN + refusal.kind,
        "title": body["title"],
        "detail": str(error),
        "retry": error.retry,
    }
    if "errors" in body:
        fields["errors"] = body["errors"]

    match error:
        case UnknownItems():
            fields["items"] = list(error.items)
        case BatchEnded():
            fields["items"] = list(error.items)
            fields |= {"changed": error.changed, "completed": list(error.completed)}
        case BatchBusy():
            fields["left"] = list(error.left)
        case StaleReceipt():
            fields["receipts"] = list(error.receipts)
        case MessagesClaimed():
            fields["claimed"] = [str(ref) for ref in error.claimed]
        case MessagesNotFound() | MessagesNotWritten():
            fields["missing"] = [str(ref) for ref in error.missing]

    return fields


def as_json(fields: Mapping[str, object]) -> str:
    """Return one line of JSON that any terminal and locale takes."""
    return json.dumps(fields, separators=(",", ":"))


def printable(text: str) -> str:
    """Return a text of some lines without what moves a terminal's cursor or hides what it says."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def cell(name: str, value: object) -> str:
    """Return a field as people read it: times by their names, in UTC."""
    value = _in_utc(name, value)
    if isinstance(value, str):
        # what a user once stored must not move the cursor
        return value if value.isprintable() else json.dumps(value)
    if name == "partition" and isinstance(value, dict):
        return "{number} of {count} of {queue}".format(**value)
    return "" if value is None else json.dumps(value)


def _in_utc(name: str, value: object) -> object:
    """Return a field with its times as text, at any depth."""
    if isinstance(value, dict) and name != "attempts":  # it is by names that users give
        return {key: _in_utc(key, part) for key, part in value.items()}
    if isinstance(value, list):
        return [_in_utc(name, part) for part in value]
    if isinstance(value, int) and (name.endswith("_at") or name in _TIMES):
        with suppress(ValueError, OverflowError, OSError):  # a year beyond 9999 has no text
            return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="seconds")
    return value


def body_text(fields: Mapping[str, object]) -> str:
    """Return a body as people read it: JSON on lines of its own, text, or what it is if binary."""
    body = str(fields["body"])
    if fields.get("body_encoding") == "base64":
        return f"{len(base64.b64decode(body))} bytes of {fields.get('content_type')}: see --json"
    with suppress(ValueError, RecursionError):
        if isinstance(value := json.loads(body, parse_float=_exact), dict | list):
            body = json.dumps(value, indent=2, ensure_ascii=False)
    if len(body) > _MOST_CHARACTERS:
        body = f"{body[:_MOST_CHARACTERS]}\n... {len(body)} characters in all: see --json"
    return printable(body)


def _exact(text: str) -> float:
    """Return a number that prints as what it is; ValueError: no float does, so the body stays."""
    value = float(text)
    if Decimal(repr(value)) != Decimal(text):
        raise ValueError(text)
    return value


def interactive() -> bool:
    """Return whether somebody watches standard error."""
    return sys.stderr.isatty()
