"""The facade of batches, for producers and workers."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fairbox.aws.deployed_settings import settings_with
from fairbox.batches.batch_parts import Context
from fairbox.client.batch_changes import BatchChanges, OutboxAnnouncer, resolve_callbacks
from fairbox.client.batch_context import BatchContext
from fairbox.client.batch_reads import BatchReads
from fairbox.client.outbox import Outbox
from fairbox.model.clock import Clock, SystemClock
from fairbox.model.ids import IdGenerator
from fairbox.sdk.clients import make_client
from fairbox.settings import BATCHES_TABLE, DELIVERIES_TABLE, OUTBOX_TABLE, Settings
from fairbox.tables.batch_table import BatchTable
from fairbox.tables.batch_values import COMPLETED_TOPIC, ORPHANED_TOPIC
from fairbox.tables.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Callable


_VARIABLES: Final = (BATCHES_TABLE, OUTBOX_TABLE, DELIVERIES_TABLE)

__all__ = ["COMPLETED_TOPIC", "ORPHANED_TOPIC", "Batches"]


class Batches(BatchChanges, BatchReads):
    """Opens batches, adds items, settles them, and announces each completed batch exactly once.

    Every operation may be repeated. The completion of a batch is a message on topic
    `fairbox.batches.completed`.

    Args:
        dynamodb: boto3's DynamoDB client, or one that has its methods.
        table: name of the batches table.
        outbox_table, deliveries_table: names of the tables for completion messages.
        clock, rng: time and randomness; the machine's by default.
        ids: makes UUIDv7 texts.

    Example:
        ```python
        batch = batches.open(user_key="catalog-7")
        groups = batches.add(batch.id, 25_000, request_id="r1")
        batches.seal(batch.id)
        for group in groups:
            batches.ack(group.item_ids())
        ```
    """

    def __init__(
        self,
        dynamodb: Any,
        *,
        table: str,
        outbox_table: str,
        deliveries_table: str,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        ids: IdGenerator | None = None,
    ) -> None:
        clock = clock or SystemClock()
        rng = rng or random.SystemRandom()
        tables = Tables(
            dynamodb,
            outbox=outbox_table,
            deliveries=deliveries_table,
            batches=table,
            clock=clock,
            rng=rng,
        )

        store = BatchTable(tables.calls, table)
        outbox = Outbox.over(tables)
        core = Context(store, OutboxAnnouncer(outbox), clock, rng, ids or IdGenerator(clock))
        self._open(BatchContext(core, partial(resolve_callbacks, outbox)))

    @classmethod
    def from_env(
        cls, settings: Settings | None = None, *, client: Callable[[str], Any] = make_client
    ) -> Batches:
        """Return the batches that the environment names, over boto3; as `Outbox.from_env`.

        Args:
            settings: settings in place of the environment's.
            client: makes boto3 clients by service name.

        Raises:
            NotConfigured: `FAIRBOX_BATCHES_TABLE`, `FAIRBOX_OUTBOX_TABLE` or
                `FAIRBOX_DELIVERIES_TABLE` is missing.
            Unavailable: the parameter cannot be read.
        """
        settings = settings_with(_VARIABLES, settings, client)
        table, outbox, deliveries = (settings.required(name) for name in _VARIABLES)
        return cls(
            client("dynamodb"),
            table=table,
            outbox_table=outbox,
            deliveries_table=deliveries,
        )
