"""The root of the command line, and verbs: functions of a session, with `--json` and the like."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

import fairbox
from fairbox.cli.library_clients import Clients, Opener
from fairbox.cli.session import Session
from fairbox.errors import FairboxError

Verb = Callable[..., None]

Json = Annotated[bool, typer.Option("--json", help="Print JSON; of a list, one object a line.")]
EndpointUrl = Annotated[
    str | None,
    typer.Option("--endpoint-url", metavar="URL", help="DynamoDB's, in place of the SDK's own."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10**9, help="At most so many.")]
OptionalLimit = Annotated[
    int | None,
    typer.Option("--limit", "-n", min=1, max=10**9, help="At most so many; all by default."),
]
FromFile = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", metavar="PATH", help="Read it from a file; `-` is standard input."
    ),
]
Time = Annotated[
    datetime | None,
    typer.Option(
        formats=["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"],
        metavar="TIME",
        help="As 2026-01-31T12:00:00+01:00; UTC without an offset.",
    ),
]
AllPartitions = Annotated[
    bool, typer.Option("--all-partitions", help="Every partition of the queue of this name.")
]
TopicName = Annotated[
    str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic's name.")
]
Ref = Annotated[
    str, typer.Argument(metavar="REF", show_default=False, help="`topic/epoch/shard/id`.")
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="The deployment; by default that of FAIRBOX_STACK, else Fairbox.",
    ),
]
app = typer.Typer(
    name="fairbox",
    help="A sharded transactional outbox on DynamoDB. The tables are those that the environment"
    " names (FAIRBOX_STACK, or FAIRBOX_OUTBOX_TABLE and the like), region and credentials the AWS"
    " SDK's own.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_SHARED = {"json": (Json, False), "endpoint_url": (EndpointUrl, None)}


def _version(value: bool) -> None:
    if value:
        typer.echo(fairbox.__version__)
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before a noun."""


def noun(text: str) -> typer.Typer:
    """Return a noun, of which verbs are declared."""
    return typer.Typer(help=text, no_args_is_help=True)


def verb(
    of: typer.Typer, name: str, *, example: str, tables: bool = True
) -> Callable[[Verb], Verb]:
    """Declare a verb.

    The function's first parameter is the session; the others are arguments and options. It gets
    `--json` and `--endpoint-url`, and errors of the library end it with one line.

    Args:
        of: the noun.
        name: the verb.
        example: a command line that works, with `$BATCH` and the like where an id stands.
        tables: whether it works on tables; else it takes no `--endpoint-url`.
    """
    options = {name: _SHARED[name] for name in _SHARED if tables or name != "endpoint_url"}

    def declare(run: Verb) -> Verb:
        def command(ctx: typer.Context, **given: Any) -> None:
            # the shell and tests hand in clients of their own
            opener: Opener = ctx.obj or Clients
            as_json, url = given.pop("json"), given.pop("endpoint_url", None)
            session = Session(opener(url), json=as_json)
            try:
                run(session, **given)
            # only errors of the library: any other is a fault, and its traceback is wanted
            except FairboxError as error:
                session.fail(error)

        # modules have postponed annotations: these are texts until they are resolved here
        hints = get_type_hints(run, include_extras=True)
        _, *own = inspect.signature(run).parameters.values()
        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

        # typer reads arguments and options from the signature: the shared ones are added to it
        parameters = [
            context,
            *(p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name]) for p in own),
            *(
                inspect.Parameter(
                    shared, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
                )
                for shared, (kind, default) in options.items()
            ),
        ]

        command.__name__ = run.__name__
        command.__doc__ = run.__doc__
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        vars(command)["__signature__"] = inspect.Signature(parameters)
        of.command(name, epilog=f"Example: {example}")(command)
        return run

    return declare
