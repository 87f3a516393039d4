"""`fairbox smoke`: whether a deployment delivers, shown by real messages."""

from __future__ import annotations

from typing import Annotated

import typer

from fairbox.cli.commands import Name  # noqa: TC001 - the verb's parameters are read
from fairbox.cli.session import FAILED, Session
from fairbox.errors import InvalidInput

_MARKS = {"ok": "ok", "failed": "FAIL", "not tried": "--"}


def smoke(
    session: Session,
    name: Name = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="A kind of destination not to try; may be repeated. A Kinesis stream costs a cent"
            " or two a run.",
        ),
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A receiver of webhooks that answers 2xx, for https."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="Time after which what has not come has failed.")
    ] = 180,
) -> None:
    """Send messages of every kind through a deployment, and remove them. Exits 1 where one failed.

    One message goes to each kind of destination, one is delayed, one dies and is redriven, and ten
    complete a batch. Queues and the like are made in the caller's name for the time of the test.
    """
    # imported where they are used: no other verb pays for them
    from fairbox.aws.deployed_settings import read_variables  # noqa: PLC0415
    from fairbox.client.batches import Batches  # noqa: PLC0415
    from fairbox.client.outbox import Outbox  # noqa: PLC0415
    from fairbox.client.queue import Queue  # noqa: PLC0415
    from fairbox.settings import SMOKE_PREFIX, SWEEP_FUNCTION_ARN, Settings  # noqa: PLC0415
    from fairbox.smoke.resources import SmokeResources  # noqa: PLC0415
    from fairbox.smoke.run import Smoke  # noqa: PLC0415
    from fairbox.smoke.steps import DESTINATIONS  # noqa: PLC0415

    unknown = set(without or ()) - set(DESTINATIONS)
    if unknown:
        raise InvalidInput("without", f"one of {', '.join(DESTINATIONS)}")

    client = session.clients.client
    if name is None:
        settings, outbox, batches = session.clients.settings, session.outbox, session.batches
    else:
        # a deployment that is named goes before the environment
        settings = Settings({**Settings.from_env().values, **read_variables(name, client)})
        outbox = Outbox.from_env(settings, client=client)
        batches = Batches.from_env(settings, client=client)

    run = Smoke(
        outbox,
        Queue.over(outbox),
        batches,
        SmokeResources(client, settings.required(SMOKE_PREFIX), session.clock),
        session.clock,
        new_id=session.new_id,
        # the random end of an id: two runs at a time have names apart
        run=session.new_id()[-8:],
        # in the order of `DESTINATIONS`, not of the options
        kinds=[kind for kind in DESTINATIONS if kind not in (without or ())],
        function=settings.optional(SWEEP_FUNCTION_ARN),
        webhook=webhook,
        seconds=seconds,
    )

    session.note("sending; the topics are removed a minute after the last message has come")
    failed = 0
    for step in run.steps():
        failed += step.status == "failed"
        took = "" if step.seconds is None else f"{step.seconds:g} s"
        session.lines(
            [(step.fields(), f"{_MARKS[step.status]:<4}  {step.name:<11}  {took}{step.detail}")]
        )

    if failed:
        raise typer.Exit(FAILED)
