"""Destinations of a chaos run: its queues, the bus that ends in one, and their addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from local.accounting.queues import create_bus
from local.accounting.topics import ROUTES, Route
from local.workspace import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping

BUS: Final = "chaos"
QUEUE_OF: Final = {"queue": "chaos-queue", "bus": "chaos-bus"}


def make_queues(clients: Mapping[str, Any]) -> dict[str, str]:
    """Create the queues and the bus that ends in one; return the queues' URLs by taker."""
    sqs = clients["sqs"]
    urls = {taker: str(sqs.create_queue(QueueName=n)["QueueUrl"]) for taker, n in QUEUE_OF.items()}
    create_bus(clients, BUS, urls["bus"])
    return urls


def address(route: Route, name: str, port: int, queues: Mapping[str, str]) -> str:
    """Return the destination of a subscription; webhooks are on a port of this machine."""
    kind = route.subscriptions[name]
    if kind == "hook":
        return f"http://{LOOPBACK}:{port}/{route.name}/{name}"
    if kind == "topic":
        return "topic:" + next(r.name for r in ROUTES if r.copies == route.name)
    return f"events:{BUS}" if kind == "bus" else f"sqs:{queues['queue']}"
