"""Api: answers the HTTP API."""

from __future__ import annotations

from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from fairbox.api.app import App
from fairbox.api.routes import Api
from fairbox.clock import SystemClock
from fairbox.ids import IdGenerator
from fairbox.outbox import Outbox


@cache
def app() -> App:
    """Return this process's application, over the tables that the environment names."""
    clock = SystemClock()
    return App(Api(Outbox.from_env(), IdGenerator(clock), clock), Logger())


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one request; what is no refusal but a bug fails the invocation, and so alarms."""
    return app().resolve(event, context)
