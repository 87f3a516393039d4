"""The end of batches: seal, cancel, erase."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from fairbox.batches.batch_parts import DAY_HOURS, Context, known_root
from fairbox.batches.figures import ProgressReader
from fairbox.batches.results import Batch, Progress
from fairbox.errors import BatchBusy, BatchEnded
from fairbox.tables.batch_values import FENCED, Announcement, Called, Change, LeafKey, Root, node_of

if TYPE_CHECKING:
    from fairbox.batches.cascade import Cascade

ERASE_STEP: Final = 25
ERASE_GROUPS: Final = 1000
"""Groups erased between two notes of the place, and two readings of the clock: 80 calls."""
TOMBSTONE_SECONDS: Final = 30 * 24 * 3600


class Lifecycle:
    """Ends batches."""

    def __init__(self, context: Context, cascade: Cascade) -> None:
        self._context = context
        self._store = context.store
        self._cascade = cascade
        self._progress = ProgressReader(context)

    def seal(self, batch: str) -> Root:
        """Seal, or complete at once where nothing is pending; see `Batches.seal`."""
        message = self._context.ids.next()
        for _ in self._context.tries():
            root = known_root(self._store, batch)
            if root.state in ("sealed", "complete"):
                # an earlier call may have been killed before it notified the parent
                self._cascade.after_end(root, message)
                return root
            if root.ended:
                raise BatchEnded(batch, root.state)

            next_check = self._context.hour + DAY_HOURS
            new = replace(root, state="sealed", next_check=next_check, version=root.version + 1)
            written = self._cascade.write_root(root, new, message)
            if written is not None:
                self._cascade.after_end(written, message)
                return written
        raise BatchBusy([batch])

    def cancel(self, batch: str) -> Batch:
        """Cancel a batch that has not completed; see `Batches.cancel`."""
        for _ in self._context.tries():
            root = known_root(self._store, batch)
            if root.state == "cancelled":
                # an earlier call may have been cut off behind its write
                self._cascade.after_end(root, "")
                self.fence(batch)
                return Batch.of(root)
            if root.ended:
                raise BatchEnded(batch, root.state)
            if self.end(root, "cancelled"):
                return Batch.of(replace(root, state="cancelled"))
        raise BatchBusy([batch])

    def end(
        self,
        root: Root,
        state: Literal["cancelled", "reaped"],
        announcement: Announcement | None = None,
    ) -> bool:
        """End a batch as it was read, and notify its parent; return whether it still stood so.

        Its groups are gone afterwards: an ack reads nothing but its group, so that refuses it.
        """
        new = replace(root, state=state, next_check=self._context.hour, version=root.version + 1)
        topic = root.callbacks.on_cancel
        if state == "cancelled" and topic is not None:
            announcement = self.notice(new, topic, self._progress.progress_of(root), "cancel")
        actions = self._context.announcer.actions(announcement) if announcement else []
        if self._store.write([Change(new, root)], actions) is not None:
            return False

        # from here on, the batches' stream does what a crash cuts off
        self._cascade.after_end(new, "")
        self.fence(root.batch)
        return True

    def tell_death(self, batch: str) -> bool:
        """Tell the batch's `on_death` that an item has failed, once (1 RRU if it has none).

        Returns:
            False when every race was lost.
        """
        for _ in self._context.tries():
            root = self._store.root(batch)
            topic = None if root is None else root.callbacks.on_death
            # a batch that completes tells it in the same transaction
            if root is None or topic is None or root.ended or root.death_told:
                return True

            told = replace(root, death_told=True, version=root.version + 1)
            notice = self.notice(told, topic, self._progress.progress_of(root), "death")
            actions = self._context.announcer.actions(notice)
            if self._store.write([Change(told, root)], actions) is None:
                return True
        return False

    def notice(
        self, root: Root, topic: str, progress: Progress, callback: Called | None = None
    ) -> Announcement:
        """Return a message of a batch of which items are pending."""
        return Announcement(
            topic,
            self._context.ids.next(),
            replace(root, failed=progress.failed),
            self._store.metadata(root.batch),
            acked=progress.acked,
            pending=progress.pending,
            at=self._context.now,
            callback=callback,
        )

    def fence(self, batch: str, deadline: float = math.inf) -> bool:
        """Erase the groups of a cancelled or reaped batch, so that every ack is refused.

        The batches' stream finishes an erasure that a crash or the deadline (seconds since 1970)
        cut off. A reaped batch stays in its list until the next cleanup.

        Returns:
            Whether all groups are gone, or the batch is neither cancelled nor reaped.
        """
        root = self._store.root(batch)
        if root is None or root.state not in FENCED:
            return True
        while not self.erase(batch, ERASE_GROUPS, groups_only=root.state == "reaped"):
            if self._context.clock.now() >= deadline:
                return False
        return True

    def erase(self, batch: str, limit: int | None = None, *, groups_only: bool = False) -> bool:
        """Delete the items of an ended batch except its root; return whether all are gone.

        Requests go first, so that a late chunk of an add fails its check; then groups, `limit` of
        them at most, nodes and metadata. The root stays for 30 days.

        Raises:
            UnknownBatch: there is none of this id.
            BatchBusy: others kept changing the root.
        """
        for _ in self._context.tries():
            root = known_root(self._store, batch)
            if not root.ended or root.next_check is None:
                return root.ended
            if root.state == "complete" and root.next_check > self._context.hour:
                return False

            # before the erasure: the cleanup does not check an erased batch again
            if root.parent_item is not None and not root.told:
                self._cascade.notify_parent(batch)
                continue

            if root.cursor is not None:
                return self._erase_from(root, root.cursor, limit, groups_only=groups_only)

            # from here on the root alone answers: it keeps what its unfinished groups had settled
            found = self._progress.progress_of(root)
            self._move(replace(root, settled=root.total - found.pending, failed=found.failed), 0)
        raise BatchBusy([batch])

    def _move(self, root: Root, cursor: int) -> bool:
        new = replace(root, cursor=cursor, version=root.version + 1)
        return self._store.write([Change(new, root)]) is None

    def _erase_from(self, root: Root, cursor: int, limit: int | None, *, groups_only: bool) -> bool:
        if groups_only and cursor == root.next_group:
            return True

        batch, failures = root.batch, root.state != "complete" or root.failed > 0
        self._store.delete(batch, requests=[r.digest for r in self._store.requests_of(batch)])

        end = root.next_group if limit is None else min(root.next_group, cursor + limit)
        for start in range(cursor, end, ERASE_STEP):
            groups = range(start, min(start + ERASE_STEP, end))
            failed = groups if failures else self._once_failed(batch, groups)
            self._store.delete(batch, groups=groups, failed=failed)

        if end < root.next_group or groups_only:
            return self._move(root, end) and end == root.next_group

        # nobody takes an announcement without a subscription: it would stay outstanding
        if root.state == "complete":
            self._context.announcer.expire(root)

        last = node_of(root.next_group - 1) if root.next_group else None
        self._store.delete(batch, nodes=range(0 if last is None else last + 1), metadata=True)

        new = replace(
            root,
            cursor=root.next_group,
            next_check=None,
            # until then a late ack learns how the batch ended
            expires=int(self._context.clock.now()) + TOMBSTONE_SECONDS,
            version=root.version + 1,
        )
        return self._store.write([Change(new, root)]) is None

    def _once_failed(self, batch: str, groups: range) -> list[int]:
        """Return the groups in which items failed and were retried since (1 RRU a group).

        No item above the groups counts them, and a delete of an item that is absent costs more.
        """
        return sorted(key.group for key in self._store.failed([LeafKey(batch, g) for g in groups]))
