"""Seal, cancel, reap and erase: how batches end, and what is left of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from fairbox.batches.context import DAY_HOURS, WEEK_HOURS
from fairbox.batches.ids import node_of
from fairbox.batches.item_pages import Walking
from fairbox.batches.models import ORPHANED_TOPIC, Announcement, Batch, Change, LeafKey, NodeKey
from fairbox.errors import BatchBusy, BatchEnded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairbox.batches.models import Leaf, Node, Progress, Root

ERASE_STEP: Final = 25
TOMBSTONE_SECONDS: Final = 30 * 24 * 3600
_SEEN_FIRST: Final = 100
Fate = Literal["kept", "reaped", "cancelled", "ended", "gone"]


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at an idle batch found.

    Attributes:
        fate: what became of the batch; with a dry run, what would have.
        active: hour since 1970 UTC of its last activity; of an ended one, when it may be erased.
        progress: at that time, of a batch that was reaped.
    """

    batch: str
    fate: Fate
    active: int = 0
    progress: Progress | None = None


class Ending(Walking):
    """Ends batches."""

    def seal(self, batch: str) -> tuple[Root, list[str]]:
        """Seal, or complete at once where nothing is pending; again: the same answer.

        Returns:
            The root, and the ids of the batches that this completed.

        Raises:
            UnknownBatch: there is none of this id.
            BatchEnded: it was cancelled or reaped.
        """
        message = self.ids.next()
        for _ in self.tries():
            root = self.known_root(batch)
            if root.state in ("sealed", "complete"):
                return root, self.after_end(root, message)
            if root.ended:
                raise BatchEnded(batch, root.state)
            new = replace(root, state="sealed", look=self.hour + DAY_HOURS)
            written = self.decide(root, new, message)
            if written is not None:
                return written, self.after_end(written, message)
        raise BatchBusy([batch])

    def cancel(self, batch: str) -> Batch:
        """Cancel a batch that has not completed; there will be no message.

        Raises:
            UnknownBatch: there is none of this id.
            BatchEnded: it is complete, or was reaped.
        """
        for _ in self.tries():
            root = self.known_root(batch)
            if root.state == "cancelled":
                self.after_end(root, "")
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
        """End a batch as it was read, and tell its parent; return whether it still stood so."""
        new = replace(root, state=state, look=self.hour, version=root.version + 1)
        actions = self.announcer.actions(announcement) if announcement else []
        if self.store.write([Change(new, root)], actions) is not None:
            return False
        self.after_end(new, "")
        return True

    def erase(self, batch: str, limit: int | None = None) -> bool:
        """Delete what an ended batch consists of, but its root; return whether all is gone.

        Requests go first, so that a late chunk of an add fails its check; then groups, `limit` of
        them at most, nodes and metadata. The root stays for 30 days.

        Raises:
            UnknownBatch: there is none of this id.
            BatchBusy: others kept changing the root.
        """
        for _ in self.tries():
            root = self.known_root(batch)
            if not root.ended or root.look is None:
                return root.ended
            if root.look > self.hour:
                return False
            if root.parent_item is not None and not root.told:
                self.tell(batch)
                continue
            if root.cursor is not None:
                return self._erase_from(root, root.cursor, limit)
            self._move(root, 0)
        raise BatchBusy([batch])

    def _move(self, root: Root, cursor: int) -> Root | None:
        new = replace(root, cursor=cursor, version=root.version + 1)
        return new if self.store.write([Change(new, root)]) is None else None

    def _erase_from(self, root: Root, cursor: int, limit: int | None) -> bool:
        batch, failures = root.batch, root.state != "complete" or root.failed > 0
        self.store.delete(batch, requests=[r.digest for r in self.store.requests_of(batch)])
        end = root.next_group if limit is None else min(root.next_group, cursor + limit)
        for start in range(cursor, end, ERASE_STEP):
            groups = range(start, min(start + ERASE_STEP, end))
            left = [] if failures else self._once_failed(batch, groups)
            self.store.delete(batch, groups=groups, failed=failures)
            self.store.delete(batch, groups=left)
        if end < root.next_group:
            self._move(root, end)
            return False
        last = node_of(root.next_group - 1) if root.next_group else None
        self.store.delete(batch, nodes=range(0 if last is None else last + 1), metadata=True)
        new = replace(
            root,
            cursor=root.next_group,
            look=None,
            expires=int(self.clock.now()) + TOMBSTONE_SECONDS,
            version=root.version + 1,
        )
        return self.store.write([Change(new, root)]) is None

    def _once_failed(self, batch: str, groups: range) -> list[int]:
        """Return the groups of which items failed that were retried since (1 RRU a group).

        Nothing above the groups tells of them, and to delete what is not there costs more.
        """
        return sorted(key.group for key in self.store.failed([LeafKey(batch, g) for g in groups]))

    def listed(self, state: str, limit: int | None = None) -> Iterator[Batch]:
        """Yield batches in a state, a hundred roots a call; eventually consistent."""
        left = limit
        page: list[str] = []
        for batch in self.store.listed(state):
            page.append(batch)
            if len(page) == 100:
                yield from self._page(page, state, left)
                left = None if left is None else left - len(page)
                page = []
            if left is not None and len(page) >= left:
                break
        yield from self._page(page, state, left)

    def _page(self, batches: Sequence[str], state: str, limit: int | None) -> Iterator[Batch]:
        roots = sorted(self.store.roots(batches), key=lambda root: (root.opened, root.batch))
        found = [Batch.of(root) for root in roots if root.state == state]
        yield from found[:limit]

    def due(self) -> Iterator[str]:
        """Yield the batches whose next look has come, ended ones first."""
        for state in ("cancelled", "reaped", "complete", "sealed", "open"):
            yield from self.store.listed(state, self.hour)

    def look(
        self, batch: str, *, open_hours: int, sealed_hours: int, dry_run: bool = False
    ) -> Look:
        """Look at a batch that seems idle: cascade what was left over, then keep it or reap it.

        It is reaped, on the root as read before its leaves, when nothing has happened in it for
        so many hours while it was open or sealed.
        """
        root = self.store.root(batch)
        if root is None:
            return Look(batch, "gone")
        if root.ended:
            return Look(batch, "ended", root.look or 0)
        nodes, leaves = self._unfinished(root)
        emptied: list[LeafKey | NodeKey] = [leaf.key for leaf in leaves if not leaf.count]
        emptied += [node.key for node in nodes if not node.bits]
        if emptied and not dry_run:
            self.cascade(emptied)
            root = self.store.root(batch) or root
            if root.ended:
                return Look(batch, "ended", root.look or 0)
        if self._orphaned_by_parent(root):
            done = dry_run or self.end(root, "cancelled")
            return Look(batch, "cancelled" if done else "kept")
        active = max([_since(root), *(n.hour for n in nodes), *(x.hour for x in leaves)])
        limit = sealed_hours if root.state == "sealed" else open_hours
        if not emptied and self.hour - active >= limit:
            active = max(active, self.finished_hour(root))
        if emptied or self.hour - active < limit:
            if not dry_run:
                self._keep(root, active, limit)
            return Look(batch, "kept", active)
        return self._reap(root, active, dry_run=dry_run)

    def _reap(self, root: Root, active: int, *, dry_run: bool) -> Look:
        progress = self.progress_of(root)
        if dry_run:
            return Look(root.batch, "reaped", active, progress)
        announcement = Announcement(
            ORPHANED_TOPIC,
            self.ids.next(),
            replace(root, state="reaped", failed=progress.failed),
            self.store.metadata(root.batch),
            acked=progress.acked,
            pending=progress.pending,
            at=self.milliseconds,
        )
        fate: Fate = "reaped" if self.end(root, "reaped", announcement) else "kept"
        return Look(root.batch, fate, active, progress)

    def _unfinished(self, root: Root) -> tuple[list[Node], list[Leaf]]:
        nodes = self.unfinished_nodes(root)
        groups = self.unfinished_groups(root, nodes)
        self.rng.shuffle(groups)
        leaves: list[Leaf] = []
        for start in range(0, len(groups), _SEEN_FIRST):
            keys = [LeafKey(root.batch, g) for g in groups[start : start + _SEEN_FIRST]]
            leaves += self.store.leaves(keys).values()
            if any(self.hour - leaf.hour < DAY_HOURS for leaf in leaves):
                break  # alive: no need to see the others
        return nodes, leaves

    def _orphaned_by_parent(self, root: Root) -> bool:
        item = self.parent_of(root)
        parent = None if item is None else self.store.root(item.batch)
        return parent is not None and parent.state in ("cancelled", "reaped")

    def _keep(self, root: Root, active: int, limit: int) -> None:
        item = self.parent_of(root)
        if item is not None and self.hour - active < DAY_HOURS:
            self.stamp(LeafKey(item.batch, item.group))
        hours = WEEK_HOURS if root.state == "open" and item is None else DAY_HOURS
        # no later than when it would be an orphan, should nothing happen any more
        look = max(self.hour + 1, min(max(active, self.hour) + hours, active + limit))
        if look != root.look:
            self.store.write([Change(replace(root, look=look, version=root.version + 1), root)])


def _since(root: Root) -> int:
    return root.opened // 3_600_000
