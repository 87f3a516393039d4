"""Noun `batch`: fan-outs whose completion is announced exactly once."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fairbox.cli.commands import DryRun, FromFile, Limit, OptionalLimit, Yes, noun, verb
from fairbox.cli.output_fields import batch_fields, progress_fields
from fairbox.cli.progress import end_wait, wait_for_batch
from fairbox.cli.session import Session
from fairbox.cli.verb_input import calls_of, item_ids
from fairbox.errors import BatchBusy, BatchEnded
from fairbox.settings import OPEN_BATCH_DAYS, SEALED_BATCH_DAYS
from fairbox.tables.batch_values import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

batch = noun("Know, exactly once, when a fan-out of any size is finished.")

_BUSY_TRIES: Final = 5
_BUSY_SECONDS: Final = 0.1

BatchId = Annotated[str, typer.Argument(metavar="BATCH", show_default=False, help="Its id.")]
Items = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ITEM]",
        show_default=False,
        help="Ids `batch:group:index`, of any batches; `-` is standard input, one a line.",
    ),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until the batch has ended; 1 unless it is complete.")
]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0, metavar="SECONDS", help="Wait no longer; 1 when it is over."),
]
After = Annotated[
    str | None, typer.Option("--after", metavar="ITEM", help="Only those behind this item.")
]


@verb(batch, "open", example="fairbox batch open --user-key catalog-7 --metadata '{\"run\": 7}'")
def open_batch(
    session: Session,
    user_key: Annotated[str, typer.Option(help="Your own name for it; at most 256 bytes.")] = "",
    metadata: Annotated[
        str, typer.Option(metavar="JSON", help="An object, carried into the completion message.")
    ] = "{}",
    *,
    batch_id: Annotated[
        str | None,
        typer.Option("--id", metavar="UUID", help="Its id; again it is the batch that is there."),
    ] = None,
    parent_item: Annotated[
        str | None,
        typer.Option(metavar="ITEM", help="A pending item, settled when this batch ends."),
    ] = None,
    on_complete: Annotated[
        str | None,
        typer.Option(metavar="TO", help="A topic or destination, told when this batch completes."),
    ] = None,
    on_success: Annotated[
        str | None,
        typer.Option(metavar="TO", help="The same, when it completes without failures."),
    ] = None,
    on_cancel: Annotated[
        str | None,
        typer.Option(metavar="TO", help="The same, when it is cancelled."),
    ] = None,
    on_death: Annotated[
        str | None,
        typer.Option(metavar="TO", help="The same, when the first of its items fails, once."),
    ] = None,
    retry_hours: Annotated[
        int | None,
        typer.Option(help="So long it stays open for retries; 24 with --on-success, else 0."),
    ] = None,
) -> None:
    """Open a batch and print its id."""
    try:
        values = json.loads(metadata)
    # deeply nested text ends the parser in RecursionError
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"--metadata is no JSON: {error}") from None

    opened = session.batches.open(
        user_key,
        values,
        id=batch_id,
        parent_item=parent_item,
        on_complete=on_complete,
        on_success=on_success,
        on_cancel=on_cancel,
        on_death=on_death,
        retry_hours=retry_hours,
    )

    session.show(batch_fields(opened), opened.id)


@verb(batch, "add", example="fairbox batch add $BATCH 25000 --request-id r1 --group-size 1000")
def add(
    session: Session,
    name: BatchId,
    count: Annotated[int, typer.Argument(show_default=False, help="How many items, from 1.")],
    *,
    request_id: Annotated[
        str | None,
        typer.Option(help="Names this add: again it gives the same groups. A new one by default."),
    ] = None,
    group_size: Annotated[int, typer.Option(help="Items of a group, 1 to 7168.")] = 7168,
    items: Annotated[bool, typer.Option("--items", help="Print every item's id instead.")] = False,
) -> None:
    """Add items and print their groups, id and size: all of them or none."""
    request = request_id if request_id is not None else session.new_id()
    if request_id is None:
        # before the call: if it is cut off, the same id goes on with it
        session.note(f"request id: {request}")

    groups = session.batches.add(name, count, request_id=request, group_size=group_size)
    if items:
        # as they come: a batch may have millions of items
        session.lines(({"id": item}, item) for group in groups for item in group.item_ids())
        return

    fields = {
        "id": name,
        "request_id": request,
        "groups": [{"id": group.id, "size": group.size} for group in groups],
    }
    session.show(fields, "\n".join(f"{group.id} {group.size}" for group in groups))


@verb(batch, "seal", example="fairbox batch seal $BATCH")
def seal(session: Session, name: BatchId, wait: Wait = False, timeout: Timeout = None) -> None:
    """Say that no more items will come, and show the progress."""
    progress = session.batches.seal(name)
    if wait:
        progress = wait_for_batch(session, name, timeout)
    session.show(progress_fields(progress))
    if wait:
        end_wait(session, progress, timeout)


@verb(batch, "ack", example="fairbox batch ack $BATCH:0:0 $BATCH:0:1")
def ack(
    session: Session, items: Items = None, file: FromFile = None, dry_run: DryRun = False
) -> None:
    """Ack items, 10,000 a call; a call with an id that was never issued changes nothing."""
    _settle(session, "ack", item_ids(items, file), dry_run=dry_run)


@verb(batch, "fail", example="fairbox batch fail $BATCH:0:2 --reason 'no such product'")
def fail(
    session: Session,
    items: Items = None,
    file: FromFile = None,
    reason: Annotated[str, typer.Option(help="120 bytes of it are kept.")] = "",
    dry_run: DryRun = False,
) -> None:
    """Fail items, 10,000 a call; a batch completes with failures as it does without."""
    _settle(session, "fail", item_ids(items, file), reason, dry_run=dry_run)


@verb(batch, "retry", example="fairbox batch retry $BATCH:0:2")
def retry(
    session: Session, items: Items = None, file: FromFile = None, dry_run: DryRun = False
) -> None:
    """Make failed items pending again, 10,000 a call."""
    _settle(session, "retry", item_ids(items, file), dry_run=dry_run)


def _settle(
    session: Session, name: str, items: Iterable[str], reason: str = "", *, dry_run: bool
) -> None:
    """Settle items call by call, and show what changed; in a dry run, what could be settled.

    What stays busy is sent again. A call that is refused ends the run; `session.done` says what
    was done before it.
    """
    if dry_run:
        _check(session, items)
        return

    changed, count = 0, 0
    completed: list[str] = []
    for call in calls_of(items):
        for part in _until_done(session, name, call, reason):
            changed += part[0]
            completed += part[1]
            session.done = {"ids": count, "changed": changed, "completed": completed}
        count += len(call)
        session.done = {"ids": count, "changed": changed, "completed": completed}

    fields: dict[str, object] = {"ids": count, "changed": changed, "completed": completed}
    text = f"{changed} of {count} items changed"
    session.show(fields, "\n".join([text, *(f"complete: {batch}" for batch in completed)]))


def _until_done(
    session: Session, name: str, call: list[str], reason: str
) -> Iterator[tuple[int, tuple[str, ...]]]:
    for attempt in range(1, _BUSY_TRIES + 1):
        batches = session.batches
        try:
            if name == "fail":
                result = batches.fail(call, reason)
            else:
                result = batches.ack(call) if name == "ack" else batches.retry(call)
        except BatchEnded as error:
            # counted before the error ends the run
            yield error.changed, error.completed
            raise
        except BatchBusy as error:
            yield error.changed, error.completed
            if attempt == _BUSY_TRIES:
                raise

            # the rest alone: settled items would be no error, but cost their groups' reads again
            call = list(error.left)
            session.clock.sleep(_BUSY_SECONDS * 2**attempt)
        else:
            yield result.changed, result.completed
            return


def _check(session: Session, items: Iterable[str]) -> None:
    """Show how many ids can be settled, and name those that cannot; change nothing."""
    good, bad = 0, list[str]()
    for call in calls_of(items):
        known, unknown = session.maintenance.settlement.split_known(call)
        good += len(known)
        bad += unknown
    fields: dict[str, object] = {"ids": good + len(bad), "known": good, "unknown": bad}
    text = f"{good} of {good + len(bad)} items can be settled"
    session.show(fields, "\n".join([text, *(f"unknown: {item}" for item in bad)]))
    if bad:
        raise typer.Exit(1)


@verb(batch, "show", example="fairbox batch show $BATCH")
def show(
    session: Session,
    name: BatchId,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="From 100 unfinished groups at random, with a bound.")
    ] = False,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Show a batch with its progress and metadata."""
    if wait:
        progress = wait_for_batch(session, name, timeout)
    else:
        progress = session.batches.progress(name, exact=not estimate)
    shown = batch_fields(session.batches.get(name)) | progress_fields(progress)
    session.show(shown | {"metadata": dict(session.batches.metadata(name))})
    if wait:
        end_wait(session, progress, timeout)


@verb(batch, "missing", example="fairbox batch missing $BATCH --limit 100")
def missing(
    session: Session, name: BatchId, limit: OptionalLimit = None, after: After = None
) -> None:
    """List the pending items, by group and index."""
    found = islice(session.batches.missing(name, after=after), limit)
    session.lines(({"id": item}, item) for item in found)


@verb(batch, "failed", example="fairbox batch failed $BATCH")
def failed(
    session: Session, name: BatchId, limit: OptionalLimit = None, after: After = None
) -> None:
    """List the failed items with their reasons, by group and index."""
    found = islice(session.batches.failed(name, after=after), limit)
    session.lines(({"id": f.id, "reason": f.reason}, f"{f.id} {f.reason}".rstrip()) for f in found)


@verb(batch, "cancel", example="fairbox batch cancel $BATCH --yes")
def cancel(session: Session, name: BatchId, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Cancel a batch that has not completed: it will not be announced."""
    if dry_run:
        # the state is all that counts here, and an exact progress reads every unfinished group
        progress = session.batches.progress(name, exact=False)
        session.show(progress_fields(progress), f"{name} is {progress.state}: not cancelled")
        return
    session.confirm(f"Cancel batch {name}?", yes=yes)
    cancelled = session.batches.cancel(name)
    session.show(batch_fields(cancelled), f"{name} is cancelled")


@verb(batch, "list", example="fairbox batch list --state sealed")
def list_batches(
    session: Session,
    state: Annotated[State, typer.Option(help="`reaped` ones are the orphans.")] = "open",
    limit: Limit = 100,
) -> None:
    """List batches in a state; the index that it reads trails by a moment."""
    found = session.batches.list(state, limit=limit)
    columns = ("id", "state", "total", "opened_at", "user_key")
    session.table(columns, (batch_fields(batch) for batch in found))


@verb(batch, "orphans", example="fairbox batch orphans")
def orphans(
    session: Session,
    open_days: Annotated[
        float,
        typer.Option(
            min=0, envvar=OPEN_BATCH_DAYS, help="Idle for so long, an open batch is an orphan."
        ),
    ] = 7,
    sealed_days: Annotated[
        float,
        typer.Option(
            min=0, envvar=SEALED_BATCH_DAYS, help="Idle for so long, a sealed batch is an orphan."
        ),
    ] = 14,
) -> None:
    """List the batches that the hourly clean-up would end now; change nothing."""

    def found() -> list[dict[str, object]]:
        checks = (
            session.maintenance.cleanup.check_orphan(
                due,
                open_hours=round(open_days * 24),
                sealed_hours=round(sealed_days * 24),
                dry_run=True,
            )
            for due in session.maintenance.cleanup.due_for_check()
        )
        return [
            {
                "id": check.batch,
                "fate": check.fate,
                "active_at": check.active * 3_600_000,
                "progress": None if check.progress is None else progress_fields(check.progress),
            }
            for check in checks
            if check.fate in ("reaped", "cancelled")
        ]

    session.table(("id", "fate", "active_at"), found())
