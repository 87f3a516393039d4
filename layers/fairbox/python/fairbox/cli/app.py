"""The command line's root: every noun, `--version`, completion for shells."""

from __future__ import annotations

from typing import Annotated

import typer

from fairbox.cli import (
    batch,
    dlq,
    doctor,
    message,
    outbox,
    queue,
    shell,
    simulate,
    subscription,
    topic,
)
from fairbox.cli.commands import verb

app = typer.Typer(
    name="fairbox",
    help="A sharded transactional outbox on DynamoDB. The tables are those that the environment"
    " names (FAIRBOX_OUTBOX_TABLE and the like), region and credentials the AWS SDK's own.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(batch.batch, name="batch")
app.add_typer(topic.topic, name="topic")
app.add_typer(message.message, name="message")
app.add_typer(queue.queue, name="queue")
app.add_typer(subscription.subscription, name="subscription")
app.add_typer(dlq.dlq, name="dlq")
app.add_typer(outbox.outbox, name="outbox")
verb(app, "doctor", example="fairbox doctor")(doctor.doctor)
verb(app, "shell", example="fairbox shell")(shell.shell)
verb(app, "simulate", example="fairbox simulate --scenario ordered --messages 300", tables=False)(
    simulate.simulate
)


def _version(value: bool) -> None:
    if value:
        # imported where it is used: it takes a fifth of the time that `--help` takes
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(version("fairbox"))
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before a noun."""
