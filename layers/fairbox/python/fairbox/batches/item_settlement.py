"""Ack, fail and retry: one read and one write a leaf, for a batch of any size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from fairbox.batches.results import AckResult
from fairbox.errors import BatchBusy, BatchEnded, InvalidInput, MalformedItems, UnknownItems
from fairbox.model.ids import ItemId, parse_items
from fairbox.tables.batch_values import (
    Change,
    FailedItems,
    Leaf,
    LeafKey,
    NodeKey,
    bits,
    node_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairbox.batches.batch_parts import Context
    from fairbox.batches.cascade import Cascade
    from fairbox.tables.batch_values import Node, Root

Verb = Literal["ack", "fail", "retry"]


@dataclass(slots=True)
class Outcome:
    """The outcome of a call so far; `ended` is the last batch that was found to have ended."""

    changed: int = 0
    emptied: list[LeafKey] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    ended: BatchEnded | None = None


@dataclass(slots=True)
class Divided:
    """Items by whether they can be settled.

    Attributes:
        leaves: the leaves that were read and have items to settle.
        unknown: ids never issued.
        ended: ids of items gone with a cancelled or reaped batch, with its root.
    """

    leaves: dict[LeafKey, Leaf] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    ended: list[tuple[Root, list[str]]] = field(default_factory=list)


class Settlement:
    """Settles items, and puts failed ones back."""

    def __init__(self, context: Context, cascade: Cascade) -> None:
        self._context = context
        self._store = context.store
        self._cascade = cascade

    def settle(self, verb: Verb, items: Iterable[str], reason: str = "") -> AckResult:
        """Ack, fail or retry these items, any mixture of batches and groups.

        Raises:
            FairboxError: as `Batches.ack`; BatchEnded comes before any write if a leaf is gone.
        """
        if isinstance(items, str):
            raise InvalidInput("items", "a list of item ids, not one text")

        wanted, malformed = split_items(items)
        if malformed:
            raise MalformedItems([i if isinstance(i, str) else repr(i) for i in malformed])
        # all ids are checked before the first write
        leaves = self.issued(wanted)
        outcome = Outcome()
        for key, leaf in leaves.items():
            self.settle_leaf(verb, leaf, wanted[key], outcome, reason)

        completed: list[str] = []
        if outcome.emptied and outcome.changed:
            completed = self._cascade.cascade(outcome.emptied)
        elif outcome.emptied:  # a repetition, which only finishes what a crash cut off
            completed = self._cascade.cascade(outcome.emptied, report_found=False)

        # raised at the end: what was settled in other batches stands, and is cascaded
        if outcome.ended is not None:
            outcome.ended.changed, outcome.ended.completed = outcome.changed, tuple(completed)
            raise outcome.ended
        if outcome.left:
            raise BatchBusy(outcome.left, changed=outcome.changed, completed=completed)
        return AckResult(outcome.changed, tuple(completed))

    def settle_leaf(
        self, verb: Verb, leaf: Leaf, hit: int, outcome: Outcome, reason: str = ""
    ) -> None:
        """Settle these items of one leaf, and add to the outcome."""
        key = LeafKey(leaf.batch, leaf.group)
        for _ in self._context.tries():
            try:
                new, changes = self.changes(verb, leaf, hit, reason)
            except BatchEnded as ended:
                outcome.ended = BatchEnded(ended.batch, ended.state, item_texts(key, hit))
                return

            refusal = self._store.write(changes) if changes else None
            if refusal is None:
                outcome.changed += (new.pending ^ leaf.pending).bit_count()
                if new.count == 0:
                    outcome.emptied.append(key)
                return

            # a transaction shows only items of refused actions: the leaf may be none of them
            there = refusal.records[0] if len(changes) == 1 else None
            again = there if isinstance(there, Leaf) else self._store.leaves([key]).get(key)
            if again is None:
                self._gone(key, hit, outcome)
                return
            leaf = again

        outcome.left += item_texts(key, hit)

    def _gone(self, key: LeafKey, hit: int, outcome: Outcome) -> None:
        root = self._store.root(key.batch)
        state = "erased" if root is None else root.state
        # every item of a complete batch was settled: nothing is left to do
        if state != "complete":
            outcome.ended = BatchEnded(key.batch, state, item_texts(key, hit))

    def changes(
        self, verb: Verb, leaf: Leaf, hit: int, reason: str = ""
    ) -> tuple[Leaf, list[Change]]:
        """Return the leaf with these items settled or put back, and the changes that make it so.

        There are no changes when none of these items is pending, or, for a retry, has failed. An
        emptied leaf is filled together with its ancestors.

        Raises:
            BatchEnded: the leaf is empty, and the batch has ended.
        """
        hour = self._context.hour

        if verb != "retry":
            # an item that was settled before keeps its first outcome
            hit &= leaf.pending
            if not hit:
                return leaf, []

        if verb == "ack":
            new = leaf.with_acked(hit, hour)
            return new, [Change(new, leaf)]

        key = LeafKey(leaf.batch, leaf.group)
        there = self._store.failed([key]).get(key)
        if verb == "fail":
            new = leaf.with_failed(hit, hour)
            return new, [
                Change(new, leaf),
                Change(FailedItems.of(leaf, hit, reason, there), there),
            ]

        hit &= there.bits if there is not None else 0
        if there is None or not hit:
            return leaf, []

        new = leaf.with_retried(hit, hour)
        ancestors = self.refilled(leaf) if leaf.count == 0 else []
        return new, [Change(new, leaf), Change(there.without(hit), there), *ancestors]

    def refilled(self, leaf: Leaf) -> list[Change]:
        """Return the changes of an emptied leaf's ancestors, up to the first that is not empty.

        Each is written even when its bit is still set, so that a clear in flight fails.

        Raises:
            BatchEnded: the batch has ended.
        """
        number = node_of(leaf.group)
        if number is None:
            return [self._refilled_root(leaf)]
        key = NodeKey(leaf.batch, number)
        node = self._store.nodes([key]).get(key)
        if node is None:
            raise BatchEnded(leaf.batch, "erased")
        changes = [Change(node.refilled(leaf, self._context.hour), node)]
        return changes if node.bits else [*changes, self._refilled_root(node)]

    def _refilled_root(self, child: Leaf | Node) -> Change:
        root = self._store.root(child.batch)
        if root is None or root.ended:
            raise BatchEnded(child.batch, "erased" if root is None else root.state)
        return Change(root.refilled(child), root)

    def issued(self, wanted: Mapping[LeafKey, int]) -> dict[LeafKey, Leaf]:
        """Return the leaves of these items, when every one was issued.

        Leaves that went with a complete batch are left out: nothing of them can change.

        Raises:
            UnknownItems: some were never issued.
            BatchEnded: some are of a batch that was cancelled or reaped, and erased.
        """
        found = self.divide(wanted)
        if found.unknown:
            raise UnknownItems(found.unknown)
        for root, items in found.ended:
            raise BatchEnded(root.batch, root.state, items)
        return found.leaves

    def divide(self, wanted: Mapping[LeafKey, int]) -> Divided:
        """Read the leaves of these items, and find out which of the items cannot be settled."""
        leaves = self._store.leaves(wanted)

        # a leaf of a large add counts only once its request is done
        written = {k: (k.batch, x.request) for k, x in leaves.items() if x.request is not None}
        names = list(dict.fromkeys(written.values()))
        requests = self._store.requests(names) if names else {}

        # no request any more: between the two reads it was erased, and the leaf is as good as gone
        for key, name in written.items():
            if name not in requests:
                del leaves[key]

        # only the root tells whether a missing leaf was erased or never issued
        missing = dict.fromkeys([key.batch for key in wanted if key not in leaves])
        roots = {r.batch: r for r in self._store.roots(missing)} if missing else {}

        found = Divided()
        ended: dict[str, list[str]] = {}
        for key, hit in wanted.items():
            leaf = leaves.get(key)
            if leaf is None:
                root = roots.get(key.batch)
                if root is None or not root.ended or key.group >= root.next_group:
                    found.unknown += item_texts(key, hit)
                elif root.state != "complete":
                    ended.setdefault(key.batch, []).extend(item_texts(key, hit))
            elif key in written and not requests[written[key]].done:
                found.unknown += item_texts(key, hit)
            else:
                found.leaves[key] = leaf
                if hit >> leaf.size:
                    found.unknown += item_texts(key, hit >> leaf.size << leaf.size)

        found.ended = [(roots[batch], items) for batch, items in ended.items()]
        return found

    def split_known(self, items: Iterable[str]) -> tuple[list[str], list[str]]:
        """Divide items into items that can be settled, and items never issued or gone."""
        given = list(items)
        wanted, malformed = split_items(given)
        found = self.divide(wanted)
        bad = {*malformed, *found.unknown, *(i for _, gone in found.ended for i in gone)}
        return [i for i in given if i not in bad], [i for i in given if i in bad]


def split_items(items: Iterable[str]) -> tuple[dict[LeafKey, int], list[str]]:
    """Return the indexes by leaf, as bitfields, and the texts that are not `batch:group:index`."""
    parsed, malformed = parse_items(items)
    wanted: dict[LeafKey, int] = {}
    for item in parsed:
        key = LeafKey(item.batch, item.group)
        wanted[key] = wanted.get(key, 0) | 1 << item.index
    return wanted, malformed


def item_texts(key: LeafKey, hit: int) -> list[str]:
    """Return the ids of these indexes of a group."""
    return [str(ItemId(key.batch, key.group, index)) for index in bits(hit)]
