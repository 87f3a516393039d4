"""The facade of the outbox, for producers and operators."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fairbox.aws.deployed_settings import settings_with
from fairbox.aws.s3_bodies import S3Bodies
from fairbox.aws.sqs_queues import SqsDoorbells
from fairbox.client.manual_delivery import ManualDelivery
from fairbox.client.misplaced_messages import MisplacedMessages
from fairbox.client.outbox_context import OutboxContext
from fairbox.client.publishing import MessagePublication
from fairbox.client.purge import DeadLetterPurge
from fairbox.client.reading import MessageReads
from fairbox.client.redrive import DeadLetterRedrive
from fairbox.client.replay import MessageReplay
from fairbox.client.resize import Resize
from fairbox.client.topic_administration import TopicAdministration
from fairbox.sdk.clients import make_client
from fairbox.settings import (
    BATCHES_TABLE,
    BODIES_BUCKET,
    DELIVERIES_TABLE,
    DOORBELL_QUEUE_URL,
    LATER_QUEUE_URL,
    OUTBOX_TABLE,
)
from fairbox.tables.tables import Tables

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fairbox.dispatch.ports import Doorbells
    from fairbox.model.bodies import BodyStore
    from fairbox.model.clock import Clock
    from fairbox.settings import Settings

_VARIABLES: Final = (
    OUTBOX_TABLE,
    DELIVERIES_TABLE,
    BATCHES_TABLE,
    BODIES_BUCKET,
    DOORBELL_QUEUE_URL,
    LATER_QUEUE_URL,
)


class Outbox(
    MessagePublication,
    MessageReplay,
    MessageReads,
    ManualDelivery,
    DeadLetterRedrive,
    DeadLetterPurge,
    TopicAdministration,
    Resize,
    MisplacedMessages,
):
    """Publishes messages, in the caller's transactions or alone, and shows outstanding ones.

    Args:
        dynamodb: boto3's DynamoDB client, or one that has its methods.
        table: name of the outbox table.
        deliveries_table: name of the deliveries table.
        batches_table: name of the batches table, for `redrive` of messages with a batch item; None:
            their redrive is refused.
        bodies: stores bodies that do not fit an item; None: such bodies are refused.
        doorbells: enqueues visits, for `sweep`; None: `sweep` is refused.
        deadline: seconds in which each call that publishes ends, waits included; None: no try
            begins after 20 s. A client of your own needs `fairbox.client_config(deadline)`.
        clock, rng: time and jitter; the machine's by default.

    Example:
        ```python
        outbox = Outbox.from_env()
        message = Message(topic="orders", body=b'{"id": 7}', partition_key="customer-42")
        dynamodb.transact_write_items(TransactItems=[put_order, *outbox.transact_items(message)])
        ```
    """

    def __init__(
        self,
        dynamodb: Any,
        *,
        table: str,
        deliveries_table: str,
        batches_table: str | None = None,
        bodies: BodyStore | None = None,
        doorbells: Doorbells | None = None,
        deadline: float | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        tables = Tables(
            dynamodb,
            outbox=table,
            deliveries=deliveries_table,
            batches=batches_table,
            bodies=bodies,
            clock=clock,
            rng=rng,
        )
        self._open(OutboxContext(tables, doorbells, deadline))

    @classmethod
    def over(cls, tables: Tables) -> Outbox:
        """Return an outbox over tables that are open already."""
        outbox = cls(tables.calls.client, table=tables.outbox, deliveries_table=tables.deliveries)
        # anew: the constructor was not given the bodies, the batches and the clock of these tables
        outbox._open(OutboxContext(tables))
        return outbox

    @classmethod
    def from_env(
        cls,
        settings: Settings | None = None,
        *,
        client: Callable[[str], Any] | None = None,
        deadline: float | None = None,
    ) -> Outbox:
        """Return the outbox that the environment names, over boto3.

        With `FAIRBOX_STACK`, the variables that are not set come from that deployment's parameter.

        Args:
            settings: settings in place of the environment's.
            client: makes boto3 clients by service name; None: with `client_config(deadline)`.
            deadline: as of the class.

        Raises:
            NotConfigured: `FAIRBOX_OUTBOX_TABLE` or `FAIRBOX_DELIVERIES_TABLE` is missing.
            Unavailable: the parameter cannot be read.
        """
        settings = settings_with(_VARIABLES, settings, client or make_client)
        if client is None:
            client = partial(make_client, deadline=deadline)

        table = settings.required(OUTBOX_TABLE)
        deliveries = settings.required(DELIVERIES_TABLE)
        bucket = settings.optional(BODIES_BUCKET)
        doorbell, later = (settings.optional(n) for n in (DOORBELL_QUEUE_URL, LATER_QUEUE_URL))

        return cls(
            client("dynamodb"),
            table=table,
            deliveries_table=deliveries,
            batches_table=settings.optional(BATCHES_TABLE),
            bodies=S3Bodies(client("s3"), bucket) if bucket else None,
            doorbells=SqsDoorbells(client("sqs"), doorbell, later) if doorbell else None,
            deadline=deadline,
        )

    @property
    def bodies(self) -> BodyStore | None:
        """The store of offloaded bodies; None: such bodies are refused."""
        return self._context.tables.bodies
