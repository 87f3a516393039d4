"""`fairbox doctor`: what is wrong with a deployment, and what to do."""

from __future__ import annotations

from collections import Counter
from typing import Annotated
from urllib.parse import urlsplit

import typer

import fairbox
from fairbox.cli.commands import Name  # noqa: TC001 - the verb's parameters are read
from fairbox.cli.session import FAILED, Session
from fairbox.model.deployment import DEFAULT_NAME
from fairbox.settings import STACK, Settings

_MARKS = {"ok": "ok", "warn": "WARN", "fail": "FAIL", "not checked": "--"}


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
    from fairbox.aws.deployed_settings import read_variables  # noqa: PLC0415
    from fairbox.client.outbox import Outbox  # noqa: PLC0415
    from fairbox.doctor.aws import Aws  # noqa: PLC0415
    from fairbox.doctor.examination import examine  # noqa: PLC0415
    from fairbox.doctor.examined_deployment import Deployment  # noqa: PLC0415

    if name is None:
        settings, outbox = session.clients.settings, session.outbox
    else:
        # a deployment that is named goes before the environment
        values = read_variables(name, session.clients.client)
        settings = Settings({**Settings.from_env().values, **values})
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
