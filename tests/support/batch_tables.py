"""Tables of batches in either engine, and batches over them as one process has them."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

from fairbox import Batches, Outbox
from fairbox.tables.batch_values import COMPLETED_TOPIC
from fairbox.tables.definitions import batches_definition, table_definitions

_numbers = itertools.count()


@dataclass
class World:
    """Tables of their own in one engine, and batches over them."""

    client: Any
    prefix: str

    def batches(self) -> Batches:
        return Batches(
            self.client,
            table=f"{self.prefix}-batches",
            outbox_table=f"{self.prefix}-outbox",
            deliveries_table=f"{self.prefix}-deliveries",
        )

    def items(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.scan(
            TableName=f"{self.prefix}-batches", ConsistentRead=True
        )["Items"]
        return found

    def completed(self) -> list[Any]:
        outbox = Outbox(
            self.client, table=f"{self.prefix}-outbox", deliveries_table=f"{self.prefix}-deliveries"
        )
        topics = {state.topic.name for state in outbox.topics()}
        if COMPLETED_TOPIC not in topics:  # the first completion creates it
            return []
        return [json.loads(m.body) for m in outbox.outstanding(COMPLETED_TOPIC)]


def made_world(client: Any) -> World:
    """Return a world with tables of its own; without streams, which make DynamoDB Local slow."""
    prefix = f"world-{next(_numbers)}"
    tables = table_definitions(outbox=f"{prefix}-outbox", deliveries=f"{prefix}-deliveries")
    for definition in [*tables, batches_definition(f"{prefix}-batches")]:
        client.create_table(**{k: v for k, v in definition.items() if k != "StreamSpecification"})
    return World(client, prefix)
