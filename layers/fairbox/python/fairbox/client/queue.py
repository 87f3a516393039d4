"""The facade of pulled topics, for their producers, consumers and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.client.outbox import Outbox
from fairbox.client.queue_context import QueueContext
from fairbox.client.queue_messages import QueueMessages
from fairbox.client.queue_operations import QueueOperations

if TYPE_CHECKING:
    import random

    from fairbox.model.bodies import BodyStore
    from fairbox.model.clock import Clock
    from fairbox.settings import Settings


class Queue(QueueMessages, QueueOperations):
    """Sends and receives messages of pulled topics; one consumer at a time holds a message.

    A message that is neither acknowledged nor given back in time is received again. After the
    `max_attempts` of its topic's retry policy it becomes a dead letter; a crash counts as an
    attempt. On topics with `ordering="key"` one message of a key is held at a time, in the order of
    ids.

    Args:
        dynamodb: boto3's DynamoDB client, or one that has its methods.
        table: name of the outbox table.
        deliveries_table: name of the deliveries table.
        batches_table: name of the batches table, where the batch items of dead letters are failed;
            None: a message with a batch item never becomes a dead letter.
        bodies: stores bodies that do not fit an item; None: such bodies are refused.
        clock, rng: time and randomness; the machine's by default.

    Example:
        ```python
        queue = Queue.from_env()
        queue.send(Message(topic="jobs", body=b"{}"))
        for received in queue.receive("jobs", wait=20):
            work(received.message)
            queue.ack(received.receipt)
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
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        outbox = Outbox(
            dynamodb,
            table=table,
            deliveries_table=deliveries_table,
            batches_table=batches_table,
            bodies=bodies,
            clock=clock,
            rng=rng,
        )
        self._open(QueueContext(outbox))

    @classmethod
    def from_env(cls, settings: Settings | None = None) -> Queue:
        """Return the queue that the environment names, over boto3; as `Outbox.from_env`.

        Raises:
            NotConfigured: `FAIRBOX_OUTBOX_TABLE` or `FAIRBOX_DELIVERIES_TABLE` is missing.
            Unavailable: the parameter cannot be read.
        """
        return cls.over(Outbox.from_env(settings))

    @classmethod
    def over(cls, outbox: Outbox) -> Queue:
        """Return a queue over the tables, bodies, clock and randomness of an outbox."""
        tables = outbox.tables
        queue = cls(tables.calls.client, table=tables.outbox, deliveries_table=tables.deliveries)
        queue._open(QueueContext(outbox))
        return queue
