"""Opening batches, and adding groups to them: all of an add counts at once, or none of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.batches.batch_parts import DAY_HOURS, WEEK_HOURS, Context
from fairbox.batches.results import Batch, Group
from fairbox.errors import (
    BatchBusy,
    BatchEnded,
    BatchSealed,
    InvalidInput,
    ParentItemTaken,
    RequestConflict,
    UnknownBatch,
    UnknownItems,
)
from fairbox.model.ids import ItemId, check_batch_id, parse_item
from fairbox.model.messages import check_text
from fairbox.tables.batch_values import (
    MAX_GROUP_SIZE,
    MAX_GROUPS,
    NODE_GROUPS,
    ROOT_GROUPS,
    Callbacks,
    Change,
    Child,
    Leaf,
    LeafKey,
    Metadata,
    Node,
    NodeKey,
    Request,
    Root,
    StillWriting,
    first_group,
    node_of,
    ones,
    slot_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


SMALL_GROUPS: Final = 96  # with root, request and two nodes: one transaction
CHUNK: Final = 99
MAX_ADD_NODES: Final = 96  # root, request and nodes: one transaction
MAX_ADD_GROUPS: Final = MAX_ADD_NODES * NODE_GROUPS
MAX_METADATA_BYTES: Final = 4096
NO_CALLBACKS: Final = Callbacks()


class Additions:
    """Opens batches, and adds groups of items to them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.store

    def open(
        self,
        user_key: str,
        metadata: Mapping[str, object],
        batch_id: str | None,
        parent_item: str | None,
        *,
        callbacks: Callbacks = NO_CALLBACKS,
        retry_hours: int = 0,
    ) -> Batch:
        """Open a batch; the same id again returns the batch that is there.

        An item has one nested batch at a time, which is written with the batch itself.
        """
        batch = self._context.ids.next() if batch_id is None else check_batch_id(batch_id)
        check_text("user_key", user_key)
        _check_metadata(metadata)

        parent = None if parent_item is None else parse_item(parent_item)
        if parent is None and parent_item is not None:
            raise InvalidInput("parent_item", "batch:group:index")
        # a repeated call may come after its batch has ended and settled the item
        if parent is not None and not self._pending(parent):
            there = self._store.root(batch)
            if there is None:
                raise UnknownItems([str(parent)])
            return _opened(there, parent_item)

        # a nested batch is checked each day: the check notes its activity in the parent's leaf
        hours = WEEK_HOURS if parent_item is None else DAY_HOURS
        root = Root(
            batch,
            "open",
            self._context.now,
            user_key,
            parent_item=parent_item,
            next_check=self._context.hour + hours,
            callbacks=callbacks,
            retry_hours=retry_hours,
        )

        changes = [Change(root)]
        if metadata:
            changes.append(Change(Metadata(batch, metadata)))

        for _ in self._context.tries():
            # read again in each try: the item may have got another nested batch meanwhile
            nested = [] if parent is None else [self._nested(batch, parent)]
            if self._store.write([*changes, *nested]) is None:
                return Batch.of(root)
            there = self._store.root(batch)
            if there is not None:
                return _opened(there, parent_item)
        raise BatchBusy([batch])

    def _nested(self, batch: str, item: ItemId) -> Change:
        """Return the change that makes a batch the one of an item, unless another settles it."""
        new = Child(item.batch, item.group, item.index, batch)
        there = self._store.child(item)
        # a repeated call finds the record that it has written itself
        if there is not None and there.expires is None and there.child != batch:
            raise ParentItemTaken(str(item), there.child)
        return Change(new, there)

    def _pending(self, item: ItemId) -> bool:
        key = LeafKey(item.batch, item.group)
        leaf = self._store.leaves([key]).get(key)
        if leaf is None or not leaf.pending >> item.index & 1:
            return False
        if leaf.request is None:
            return True

        # an item of a large add counts only once the whole add is done
        name = (leaf.batch, leaf.request)
        request = self._store.requests([name]).get(name)
        return request is not None and request.done

    def add(self, batch: str, count: int, request_id: str, group_size: int) -> list[Group]:
        """Add groups of items; the same request id again returns the same groups."""
        wanted = _wanted(batch, count, request_id, group_size)
        # leaves that were written stay: a later try only commits them
        filled = False
        for _ in self._context.tries():
            root = self._store.root(batch)
            if root is None:
                raise UnknownBatch(batch)

            request = self._store.requests([(batch, wanted.digest)]).get((batch, wanted.digest))
            if request is not None and (request.count, request.size) != (count, group_size):
                raise RequestConflict(batch, request_id)
            if request is not None and request.done:
                # answered before the check of the root, which may have been sealed since
                return groups_of(request)
            _check_open(root)
            # a request that is there has taken its groups already
            if request is None and root.next_group + wanted.groups > MAX_GROUPS:
                raise InvalidInput("count", f"at most {MAX_GROUPS} groups in a batch")

            if request is None and wanted.groups <= SMALL_GROUPS:
                done = self.add_small(root, replace(wanted, first=root.next_group))
            else:
                done, filled = self._add_large(root, request, wanted, filled=filled)
            if done is not None:
                return groups_of(done)
        raise BatchBusy([f"{batch}: add {request_id}"])

    def add_small(self, root: Root, wanted: Request) -> Request | None:
        """Add in one transaction; None when the race was lost."""
        new, nodes = self._grown(root, wanted)
        done = replace(wanted, done=True)
        new = replace(new, next_group=root.next_group + wanted.groups)
        # they name no request: in one transaction with the root, they count at once
        leaves = [Change(leaf) for leaf in self._leaves(wanted, 0, wanted.groups, None)]
        changes = [Change(new, root), Change(done), *leaves, *nodes]
        return done if self._store.write(changes) is None else None

    def _add_large(
        self, root: Root, request: Request | None, wanted: Request, *, filled: bool
    ) -> tuple[Request | None, bool]:
        if request is None:
            request = self.reserve(root, wanted)
        if request is None:
            return None, False
        filled = filled or self.fill(request)
        return (self.commit(request) if filled else None), filled

    def reserve(self, root: Root, wanted: Request) -> Request | None:
        """Take ordinals for an add that is too large for one transaction."""
        # on the root's version: no two adds take the same groups
        request = replace(wanted, first=root.next_group)
        new = replace(root, next_group=root.next_group + wanted.groups, version=root.version + 1)
        return request if self._store.write([Change(new, root), Change(request)]) is None else None

    def fill(self, request: Request) -> bool:
        """Write the leaves, 99 a transaction; return whether the request still stood."""
        for start in range(0, request.groups, CHUNK):
            end = min(start + CHUNK, request.groups)
            leaves = self._leaves(request, start, end, request.digest)
            puts = [Change(leaf, plain=True) for leaf in leaves]
            # an ended batch deletes its requests first: leaves written later would stay for ever
            if self._store.write([StillWriting(request), *puts]) is not None:
                return False
        return True

    def commit(self, request: Request) -> Request | None:
        """Make the add count; None when the race was lost or the batch is not open."""
        root = self._store.root(request.batch)
        if root is None or root.state != "open":
            return None
        new, nodes = self._grown(root, request)
        done = replace(request, done=True)
        changes = [Change(new, root), Change(done, request), *nodes]
        return done if self._store.write(changes) is None else None

    def _leaves(self, request: Request, start: int, end: int, writer: str | None) -> list[Leaf]:
        leaves, hour = [], self._context.hour
        for group in range(request.first + start, request.first + end):
            size = request.size_of(group)
            pending = ones(0, size)
            leaves.append(
                Leaf(request.batch, group, pending, size, size, hour=hour, request=writer)
            )
        return leaves

    def _grown(self, root: Root, request: Request) -> tuple[Root, list[Change]]:
        """Return the root with an add's groups and items, and the nodes' changes.

        A node that was cleared from the root gets its slot's bit again, and its sums are taken off
        the root's.
        """
        first, end = request.first, request.first + request.groups
        low, high = node_of(max(first, ROOT_GROUPS)), node_of(end - 1)
        numbers = [] if low is None or high is None else range(low, high + 1)
        there = self._store.nodes([NodeKey(root.batch, n) for n in numbers]) if numbers else {}

        bits = root.bits | ones(first, min(end, ROOT_GROUPS))
        failed, settled, changes = root.failed, root.settled, []

        for number in numbers:
            base = first_group(number)
            added = ones(max(first - base, 0), min(end - base, NODE_GROUPS))
            node = there.get(NodeKey(root.batch, number))
            if node is None:
                changes.append(Change(Node(root.batch, number, added, hour=self._context.hour)))
            else:
                if not bits >> slot_of(number) & 1:
                    failed, settled = failed - node.failed, settled - node.settled
                new = replace(
                    node, bits=node.bits | added, version=node.version + 1, hour=self._context.hour
                )
                changes.append(Change(new, node))
            bits |= 1 << slot_of(number)

        grown = replace(
            root,
            bits=bits,
            total=root.total + request.count,
            failed=failed,
            settled=settled,
            version=root.version + 1,
        )
        return grown, changes


def groups_of(request: Request) -> list[Group]:
    """Return the groups of an add that is done."""
    ordinals = range(request.first, request.first + request.groups)
    return [Group(request.batch, group, request.size_of(group)) for group in ordinals]


def _wanted(batch: str, count: int, request_id: str, size: int) -> Request:
    check_batch_id(batch, field="batch")
    for name, value, most in (
        ("group_size", size, MAX_GROUP_SIZE),
        ("count", count, MAX_ADD_GROUPS * MAX_GROUP_SIZE),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise InvalidInput(name, f"a whole number from 1 to {most}")
    if -(-count // size) > MAX_ADD_GROUPS:
        raise InvalidInput("count", f"at most {MAX_ADD_GROUPS} groups in one add")
    if not isinstance(request_id, str) or not request_id:
        raise InvalidInput("request_id", "text that names this add among those of the batch")
    check_text("request_id", request_id)

    digest = hashlib.sha256(request_id.encode()).hexdigest()[:32]
    return Request(batch, digest, done=False, first=0, count=count, size=size)


def _opened(there: Root, parent_item: str | None) -> Batch:
    """Return a batch that is there; InvalidInput where it settles another item."""
    if parent_item not in (None, there.parent_item):
        item = there.parent_item or "none"
        raise InvalidInput("parent_item", f"that of batch {there.batch}, which is there: {item}")
    return Batch.of(there)


def _check_open(root: Root) -> None:
    if root.state == "sealed":
        raise BatchSealed(root.batch)
    if root.ended:
        raise BatchEnded(root.batch, root.state)


def _check_metadata(metadata: Mapping[str, object]) -> None:
    expected = f"a JSON object of at most {MAX_METADATA_BYTES} bytes"
    try:
        text = json.dumps(metadata, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput("metadata", expected) from None
    if not text.startswith("{") or size > MAX_METADATA_BYTES:
        raise InvalidInput("metadata", expected)
