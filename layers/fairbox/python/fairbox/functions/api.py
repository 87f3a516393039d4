"""Api: the HTTP API."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from fairbox.api.app import App
from fairbox.api.route import Api
from fairbox.client.outbox import Outbox
from fairbox.model.clock import SystemClock
from fairbox.model.ids import IdGenerator
from fairbox.runtime.function_process import ends_in_time, make_at_start
from fairbox.sdk.clients import make_client
from fairbox.settings import FEEDS_TABLE, Settings

if TYPE_CHECKING:
    from fairbox.client.batches import Batches
    from fairbox.client.feeds import Feeds


@cache
def app() -> App:
    """Return this process's application, over the tables that the environment names."""
    clock = SystemClock()
    outbox = Outbox.from_env()
    ids = IdGenerator(clock)
    api = Api(outbox, ids, clock, lambda: _batches(outbox), lambda: _feeds(outbox))
    return App(api, Logger())


def _batches(outbox: Outbox) -> Batches:
    """Return the batches, over the existing client, because another one takes 0.2 s."""
    # imported where it is used: no other request pays for it
    from fairbox.client.batches import Batches  # noqa: PLC0415

    return Batches.from_env(client=lambda _: outbox.tables.calls.client)


def _feeds(outbox: Outbox) -> Feeds | None:
    """Return the feeds, over the existing client too; None: there are none."""
    from fairbox.client.feeds import Feeds  # noqa: PLC0415 - as above

    if Settings.from_env().optional(FEEDS_TABLE) is None:
        return None
    dynamodb = outbox.tables.calls.client
    return Feeds.from_env(client=lambda name: dynamodb if name == "dynamodb" else make_client(name))


@ends_in_time(app)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one request; an unexpected error fails the invocation and so raises the alarm."""
    return app().resolve(event, context)


make_at_start(app)
