"""The root of the command line, to which `app` adds the nouns; `--version`."""

from __future__ import annotations

from typing import Annotated

import typer

import fairbox

app = typer.Typer(
    name="fairbox",
    help="A sharded transactional outbox on DynamoDB. The tables are those that the environment"
    " names (FAIRBOX_STACK, or FAIRBOX_OUTBOX_TABLE and the like), region and credentials the AWS"
    " SDK's own.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


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
