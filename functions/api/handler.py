"""Api: the HTTP API."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from fairbox.api.app import App
from fairbox.api.context import Api
from fairbox.client.outbox import Outbox
from fairbox.model.clock import SystemClock
from fairbox.model.ids import IdGenerator
from fairbox.runtime.time_limit import ends_in_time

if TYPE_CHECKING:
    from fairbox.client.batches import Batches


@cache
def app() -> App:
    """Return this process's application, over the tables that the environment names."""
    clock = SystemClock()
    outbox = Outbox.from_env()
    return App(Api(outbox, IdGenerator(clock), clock, lambda: _batches(outbox)), Logger())


def _batches(outbox: Outbox) -> Batches:
    """Return the batches, over the existing client, because another one takes 0.2 s."""
    # imported where it is used: no other request pays for it
    from fairbox.client.batches import Batches  # noqa: PLC0415

    return Batches.from_env(client=lambda _: outbox.tables.calls.client)


@ends_in_time(app)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one request; an unexpected error fails the invocation and so raises the alarm."""
    return app().resolve(event, context)
