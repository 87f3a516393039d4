"""`fairbox import`: rows that wait in another outbox's table, moved into this one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairbox.cli.commands import (  # noqa: TC001 - the verb's parameters are read
    DryRun,
    OptionalLimit,
    Yes,
)
from fairbox.cli.progress import bar
from fairbox.cli.session import FAILED, Session
from fairbox.cli.verb_input import read_body
from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from fairbox.tables.row_layouts import RowLayout

_SHOWN = 20


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
