"""`fairbox env`: the variables of a deployment, as a shell takes them."""

from __future__ import annotations

import shlex

from fairbox.cli.commands import Name  # noqa: TC001 - the verb's parameters are read
from fairbox.cli.session import Session  # noqa: TC001 - as above
from fairbox.model.deployment import DEFAULT_NAME
from fairbox.settings import STACK, Settings


def env(session: Session, name: Name = None) -> None:
    """Print the exports that name a deployment's tables, queues and buckets, and its API."""
    # imported where it is used: `fairbox --help` does without the SDK
    from fairbox.aws.deployed_settings import read_variables  # noqa: PLC0415

    name = name or Settings.from_env().optional(STACK) or DEFAULT_NAME
    values = {STACK: name, **read_variables(name, session.clients.client)}
    exports = (f"export {key}={shlex.quote(value)}" for key, value in values.items())
    session.show(values, "\n".join(exports))
