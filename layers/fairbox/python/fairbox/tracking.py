"""Batches, as producers and workers use them."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

from fairbox.batches.adding import Adding
from fairbox.batches.ending import Ending
from fairbox.batches.ids import MAX_GROUP_SIZE, check_batch_id
from fairbox.batches.models import COMPLETED_TOPIC, ENDED, ORPHANED_TOPIC, State
from fairbox.clock import SystemClock
from fairbox.dynamodb.batches import BatchTable
from fairbox.dynamodb.clients import make_client
from fairbox.dynamodb.tables import Tables
from fairbox.errors import InvalidInput, UnknownBatch, UnknownTopic
from fairbox.ids import IdGenerator
from fairbox.messages import Message
from fairbox.outbox import Outbox
from fairbox.settings import BATCHES_TABLE, DELIVERIES_TABLE, OUTBOX_TABLE, Settings
from fairbox.topics import Topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from fairbox.batches.cascade import Emptied
    from fairbox.batches.ending import Look
    from fairbox.batches.models import AckResult, Announcement, Batch, FailedItem, Group, Progress
    from fairbox.batches.ports import BatchStore
    from fairbox.batches.work import Parts
    from fairbox.clock import Clock

CANCEL_ERASES_GROUPS: Final = 100
_STATES: Final = ("open", "sealed", *sorted(ENDED))


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


class Batches:
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
    def from_env(cls, settings: Settings | None = None) -> Batches:
        """Return the batches that the environment names, over boto3.

        Raises:
            NotConfigured: `FAIRBOX_BATCHES_TABLE`, `FAIRBOX_OUTBOX_TABLE` or
                `FAIRBOX_DELIVERIES_TABLE` is missing.
        """
        settings = settings or Settings.from_env()
        table, outbox, deliveries = (
            settings.required(name) for name in (BATCHES_TABLE, OUTBOX_TABLE, DELIVERIES_TABLE)
        )
        return cls(
            make_client("dynamodb"),
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
        root, _ = self._ending.seal(_checked(batch))
        return self._ending.sealed_progress(root)

    def ack(self, item_ids: Iterable[str]) -> AckResult:
        """Ack items, of any batches and groups (1 RRU and 1 WRU a group touched).

        The first outcome of an item stands: an ack of a failed item changes nothing.

        Raises:
            UnknownItems: some ids were never issued; it names them, and nothing has changed.
            BatchEnded: some are of a batch that was cancelled or reaped.
            BatchBusy: others kept changing some groups; `.left` is still to be acked.
        """
        return self._ending.settle("ack", item_ids)

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
        return self._ending.settle("fail", item_ids, reason)

    def retry(self, item_ids: Iterable[str]) -> AckResult:
        """Make failed items pending again, under the same ids; others stay as they are.

        Raises:
            As `ack` does; BatchEnded also when the batch is complete.
        """
        return self._ending.settle("retry", item_ids)

    def known(self, item_ids: Iterable[str]) -> tuple[list[str], list[str]]:
        """Divide ids into those that can be settled, and those never issued or gone."""
        return self._ending.known(item_ids)

    def progress(self, batch: str, exact: bool = True) -> Progress:
        """Return how far a batch is: exact (1 RRU an unfinished group), or at most 121 RRU.

        Raises:
            UnknownBatch: there is none of this id.
        """
        return self._ending.progress(_checked(batch), exact=exact)

    def missing(self, batch: str) -> Iterator[str]:
        """Yield the ids of pending items, by group and index.

        Raises:
            UnknownBatch: there is none of this id.
        """
        return self._ending.missing(_checked(batch))

    def failed(self, batch: str) -> Iterator[FailedItem]:
        """Yield the failed items with their reasons, by group and index.

        Raises:
            UnknownBatch: there is none of this id.
        """
        return self._ending.failed_items(_checked(batch))

    def cancel(self, batch: str) -> Batch:
        """Cancel a batch: it will not complete, and its first 100 groups are erased at once.

        An ack of an item whose group is not erased yet may be answered, and then goes with the
        batch; later ones raise `BatchEnded`.

        Raises:
            UnknownBatch: there is none of this id.
            BatchEnded: it is complete, or was reaped.
        """
        cancelled = self._ending.cancel(_checked(batch))
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

    # last, for its name is a type's

    def list(self, state: State = "open", *, limit: int | None = None) -> Iterator[Batch]:
        """Yield batches in a state, eventually consistent; `reaped` ones are the orphans.

        Raises:
            InvalidInput: there is no such state.
        """
        if state not in _STATES:
            raise InvalidInput("state", f"one of {', '.join(_STATES)}")
        if limit is not None and (isinstance(limit, bool) or limit < 1):
            raise InvalidInput("limit", "a whole number from 1, or None")
        return self._ending.listed(state, limit)


def _checked(batch: str) -> str:
    try:
        return check_batch_id(batch, field="batch")
    except InvalidInput:
        raise UnknownBatch(str(batch)) from None


__all__ = ["COMPLETED_TOPIC", "ORPHANED_TOPIC", "Batches", "OutboxAnnouncer"]
