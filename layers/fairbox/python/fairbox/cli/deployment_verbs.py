"""`fairbox env`, `doctor`, `smoke`: a deployment's variables, its faults, whether it delivers."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Annotated
from urllib.parse import urlsplit

import typer

import fairbox
from fairbox.cli.commands import Name  # noqa: TC001 - the verb's parameters are read
from fairbox.cli.session import FAILED, Session
from fairbox.errors import InvalidInput
from fairbox.model.deployment import DEFAULT_NAME
from fairbox.settings import SMOKE_PREFIX, STACK, SWEEP_FUNCTION_ARN, Settings

_MARKS = {
    "ok": "ok",
    "warn": "WARN",
    "fail": "FAIL",
    "failed": "FAIL",
    "not checked": "--",
    "not tried": "--",
}


def env(session: Session, name: Name = None) -> None:
    """Print the exports that name a deployment's tables, queues and buckets, and its API."""
    # imported where it is used: `fairbox --help` does without the SDK
    from fairbox.aws.deployed_settings import read_variables  # noqa: PLC0415

    name = name or Settings.from_env().optional(STACK) or DEFAULT_NAME
    values = {STACK: name, **read_variables(name, session.clients.client)}
    exports = (f"export {key}={shlex.quote(value)}" for key, value in values.items())
    session.show(values, "\n".join(exports))


def _settings(session: Session, name: str) -> Settings:
    """Return the environment with the variables of a deployment, which go before it."""
    from fairbox.aws.deployed_settings import read_variables  # noqa: PLC0415 - as above

    values = read_variables(name, session.clients.client)
    return Settings({**Settings.from_env().values, **values})


def doctor(
    session: Session,
    name: Name = None,
    stack: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A stack of the deployment; may be repeated. The five of its name by default.",
        ),
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Make this check only; may be repeated. All by default."),
    ] = None,
    *,
    placement: Annotated[
        bool, typer.Option("--placement", help="Scan the outbox for messages in wrong shards.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show what is as it should be too.")
    ] = False,
) -> None:
    """Check a deployment and say what to do; changes nothing. Exits 1 where a check failed."""
    # imported where they are used: no other verb pays for them
    from fairbox.client.outbox import Outbox  # noqa: PLC0415
    from fairbox.doctor.aws import Aws  # noqa: PLC0415
    from fairbox.doctor.examination import examine  # noqa: PLC0415
    from fairbox.doctor.examined_deployment import Deployment  # noqa: PLC0415

    if name is None:
        settings, outbox = session.clients.settings, session.outbox
    else:
        settings = _settings(session, name)
        outbox = Outbox.from_env(settings, client=session.clients.client)

    url = session.clients.endpoint_url or Settings.from_env().values.get(
        "AWS_ENDPOINT_URL_DYNAMODB", ""
    )
    deployment = Deployment(
        outbox,
        settings,
        Aws(session.clients.client, session.clock.sleep),
        fairbox.__version__,
        stacks=tuple(stack or ()),
        name=name or settings.optional(STACK) or DEFAULT_NAME,
        placement=placement,
        local=urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1"),
    )

    # the local application has no stacks, alarms or backups
    hidden = ("ok", "not checked") if deployment.local else ("ok",)
    count = Counter[str]()
    for finding in examine(deployment, check or ()):
        count[finding.status] += 1
        if session.json:
            # as they come: a check may take long, and a later one fail
            session.lines([(finding.fields(), "")])
        elif everything or finding.status not in hidden:
            mark = _MARKS[finding.status]
            typer.echo(f"{mark:<4}  {finding.check}: {finding.subject}: {finding.detail}")
            if finding.advice:
                typer.echo(f"      {finding.advice}")

    if not session.json:
        typer.echo(
            f"{count['fail']} failed, {count['warn']} warnings, {count['ok']} ok,"
            f" {count['not checked']} not checked"
        )

    if count["fail"]:
        raise typer.Exit(FAILED)


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
    from fairbox.client.batches import Batches  # noqa: PLC0415
    from fairbox.client.outbox import Outbox  # noqa: PLC0415
    from fairbox.client.queue import Queue  # noqa: PLC0415
    from fairbox.smoke.resources import SmokeResources  # noqa: PLC0415
    from fairbox.smoke.run import DESTINATIONS, Smoke  # noqa: PLC0415

    unknown = set(without or ()) - set(DESTINATIONS)
    if unknown:
        raise InvalidInput("without", f"one of {', '.join(DESTINATIONS)}")

    client = session.clients.client
    if name is None:
        settings, outbox, batches = session.clients.settings, session.outbox, session.batches
    else:
        settings = _settings(session, name)
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
