"""Lists of batches, and of their missing and failed items: whole, and by the page."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from fairbox.batches.batch_parts import known_root
from fairbox.batches.results import Batch, FailedItem, Page
from fairbox.errors import InvalidInput
from fairbox.model.ids import ItemId, parse_item
from fairbox.tables.batch_values import (
    MAX_GROUP_SIZE,
    NODE_GROUPS,
    ROOT_GROUPS,
    FailedItems,
    Leaf,
    LeafKey,
    ListPlace,
    NodeKey,
    bits,
    first_group,
    node_of,
    ones,
    slot_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairbox.tables.batch_table import BatchTable
    from fairbox.tables.batch_values import Root, State

_PLACE: Final = re.compile(
    r"([0-7]):(0|[1-9][0-9]{0,8}):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.ASCII
)
_ROOTS: Final = 100
T = TypeVar("T")
Step = tuple[int, int, FailedItems | None]
MAX_PAGE_READS: Final = 500
"""Groups that one page looks at; it may be short, and then has a place to go on from."""
_PAGE: Final = 100
_FIRST_READS: Final = 4
_NODES: Final = 20


class BatchLists:
    """Lists batches: the index gives ids, the roots behind it are read."""

    def __init__(self, store: BatchTable) -> None:
        self._store = store

    def listed(self, state: State, limit: int | None = None) -> Iterator[Batch]:
        """Yield batches in a state, a hundred roots a call."""
        left = limit
        page: list[str] = []

        for batch in self._store.listed(state):
            page.append(batch)
            if len(page) == _ROOTS:
                yield from self._page(page, state, left)
                left = None if left is None else left - len(page)
                page = []
            if left is not None and len(page) >= left:
                break

        yield from self._page(page, state, left)

    def _page(self, batches: Sequence[str], state: State, limit: int | None) -> Iterator[Batch]:
        roots = sorted(self._store.roots(batches), key=lambda root: (root.opened, root.batch))
        # the index lags behind: a batch may have left the state
        found = [Batch.of(root) for root in roots if root.state == state]
        yield from found[:limit]

    def listed_page(self, state: State, after: str | None, limit: int) -> Page[Batch]:
        """Return at most `limit` batches in a state; fewer where some have just left it."""
        place = None if after is None else parse_place(after)
        # one more than asked for: it tells whether there is a next page
        places = list(islice(self._store.places(state, after=place, page=limit + 1), limit + 1))
        more = len(places) > limit
        places = places[:limit]

        roots = self._store.roots([place.batch for place in places]) if places else []
        found = [Batch.of(root) for root in roots if root.state == state]
        found.sort(key=lambda batch: (batch.opened, batch.id))
        return Page(tuple(found), str(places[-1]) if more else None)


class ItemPages:
    """Walks groups in order, reading little first and more the longer it goes on."""

    def __init__(self, store: BatchTable) -> None:
        self._store = store

    def missing(self, batch: str, after: str | None = None) -> Iterator[str]:
        """Yield the ids of pending items, by group and index; none of an ended, erased batch."""
        for group, field, _ in self._steps(batch, after, failures=False):
            for index in bits(field):
                yield str(ItemId(batch, group, index))

    def failed_items(self, batch: str, after: str | None = None) -> Iterator[FailedItem]:
        """Yield the failed items, by group and index."""
        for group, field, items in self._steps(batch, after, failures=True):
            for index in bits(field):
                yield _failed_item(ItemId(batch, group, index), items)

    def missing_page(self, batch: str, after: str | None, limit: int) -> Page[str]:
        """Return at most `limit` ids of pending items, from at most 500 groups."""
        steps = self._steps(batch, after, failures=False)
        return _page(batch, steps, limit, lambda item, _: str(item))

    def failed_page(self, batch: str, after: str | None, limit: int) -> Page[FailedItem]:
        """Return at most `limit` failed items, from at most 500 groups."""
        return _page(batch, self._steps(batch, after, failures=True), limit, _failed_item)

    def _steps(self, batch: str, after: str | None, *, failures: bool) -> Iterator[Step]:
        """Yield each read: its group, the bits behind `after` that are asked for, and reasons.

        Raises:
            UnknownBatch: there is none of this id.
            InvalidInput: `after` is no item of the batch.
        """
        start = _start(batch, after)
        root = known_root(self._store, batch)
        if root.cursor is not None:
            return
        for group, record in self._reads(root, start.group, failures=failures):
            field = 0
            if record is not None:
                field = record.pending if isinstance(record, Leaf) else record.bits
            if group == start.group:
                field = field >> start.index << start.index
            yield group, field, record if isinstance(record, FailedItems) else None

    def _reads(
        self, root: Root, start: int, *, failures: bool
    ) -> Iterator[tuple[int, Leaf | FailedItems | None]]:
        """Yield each group's record from `start` on, None if there is none; 20 nodes at a time."""
        # a finished group has no bit, but may hold failed items
        every = failures and root.failed > 0
        own = ones(0, min(root.next_group, ROOT_GROUPS)) if every else root.bits
        groups = [group for group in bits(own & ones(0, ROOT_GROUPS)) if group >= start]
        yield from self._records(root.batch, groups, failures=failures)

        last = node_of(root.next_group - 1) if root.next_group else None
        first = node_of(max(start, ROOT_GROUPS)) or 0
        numbers = [
            number
            for number in range(first, 0 if last is None else last + 1)
            if every or root.bits >> slot_of(number) & 1
        ]

        for at in range(0, len(numbers), _NODES):
            keys = [NodeKey(root.batch, number) for number in numbers[at : at + _NODES]]
            nodes = self._store.nodes(keys)
            for key in keys:
                base = first_group(key.node)
                node = nodes.get(key)
                # its first groups belong to an add that does not count yet
                if node is None:
                    continue

                given = min(root.next_group - base, NODE_GROUPS)
                own = ones(0, given) if failures and node.failed else node.bits
                groups = [base + bit for bit in bits(own) if base + bit >= start]
                yield from self._records(root.batch, groups, failures=failures)

    def _records(
        self, batch: str, groups: Sequence[int], *, failures: bool
    ) -> Iterator[tuple[int, Leaf | FailedItems | None]]:
        """Yield the leaves, or the failed items, of these groups; None where there are none."""
        size, at = _FIRST_READS, 0
        while at < len(groups):
            keys = [LeafKey(batch, group) for group in groups[at : at + size]]
            leaves = self._store.leaves(keys)
            # failed items lie in an item of their own: no read of it where the leaf counts none
            failing = [key for key in leaves if failures and leaves[key].failed]
            failed = self._store.failed(failing) if failing else {}
            for key in keys:
                yield key.group, failed.get(key) if failures else leaves.get(key)
            at, size = at + size, min(2 * size, _PAGE)


def parse_place(text: str) -> ListPlace:
    """Return the place that its text names; InvalidInput where it names none."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise InvalidInput("after", "where a page of a list ended")
    return ListPlace(int(found[1]), int(found[2]), found[3])


def _page(
    batch: str,
    steps: Iterator[Step],
    limit: int,
    entry: Callable[[ItemId, FailedItems | None], T],
) -> Page[T]:
    found: list[T] = []
    last: ItemId | None = None
    for reads, (group, field, items) in enumerate(steps):
        if reads >= MAX_PAGE_READS and last is not None:
            return Page(tuple(found), str(last))
        for index in bits(field):
            if len(found) == limit:
                return Page(tuple(found), str(last))
            last = ItemId(batch, group, index)
            found.append(entry(last, items))
        # the next page goes on behind this group, even if it gave no entry
        last = ItemId(batch, group, MAX_GROUP_SIZE - 1)
    return Page(tuple(found), None)


def _failed_item(item: ItemId, items: FailedItems | None) -> FailedItem:
    reasons = {} if items is None else dict(items.reasons)
    return FailedItem(str(item), reasons.get(item.index, ""))


def _start(batch: str, after: str | None) -> ItemId:
    """Return the first item behind `after`."""
    if after is None:
        return ItemId(batch, 0, 0)
    item = parse_item(after)
    if item is None or item.batch != batch:
        raise InvalidInput("after", "an item id of the batch")
    return ItemId(batch, item.group, item.index + 1)
