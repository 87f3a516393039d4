"""The outbox, as producers and operators use it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fairbox.aws.clients import make_client
from fairbox.aws.s3_bodies import S3Bodies
from fairbox.aws.sqs_doorbells import SqsDoorbells
from fairbox.client.misplaced_messages import Misplacing
from fairbox.client.purge import Purging
from fairbox.client.queue_resize import Repartitioning
from fairbox.client.reading import Reading, age_ms, check_limit
from fairbox.client.replay import Replaying
from fairbox.codec import attributes as names
from fairbox.codec.keys import message_key
from fairbox.codec.messages import read_message
from fairbox.dispatch.ports import Doorbell
from fairbox.dynamodb.message_edits import Edits
from fairbox.dynamodb.tables import Tables
from fairbox.errors import (
    MessagesClaimed,
    MessagesNotFound,
    MessagesNotWritten,
    NotConfigured,
    UnknownTopic,
    Unreadable,
)
from fairbox.model.clock import milliseconds
from fairbox.model.ids import time_of
from fairbox.model.stored_messages import StoredMessage
from fairbox.settings import (
    BATCHES_TABLE,
    BODIES_BUCKET,
    DELIVERIES_TABLE,
    DOORBELL_QUEUE_URL,
    LATER_QUEUE_URL,
    OUTBOX_TABLE,
    Settings,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable
    from datetime import timedelta

    from fairbox.dispatch.ports import Doorbells
    from fairbox.dynamodb.message_edits import Found
    from fairbox.model.bodies import BodyStore
    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef
    from fairbox.model.topics import TopicState


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep by hand found: overdue messages, their shards, doorbells rung."""

    overdue: int
    shards: int
    rung: int


class Outbox(Repartitioning, Misplacing, Replaying, Reading, Purging):
    """Publishes messages, in transactions of the caller's or alone, and shows what is outstanding.

    Args:
        dynamodb: boto3's DynamoDB client, or one that has its methods.
        table: name of the outbox table.
        deliveries_table: name of the deliveries table.
        batches_table: name of the batches table, for `redrive` of messages that carry a batch item;
            None: their redrive is refused.
        bodies: where bodies go that do not fit an item; None: such bodies are refused.
        doorbells: rings for visits, for `sweep`; None: `sweep` is refused.
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
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        tables = Tables(
            dynamodb,
            outbox=table,
            deliveries=deliveries_table,
            batches=batches_table,
            clock=clock,
            rng=rng,
        )
        self._begin(tables, bodies, doorbells)

    @classmethod
    def over(cls, tables: Tables, bodies: BodyStore | None = None) -> Outbox:
        """Return an outbox over tables that are open already."""
        outbox = cls.__new__(cls)
        outbox._begin(tables, bodies, None)  # noqa: SLF001 - another constructor
        return outbox

    @classmethod
    def from_env(
        cls, settings: Settings | None = None, *, client: Callable[[str], Any] = make_client
    ) -> Outbox:
        """Return the outbox that the environment names, over boto3.

        Args:
            settings: in place of the environment.
            client: makes boto3 clients by service name.

        Raises:
            NotConfigured: `FAIRBOX_OUTBOX_TABLE` or `FAIRBOX_DELIVERIES_TABLE` is missing.
        """
        settings = settings or Settings.from_env()
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
        )

    def mark_delivered(self, refs: Iterable[MessageRef]) -> None:
        """Take messages out of the outbox as delivered, 25 a call; what is gone stays gone.

        Raises:
            MessagesNotWritten: some were not deleted after all retries; it names them.
        """
        wanted = list(dict.fromkeys(refs))
        left = self.tables.lanes.delete([message_key(r) for r in wanted])
        if left:
            keys = [{names.PK: k[names.PK], names.SK: k[names.SK]} for k in left]
            raise MessagesNotWritten([r for r in wanted if message_key(r) in keys])

    def cancel(self, refs: Iterable[MessageRef], *, reason: str = "") -> None:
        """Take messages out of the outbox undelivered (2 WRU each; ordered pulled topics 5).

        Raises:
            MessagesNotFound: some were not outstanding; `.missing` names them. The rest is
                cancelled.
            MessagesClaimed: consumers hold some; `.claimed` names them. The rest is cancelled.
        """
        wanted = list(dict.fromkeys(refs))
        found = {ref: self._cancel(ref, reason) for ref in wanted}
        # whoever meets a marked message finishes the work, so that what is left unprocessed
        # here is cancelled all the same
        self.tables.lanes.delete([message_key(r) for r in wanted if found[r] is None])
        for stored in found.values():
            if isinstance(stored, StoredMessage):
                self.tables.lanes.delete_marked(stored)  # meanwhile it may be gone, and redriven
        missing = [r for r in wanted if found[r] == "absent"]
        claimed = [r for r in wanted if found[r] == "claimed"]
        if missing:
            raise MessagesNotFound(missing)
        if claimed:
            raise MessagesClaimed(claimed)

    def _cancel(self, ref: MessageRef, reason: str) -> Found | StoredMessage | None:
        """Mark a message; return it where it is partly dead, or why it is not to be deleted."""
        try:
            state: TopicState | None = self._topics.get(ref.topic)
        except UnknownTopic:
            state = None
        if state is None or state.pushed:
            item = self.tables.lanes.mark_gone(ref, "cancelled", reason)
            if item is None:
                return "absent"
            if names.STATES in item and read_message(item).any_dead:
                return replace(read_message(item), gone="cancelled")
            return None
        ordered = state.topic.ordering == "key"
        now = milliseconds(self._clock)
        return Edits(self.tables, self._bodies).cancel(ref, reason, now, ordered=ordered)

    def sweep(self, *, older_than: float | timedelta = 60, limit: int | None = None) -> SweepResult:
        """Ring for what is overdue, found by scanning the table: it needs no index.

        Args:
            older_than: seconds, or a timedelta, since a message was due.
            limit: at most so many messages.

        Raises:
            NotConfigured: there is no doorbell queue.
        """
        if self._doorbells is None:
            raise NotConfigured(DOORBELL_QUEUE_URL)
        check_limit(limit)
        bound = milliseconds(self._clock) - age_ms(older_than)
        overdue = 0
        shards: set[tuple[str, int, int]] = set()
        pushed = {state.topic.name for state in self.topics() if state.pushed}
        for item in self._scan(1):
            if limit is not None and overdue >= limit:
                break
            try:
                ref = read_message(item).ref
            except Unreadable:
                continue
            if ref.topic in pushed and max(time_of(ref.id), ref.due or 0) <= bound:
                overdue += 1
                shards.add((ref.topic, ref.epoch, ref.shard))
        self._doorbells.ring([Doorbell(*shard) for shard in sorted(shards)])
        return SweepResult(overdue, len(shards), len(shards))
