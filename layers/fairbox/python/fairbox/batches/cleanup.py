"""The hourly cleanup: it checks idle batches, reaps orphans and erases ended batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from fairbox.batches.batch_parts import (
    DAY_HOURS,
    WEEK_HOURS,
    finished_hour,
    unfinished_groups,
    unfinished_nodes,
)
from fairbox.batches.lifecycle import ERASE_GROUPS, Lifecycle
from fairbox.errors import FairboxError
from fairbox.model.ids import ItemId, parse_item
from fairbox.tables.batch_values import ORPHANED_TOPIC, Change, Emptied, Leaf, LeafKey, Node, Root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.batches.batch_parts import Context
    from fairbox.batches.cascade import Cascade
    from fairbox.batches.figures import ProgressReader
    from fairbox.batches.results import Progress

_SEEN_FIRST: Final = 100
Fate = Literal["kept", "reaped", "cancelled", "ended", "gone"]


@dataclass(slots=True)
class Cleaned:
    """The result of a run of the cleanup; with a dry run, the expected result.

    Attributes:
        looked: batches whose check was due.
        kept: batches that are alive, or were changed meanwhile.
        reaped: orphans: their ids.
        cancelled: ids of nested batches whose parent was cancelled or reaped.
        ended: batches that had ended meanwhile, or completed only now because of a crash.
        erased: ended batches of which only the root remains.
        pending: items of the orphans that were not settled.
        failed: batches left to the next run, because a call failed.
        finished: whether the run came to its end.
        dry_run: whether nothing was changed.
    """

    looked: int = 0
    kept: int = 0
    reaped: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    ended: int = 0
    erased: int = 0
    pending: int = 0
    failed: int = 0
    finished: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class OrphanCheck:
    """The result of the check of an idle batch.

    Attributes:
        fate: the fate of the batch; with a dry run, the expected one.
        active: hour since 1970 UTC of its last activity; of an ended batch, the hour from which it
            may be erased.
        progress: at that time, of a batch that was reaped.
    """

    batch: str
    fate: Fate
    active: int = 0
    progress: Progress | None = None


class Cleanup:
    """Checks every batch whose check is due."""

    def __init__(
        self, context: Context, cascade: Cascade, lifecycle: Lifecycle, progress: ProgressReader
    ) -> None:
        self._context = context
        self._store = context.store
        self._cascade = cascade
        self._lifecycle = lifecycle
        self._progress = progress

    def clean(
        self, *, deadline: float, open_hours: int, sealed_hours: int, dry_run: bool = False
    ) -> Cleaned:
        """Clean until nothing is due or the deadline (seconds since 1970).

        A batch that was checked is due later or never again, so the next run goes on behind it.

        Args:
            deadline: when to stop.
            open_hours: an open batch without activity for so many hours is an orphan.
            sealed_hours: the same for a sealed batch.
            dry_run: report, and change nothing.

        Raises:
            Throttled, Unavailable: the index could not be read.
        """
        report = Cleaned(dry_run=dry_run)
        for batch in self.due_for_check():
            if self._context.clock.now() >= deadline:
                return report
            report.looked += 1
            try:
                check = self.check_orphan(
                    batch, open_hours=open_hours, sealed_hours=sealed_hours, dry_run=dry_run
                )
                done = self._note(check, report, deadline)
            except FairboxError:
                # a batch that fails keeps no other from its check: it stays due for the next run
                report.failed += 1
                continue
            if not done:
                return report

        report.finished = True
        return report

    def _note(self, check: OrphanCheck, report: Cleaned, deadline: float) -> bool:
        """Count a check, and erase a batch that had ended; return whether there was time enough."""
        match check.fate:
            case "reaped":
                report.reaped.append(check.batch)
                report.pending += check.progress.pending if check.progress else 0
            case "cancelled":
                report.cancelled.append(check.batch)
            case "ended" if check.active > self._context.hour:  # may not be erased yet
                report.ended += 1
            case "ended" if report.dry_run:
                report.erased += 1
            case "ended":
                while not self._lifecycle.erase(check.batch, ERASE_GROUPS):
                    if self._context.clock.now() >= deadline:
                        return False
                report.erased += 1
            case _:
                report.kept += 1

        return True

    def due_for_check(self) -> Iterator[str]:
        """Yield the batches whose next check is due, ended ones first."""
        for state in ("cancelled", "reaped", "complete", "sealed", "open"):
            yield from self._store.listed(state, self._context.hour)

    def check_orphan(
        self,
        batch: str,
        *,
        open_hours: int = 7 * DAY_HOURS,
        sealed_hours: int = 14 * DAY_HOURS,
        dry_run: bool = False,
    ) -> OrphanCheck:
        """Check a batch that seems idle: finish its cascades, then keep it or reap it.

        It is reaped when nothing has happened in it for `open_hours` while it was open, or
        `sealed_hours` while it was sealed. The write is conditional on the root's version, read
        before the leaves.
        """
        root = self._store.root(batch)
        if root is None:
            return OrphanCheck(batch, "gone")
        if root.ended:
            return OrphanCheck(batch, "ended", root.next_check or 0)
        if root.waits:
            return self._waiting(root, dry_run=dry_run)
        return self._idle(root, open_hours, sealed_hours, dry_run=dry_run)

    def _waiting(self, root: Root, *, dry_run: bool) -> OrphanCheck:
        """Complete a batch that waited for retries until now."""
        due = (root.retry_until or 0) <= self._context.hour
        ended = due and (dry_run or self._cascade.complete_waiting(root))
        # from the next hour: a batch that has just ended is not erased yet
        return OrphanCheck(root.batch, "ended" if ended else "kept", self._context.hour + 1)

    def _idle(
        self, root: Root, open_hours: int, sealed_hours: int, *, dry_run: bool
    ) -> OrphanCheck:
        """Finish the cascades of a batch, then keep it, or end it."""
        batch = root.batch
        nodes, leaves = self._unfinished(root)
        emptied: list[Emptied] = [leaf.key for leaf in leaves if not leaf.count]
        emptied += [node.key for node in nodes if not node.bits]

        # bits that a crash left set may be all that keeps the batch from its end
        if emptied and not dry_run:
            self._cascade.cascade(emptied)
            root = self._store.root(batch) or root
            if root.ended:
                return OrphanCheck(batch, "ended", root.next_check or 0)

        if self._orphaned_by_parent(root):
            done = dry_run or self._lifecycle.end(root, "cancelled")
            return OrphanCheck(batch, "cancelled" if done else "kept")

        active = max(
            [root.opened // 3_600_000, *(n.hour for n in nodes), *(x.hour for x in leaves)]
        )
        limit = sealed_hours if root.state == "sealed" else open_hours
        if not emptied and self._context.hour - active >= limit:
            # a last ack leaves its hour in the finished group: read only before a reaping
            active = max(active, finished_hour(self._store, root))

        if emptied or self._context.hour - active < limit:
            if not dry_run:
                self._keep(root, active, limit)
            return OrphanCheck(batch, "kept", active)

        return self._reap(root, active, dry_run=dry_run)

    def _reap(self, root: Root, active: int, *, dry_run: bool) -> OrphanCheck:
        progress = self._progress.progress_of(root)
        if dry_run:
            return OrphanCheck(root.batch, "reaped", active, progress)
        ended = replace(root, state="reaped")
        announcement = self._lifecycle.notice(ended, ORPHANED_TOPIC, progress)
        fate: Fate = "reaped" if self._lifecycle.end(root, "reaped", announcement) else "kept"
        return OrphanCheck(root.batch, fate, active, progress)

    def _unfinished(self, root: Root) -> tuple[list[Node], list[Leaf]]:
        nodes = unfinished_nodes(self._store, root)
        groups = unfinished_groups(root, nodes)

        # at random: activity anywhere shows early, and the rest is not read
        self._context.rng.shuffle(groups)
        leaves: list[Leaf] = []
        for start in range(0, len(groups), _SEEN_FIRST):
            keys = [LeafKey(root.batch, g) for g in groups[start : start + _SEEN_FIRST]]
            leaves += self._store.leaves(keys).values()
            if any(self._context.hour - leaf.hour < DAY_HOURS for leaf in leaves):
                break  # alive: no need to see the others
        return nodes, leaves

    def _orphaned_by_parent(self, root: Root) -> bool:
        item = _parent_of(root)
        parent = None if item is None else self._store.root(item.batch)
        return parent is not None and parent.state in ("cancelled", "reaped")

    def _keep(self, root: Root, active: int, limit: int) -> None:
        item = _parent_of(root)
        # work in a nested batch is activity of its parent, which would seem idle otherwise
        if item is not None and self._context.hour - active < DAY_HOURS:
            self._stamp(LeafKey(item.batch, item.group))

        hours = WEEK_HOURS if root.state == "open" and item is None else DAY_HOURS
        # no later than when it would be an orphan, should nothing happen any more
        now = self._context.hour
        next_check = max(now + 1, min(max(active, now) + hours, active + limit))
        # if the write is refused, the root has changed: it stays due, and is checked again
        if next_check != root.next_check:
            self._store.write(
                [Change(replace(root, next_check=next_check, version=root.version + 1), root)]
            )

    def _stamp(self, key: LeafKey) -> None:
        """Note activity in a leaf, where it is not noted for this hour yet."""
        leaf = self._store.leaves([key]).get(key)
        if leaf is not None and leaf.hour < self._context.hour:
            new = replace(leaf, hour=self._context.hour, version=leaf.version + 1)
            # whoever is faster has noted the hour in the same write
            self._store.write([Change(new, leaf)])


def _parent_of(root: Root) -> ItemId | None:
    """Return the item that a nested batch settles when it ends."""
    return None if root.parent_item is None else parse_item(root.parent_item)
