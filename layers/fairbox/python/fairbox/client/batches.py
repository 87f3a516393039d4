"""Batches, as producers and workers use them."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

from fairbox.aws.clients import make_client
from fairbox.batches.additions import Adding
from fairbox.batches.ids import MAX_GROUP_SIZE
from fairbox.batches.lifecycle import Ending
from fairbox.batches.models import COMPLETED_TOPIC, ORPHANED_TOPIC
from fairbox.client.batch_reads import Viewing, known_id
from fairbox.client.outbox import Outbox
from fairbox.dynamodb.batches import BatchTable
from fairbox.dynamodb.tables import Tables
from fairbox.errors import BatchEnded, InvalidInput, UnknownItems, UnknownTopic
from fairbox.model.clock import SystemClock
from fairbox.model.ids import IdGenerator
from fairbox.model.messages import Message
from fairbox.model.topics import Topic
from fairbox.settings import BATCHES_TABLE, DELIVERIES_TABLE, OUTBOX_TABLE, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fairbox.batches.cascade import Emptied
    from fairbox.batches.context import Parts
    from fairbox.batches.lifecycle import Look
    from fairbox.batches.models import AckResult, Announcement, Batch, Group, Progress
    from fairbox.batches.ports import BatchStore
    from fairbox.batches.settlement import Verb
    from fairbox.model.clock import Clock

CANCEL_ERASES_GROUPS: Final = 100


class OutboxAnnouncer:
    """Makes completion messages part of a transaction, over an outbox.

    Args:
        outbox: where the topics lie; they are made when the first message needs them.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def actions(self, announcement: Announcement) -> list[dict[str, Any]]:
        """Return the actions that publish the message."""
        message = Message(
            topic=announcement.topic,
            body=json.dumps(_body(announcement), ensure_ascii=False).encode(),
            partition_key=announcement.root.batch,
            content_type="application/json",
            id=announcement.id,
        )
        try:
            return self._outbox.transact_items(message)
        except UnknownTopic:
            self._outbox.create_topic(Topic(announcement.topic))
            return self._outbox.transact_items(message)


def _body(announcement: Announcement) -> dict[str, object]:
    root = announcement.root
    body: dict[str, object] = {
        "id": root.batch,
        "user_key": root.user_key,
        "metadata": dict(announcement.metadata),
        "total": root.total,
        "acked": announcement.acked,
        "failed": root.failed,
        "opened_at": root.opened,
    }
    if announcement.topic == ORPHANED_TOPIC:
        return body | {"pending": announcement.pending, "reaped_at": announcement.at}
    return body | {"completed_at": announcement.at}


class Batches(Viewing):
    """Opens batches, adds items, settles them, and announces each completed batch exactly once.

    Every operation may be repeated; what is done stays done. A batch's completion is a message on
    topic `fairbox.batches.completed`.

    Args:
        dynamodb: boto3's DynamoDB client, or one that has its methods.
        table: name of the batches table.
        outbox_table, deliveries_table: where completion messages are published.
        clock, rng: time and chance; the machine's by default.
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
        self.store: BatchStore = BatchTable(tables.calls, table)
        announcer = OutboxAnnouncer(Outbox.over(tables))
        ids = ids or IdGenerator(clock)
        self.parts: Parts = (self.store, announcer, clock, rng, ids)
        self._adding = Adding(*self.parts)
        self._ending = Ending(*self.parts)

    @classmethod
    def from_env(
        cls, settings: Settings | None = None, *, client: Callable[[str], Any] = make_client
    ) -> Batches:
        """Return the batches that the environment names, over boto3.

        Args:
            settings: in place of the environment.
            client: makes boto3 clients by service name.

        Raises:
            NotConfigured: `FAIRBOX_BATCHES_TABLE`, `FAIRBOX_OUTBOX_TABLE` or
                `FAIRBOX_DELIVERIES_TABLE` is missing.
        """
        settings = settings or Settings.from_env()
        table, outbox, deliveries = (
            settings.required(name) for name in (BATCHES_TABLE, OUTBOX_TABLE, DELIVERIES_TABLE)
        )
        return cls(
            client("dynamodb"),
            table=table,
            outbox_table=outbox,
            deliveries_table=deliveries,
        )

    def open(
        self,
        user_key: str = "",
        metadata: Mapping[str, object] | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the surface's name
        parent_item: str | None = None,
    ) -> Batch:
        """Open a batch (2 WRU).

        Args:
            user_key: the caller's own name for it, up to 256 bytes.
            metadata: a JSON object of at most 4 KB, carried into the completion message.
            id: a UUID of the caller's; the same one again returns the batch that is there.
            parent_item: a pending item of another batch, settled when this one ends.

        Raises:
            InvalidInput: a field is not what it takes.
            UnknownItems: the parent item is not pending.
        """
        return self._adding.open(user_key, metadata or {}, id, parent_item)

    def add(
        self, batch: str, count: int, *, request_id: str, group_size: int = MAX_GROUP_SIZE
    ) -> list[Group]:
        """Add items in groups of `group_size`, the last one smaller: all of them or none.

        Args:
            batch: its id.
            count: items, from 1.
            request_id: names this add; again it returns the same groups and adds nothing.
            group_size: items of a group, 1 to 7,168.

        Raises:
            InvalidInput: a field is not what it takes.
            UnknownBatch, BatchSealed, BatchEnded: the batch takes no items.
            RequestConflict: the request id was used with another count or group size.
            BatchBusy: others kept changing the batch; call again.
        """
        return self._adding.add(batch, count, request_id, group_size)

    def seal(self, batch: str) -> Progress:
        """Say that no more items will come; completes the batch when nothing is pending.

        Again: the same answer. Exact up to 1,000 unfinished groups, else an estimate.

        Raises:
            UnknownBatch: there is none of this id.
            BatchEnded: it was cancelled or reaped.
        """
        root, _ = self._ending.seal(known_id(batch))
        return self._ending.sealed_progress(root)

    def ack(self, item_ids: Iterable[str]) -> AckResult:
        """Ack items, of any batches and groups (1 RRU and 1 WRU a group touched).

        The first outcome of an item stands: an ack of a failed item changes nothing.

        Raises:
            UnknownItems: some ids were never issued; it names every id that cannot be settled,
                and nothing has changed.
            BatchEnded: some are of batches that were cancelled or reaped; it names them all.
            BatchBusy: others kept changing some groups; `.left` is still to be acked.
        """
        return self._settle("ack", item_ids)

    def fail(self, item_ids: Iterable[str], reason: str = "") -> AckResult:
        """Fail items; a batch completes with failures as it does without.

        Args:
            item_ids: as for `ack`.
            reason: of which 120 bytes are kept, for the eight newest failures of a group.

        Raises:
            As `ack` does.
        """
        if not isinstance(reason, str):
            raise InvalidInput("reason", "text")
        return self._settle("fail", item_ids, reason)

    def retry(self, item_ids: Iterable[str]) -> AckResult:
        """Make failed items pending again, under the same ids; others stay as they are.

        Raises:
            As `ack` does; BatchEnded also when the batch is complete.
        """
        return self._settle("retry", item_ids)

    def _settle(self, verb: Verb, item_ids: Iterable[str], reason: str = "") -> AckResult:
        items = item_ids if isinstance(item_ids, str) else list(item_ids)
        try:
            return self._ending.settle(verb, items, reason)
        except UnknownItems as error:
            raise UnknownItems(self._bad(items) or error.items) from None
        except BatchEnded as error:
            bad = self._bad(items) or error.items
            raise BatchEnded(error.batch, error.state, bad) from None

    def _bad(self, items: Iterable[str]) -> list[str]:
        """Return every id that cannot be settled: the first look stops at those of one kind."""
        given = list(items)
        return self.known(given)[1] if all(isinstance(item, str) for item in given) else []

    def known(self, item_ids: Iterable[str]) -> tuple[list[str], list[str]]:
        """Divide ids into those that can be settled, and those never issued or gone."""
        return self._ending.known(item_ids)

    def cancel(self, batch: str) -> Batch:
        """Cancel a batch: it will not complete, and its first 100 groups are erased at once.

        An ack of an item whose group is not erased yet may be answered, and then goes with the
        batch; later ones raise `BatchEnded`.

        Raises:
            UnknownBatch: there is none of this id.
            BatchEnded: it is complete, or was reaped.
        """
        cancelled = self._ending.cancel(known_id(batch))
        self._ending.erase(batch, CANCEL_ERASES_GROUPS)
        return cancelled

    # what the functions do

    def cascade(self, emptied: Iterable[Emptied]) -> list[str]:
        """Clear emptied groups and nodes upwards; return the ids of batches completed by it."""
        return self._ending.cascade(emptied)

    def tell(self, batch: str) -> list[str]:
        """Settle the parent item of a nested batch that has ended; return what completed."""
        return self._ending.tell(batch) or []

    def due(self) -> Iterator[str]:
        """Yield the batches that are to be looked at, or erased, by now."""
        return self._ending.due()

    def look(
        self,
        batch: str,
        *,
        open_hours: int = 7 * 24,
        sealed_hours: int = 14 * 24,
        dry_run: bool = False,
    ) -> Look:
        """Finish what a crash cut off in an idle batch, and reap it when it is an orphan."""
        return self._ending.look(
            batch, open_hours=open_hours, sealed_hours=sealed_hours, dry_run=dry_run
        )

    def erase(self, batch: str, *, limit: int | None = None) -> bool:
        """Delete an ended batch whose time has come, `limit` groups at most; say if all is gone.

        Raises:
            UnknownBatch: there is none of this id.
        """
        return self._ending.erase(batch, limit)


__all__ = ["COMPLETED_TOPIC", "ORPHANED_TOPIC", "Batches", "OutboxAnnouncer"]
