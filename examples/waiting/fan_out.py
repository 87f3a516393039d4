"""The start of a fan-out, by whoever waits for its end."""

from __future__ import annotations

import json
import os
import uuid
from typing import Any

from fairbox import Batches, Message, Outbox

outbox, batches = Outbox.from_env(), Batches.from_env()


def start(token: str, waits: str, count: int) -> None:
    """Publish pages as a batch that carries the token of what waits.

    A repetition with the same token finds the same batch and items; pages may come twice then, and
    each item counts once.
    """
    batch = batches.open(
        id=str(uuid.uuid5(uuid.NAMESPACE_URL, token)),
        metadata={"token": token, "waits": waits},
        on_complete=f"sqs:{os.environ['FINISHED_QUEUE']}",
    )
    groups = batches.add(batch.id, count, request_id="all")
    items = [item for group in groups for item in group.item_ids()]
    outbox.add_many(Message(topic="pages", body=b"{}", batch_item=item) for item in items)
    batches.seal(batch.id)


def handler(event: dict[str, Any], context: object) -> None:
    """Start what the state machine asks for, with its task token."""
    for record in event["Records"]:
        asked = json.loads(record["body"])
        start(asked["token"], "states", asked["count"])
