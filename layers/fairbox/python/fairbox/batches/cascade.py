"""Cascades: an emptied leaf or node is cleared from its parent, and the root completes.

A caller that settles items cascades at once. It leaves the writes that fail to the batches' stream.
The stream's function is the last to do a cascade: it names the causes that must be brought again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fairbox.batches.batch_parts import CASCADE_TRIES, TRIES, WEEK_HOURS, Context
from fairbox.errors import BatchBusy, FairboxError
from fairbox.model.ids import parse_item
from fairbox.tables.batch_values import (
    COMPLETED_TOPIC,
    Announcement,
    Change,
    Emptied,
    FailedItems,
    Leaf,
    LeafKey,
    NodeKey,
    node_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from fairbox.tables.batch_values import Cause, Node, Root

CHILD_SECONDS: Final = 24 * 3600
"""For so long the record of an item's nested batch stays after its end."""
T = TypeVar("T")


@dataclass(slots=True)
class Cascaded:
    """The result of cascading a window of the stream.

    Attributes:
        completed: ids of the batches that this completed.
        left: causes that are to be brought again.
        errors: the reasons, one text for each parent that could not be written.
    """

    completed: list[str] = field(default_factory=list)
    left: set[Cause] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)


class Cascade:
    """Rule 3: read the parent, then the children, then write the parent on its version.

    Order and repetition do not matter.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.store

    def cascade(self, emptied: Iterable[Emptied], *, report_found: bool = True) -> list[str]:
        """Clear these from their parents where they are empty, and so on upwards.

        After three lost races the rest is left to the stream, which brings every emptied item.

        Returns:
            The ids of the batches that this completed, or with `report_found` also of batches found
            complete, nested ones first.
        """
        nodes, roots = by_parent(emptied)
        # nodes first: those that become empty are cleared from their root in the same write
        for key, children in nodes.items():
            if self.clear_node(key, children):
                roots[key.batch].add(key)

        completed: list[str] = []
        for batch, under_root in roots.items():
            completed += self.clear_root(batch, under_root, report_found=report_found) or []
        return completed

    def finish(self, causes: Collection[Cause], *, deadline: float) -> Cascaded:
        """Do the cascades that the stream asks for until the deadline (seconds since 1970).

        It raises no `FairboxError`. The causes are coalesced by parent: one read of it, one of its
        children in batches of a hundred, one write for any number of children.
        """
        found = Cascaded()

        def done(
            work: Callable[[], T | None], key: NodeKey | str, of: Collection[Cause]
        ) -> T | None:
            """Do the work of one parent; its causes are left when it fails or comes too late."""
            if self._context.clock.now() < deadline:
                try:
                    result = work()
                    if result is None:
                        raise BatchBusy([str(key)])
                except FairboxError as error:
                    found.errors.append(str(error))
                else:
                    return result
            found.left.update(of)
            return None

        nodes, roots = by_parent(c for c in causes if isinstance(c, LeafKey | NodeKey))
        for key, leaves in nodes.items():
            if done(partial(self.clear_node, key, leaves, TRIES), key, leaves):
                roots[key.batch].add(key)

        for batch, under in roots.items():
            completed = done(partial(self.clear_root, batch, under, TRIES), batch, under)
            found.completed += completed or []

        for batch in sorted(c for c in causes if isinstance(c, str)):
            completed = done(partial(self.notify_parent, batch, TRIES), batch, {batch})
            found.completed += completed or []

        # a node that was emptied here is no cause of the caller's: the stream brings it by itself
        found.left &= set(causes)
        return found

    def clear_node(
        self, key: NodeKey, children: Collection[LeafKey], tries: int = CASCADE_TRIES
    ) -> bool | None:
        """Clear emptied leaves from a node.

        Returns:
            Whether it is empty now; None when every race was lost.
        """
        for _ in self._context.tries(tries):
            node = self._store.nodes([key]).get(key)
            # it was erased with its batch
            if node is None:
                return False
            # only then its leaves
            leaves = self._store.leaves(sorted(children)).values()
            new = node.without(leaves, self._context.hour)
            if new is None:
                return not node.bits
            if self._store.write([Change(new, node)]) is None:
                return not new.bits
        return None

    def clear_root(
        self,
        batch: str,
        children: Collection[Emptied],
        tries: int = CASCADE_TRIES,
        *,
        report_found: bool = False,
    ) -> list[str] | None:
        """Clear emptied leaves and nodes from a root.

        Returns:
            The batches completed by that, with `report_found` also this one where another call has
            completed it; None when every race was lost.
        """
        # one id for all tries: the root bears it if a try whose answer was lost completed it
        message = self._context.ids.next()
        for _ in self._context.tries(tries):
            root = self._store.root(batch)
            if root is None:
                return []
            if root.ended:
                completed = self.after_end(root, message)
                theirs = report_found and root.state == "complete" and batch not in completed
                return [batch, *completed] if theirs else completed

            # only then its children
            new = root.without(self._children(children))
            if new is None:
                return []
            written = self.write_root(root, new, message)
            if written is not None:
                return self.after_end(written, message)

        # the call that won the last race may have completed the batch
        root = self._store.root(batch) if report_found else None
        return [batch] if root is not None and root.state == "complete" else None

    def _children(self, children: Collection[Emptied]) -> list[Leaf | Node]:
        """Read leaves and nodes, in the order of their keys: a set's is not that of a replay."""
        leaves = sorted(c for c in children if isinstance(c, LeafKey))
        nodes = sorted(c for c in children if isinstance(c, NodeKey))
        found: list[Leaf | Node] = [*self._store.leaves(leaves).values()] if leaves else []
        return [*found, *self._store.nodes(nodes).values()] if nodes else found

    def write_root(self, old: Root, new: Root, message: str) -> Root | None:
        """Write the root; when it is sealed and has no bit, complete it with its announcement.

        This is the one place where a batch completes.

        Args:
            old: the root as read.
            new: the root as it shall be.
            message: id of the announcement, should there be one.

        Returns:
            The root as written; None when the race was lost.
        """
        if new.state != "sealed" or new.bits:
            return new if self._store.write([Change(new, old)]) is None else None

        hour = self._context.hour
        # with failures it stays sealed for retries, and the cleanup completes it afterwards
        until = hour + new.retry_hours if old.retry_until is None else old.retry_until
        if new.failed and hour < until:
            new = replace(new, retry_until=until, next_check=until)
            return new if self._store.write([Change(new, old)]) is None else None

        next_check = hour + WEEK_HOURS
        new = replace(
            new, state="complete", message=message, next_check=next_check, retry_until=None
        )

        # root and announcement in one transaction: neither exists without the other
        announcement = Announcement(
            COMPLETED_TOPIC,
            message,
            new,
            self._store.metadata(new.batch),
            acked=new.total - new.failed,
            at=self._context.now,
        )
        actions = self._context.announcer.actions(announcement)
        actions += self._callback_actions(announcement)
        return new if self._store.write([Change(new, old)], actions) is None else None

    def _callback_actions(self, announcement: Announcement) -> list[dict[str, Any]]:
        """Return the actions of the batch's own callbacks, with the content of an announcement."""
        root, actions = announcement.root, list[dict[str, Any]]()
        for callback, topic in root.callbacks.due(root.failed, death_told=root.death_told):
            message = replace(
                announcement, topic=topic, id=self._context.ids.next(), callback=callback
            )
            actions += self._context.announcer.actions(message)
        return actions

    def complete_waiting(self, root: Root) -> bool:
        """Complete a batch whose time for retries has ended; return whether it still stood so."""
        message = self._context.ids.next()
        written = self.write_root(root, replace(root, version=root.version + 1), message)
        if written is not None:
            self.after_end(written, message)
        return written is not None

    def after_end(self, root: Root, message: str) -> list[str]:
        """Notify the parent of a batch that has ended; return the ids of completed batches.

        A root that bears `message` was completed by this very call, also when the answer to the
        write was lost.
        """
        completed = [root.batch] if root.message == message else []
        if root.ended and root.parent_item is not None and not root.told:
            completed += self.notify_parent(root.batch) or []
        return completed

    def notify_parent(self, batch: str, tries: int = CASCADE_TRIES) -> list[str] | None:
        """Settle the parent's item of a nested batch that has ended, once.

        Returns:
            The ids of the batches that this completed; None when every race was lost.
        """
        for _ in self._context.tries(tries):
            root = self._store.root(batch)
            item = parse_item(root.parent_item or "") if root is not None else None
            if root is None or item is None or not root.ended or root.told:
                return []

            notified = Change(replace(root, told=True, version=root.version + 1), root)
            key = LeafKey(item.batch, item.group)
            leaf = self._store.leaves([key]).get(key)
            if leaf is None or not leaf.pending >> item.index & 1:
                # its parent has ended, or somebody has settled the item: the first outcome stands
                changes = [notified]
            else:
                changes = [notified, *self._settled(leaf, item.index, root)]

            # once it is settled, the item may have another nested batch
            child = self._store.child(item)
            if child is not None and child.child == batch and child.expires is None:
                expires = int(self._context.clock.now()) + CHILD_SECONDS
                changes.append(Change(replace(child, expires=expires), child))

            if self._store.write(changes) is None:
                settled = changes[1].new if len(changes) > 1 else None
                emptied = isinstance(settled, Leaf) and settled.count == 0
                return self.cascade([key]) if emptied else []
        return None

    def _settled(self, leaf: Leaf, index: int, child: Root) -> list[Change]:
        hit, hour = 1 << index, self._context.hour
        if child.state == "complete" and not child.failed:
            return [Change(leaf.with_acked(hit, hour), leaf)]
        there = self._store.failed([leaf.key]).get(leaf.key)
        reason = f"batch {child.batch} {child.state}, {child.failed} failed"
        return [
            Change(leaf.with_failed(hit, hour), leaf),
            Change(FailedItems.of(leaf, hit, reason, there), there),
        ]


def by_parent(
    emptied: Iterable[Emptied],
) -> tuple[dict[NodeKey, set[LeafKey]], defaultdict[str, set[Emptied]]]:
    """Return emptied leaves by their node, and emptied children of a root by batch."""
    nodes: defaultdict[NodeKey, set[LeafKey]] = defaultdict(set)
    roots: defaultdict[str, set[Emptied]] = defaultdict(set)
    for child in emptied:
        node = node_of(child.group) if isinstance(child, LeafKey) else None
        if isinstance(child, NodeKey) or node is None:
            roots[child.batch].add(child)
        else:
            nodes[NodeKey(child.batch, node)].add(child)
    return nodes, roots
