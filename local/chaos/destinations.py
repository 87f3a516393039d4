"""Where a chaos run's messages go: its queues, the bus that ends in one, and their addresses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from local.chaos.plan import ROUTES, Route
from local.workspace import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping

BUS: Final = "chaos"
QUEUE_OF: Final = {"queue": "chaos-queue", "bus": "chaos-bus"}


def make_queues(clients: Mapping[str, Any]) -> dict[str, str]:
    """Make the queues, and the bus that ends in one; return the queues' URLs by taker."""
    sqs, events = clients["sqs"], clients["events"]
    urls = {taker: str(sqs.create_queue(QueueName=n)["QueueUrl"]) for taker, n in QUEUE_OF.items()}
    asked = sqs.get_queue_attributes(QueueUrl=urls["bus"], AttributeNames=["QueueArn"])
    events.create_event_bus(Name=BUS)
    pattern = json.dumps({"source": [{"prefix": ""}]})
    events.put_rule(Name=BUS, EventBusName=BUS, EventPattern=pattern)
    target = {"Id": "queue", "Arn": asked["Attributes"]["QueueArn"]}
    events.put_targets(Rule=BUS, EventBusName=BUS, Targets=[target])
    return urls


def address(route: Route, name: str, port: int, queues: Mapping[str, str]) -> str:
    """Return the destination of one of a topic's subscriptions; hooks are on a port."""
    kind = route.subscriptions[name]
    if kind == "hook":
        return f"http://{LOOPBACK}:{port}/{route.name}/{name}"
    if kind == "topic":
        return "topic:" + next(r.name for r in ROUTES if r.copies == route.name)
    return f"events:{BUS}" if kind == "bus" else f"sqs:{queues['queue']}"
