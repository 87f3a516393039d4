"""Ack, fail and retry: one read and one write a leaf, whatever the size of the batch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from fairbox.batches.cascade import Cascade
from fairbox.batches.context import acked, failed, retried, short, with_failures, without_failures
from fairbox.batches.ids import ItemId, bit_of, bits, mask, node_of, parse_item, slot_of
from fairbox.batches.models import AckResult, Change, FailedItems, Leaf, LeafKey, NodeKey
from fairbox.errors import BatchBusy, BatchEnded, InvalidInput, UnknownItems

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairbox.batches.models import Root

Verb = Literal["ack", "fail", "retry"]


@dataclass(slots=True)
class Outcome:
    """What a call has done so far; `ended` is the last batch that was found to have ended."""

    changed: int = 0
    emptied: list[LeafKey] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    ended: BatchEnded | None = None


@dataclass(slots=True)
class Divided:
    """Items by what can become of them.

    Attributes:
        leaves: those that were read and have items to settle.
        unknown: ids never issued.
        ended: ids that went with a batch that was cancelled or reaped, with its root.
    """

    leaves: dict[LeafKey, Leaf] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    ended: list[tuple[Root, list[str]]] = field(default_factory=list)


class Settling(Cascade):
    """Settles items, and puts failed ones back."""

    def settle(self, verb: Verb, items: Iterable[str], reason: str = "") -> AckResult:
        """Ack, fail or retry these items, any mixture of batches and groups.

        Raises:
            UnknownItems: some were never issued; nothing has changed.
            BatchEnded: some are of a batch that was cancelled or reaped; before any write where
                the leaf is gone already.
            BatchBusy: others kept changing some leaves; it names what is left.
        """
        wanted = parse_items(items)
        leaves = self.issued(wanted)
        outcome = Outcome()
        for key, leaf in leaves.items():
            self.settle_leaf(verb, leaf, wanted[key], outcome, reason)
        completed = self.cascade(outcome.emptied) if outcome.emptied else []
        if outcome.ended is not None:
            raise outcome.ended
        if outcome.left:
            raise BatchBusy(outcome.left)
        return AckResult(outcome.changed, tuple(completed))

    def settle_leaf(
        self, verb: Verb, leaf: Leaf, hit: int, outcome: Outcome, reason: str = ""
    ) -> None:
        """Settle these items of one leaf, and add to the outcome."""
        for _ in self.tries():
            written = {"ack": self.ack_leaf, "retry": self.retry_leaf}.get(verb)
            try:
                new, refused = written(leaf, hit) if written else self.fail_leaf(leaf, hit, reason)
            except BatchEnded as ended:
                outcome.ended = BatchEnded(ended.batch, ended.state, item_texts(leaf.key, hit))
                return
            if new is not None:
                outcome.changed += (new.pending ^ leaf.pending).bit_count()
                if new.count == 0:
                    outcome.emptied.append(new.key)
                return
            again = refused or self.store.leaves([leaf.key]).get(leaf.key)
            if again is None:
                self._gone(leaf.key, hit, outcome)
                return
            leaf = again
        outcome.left += item_texts(leaf.key, hit)

    def _gone(self, key: LeafKey, hit: int, outcome: Outcome) -> None:
        root = self.store.root(key.batch)
        state = "erased" if root is None else root.state
        if state != "complete":
            outcome.ended = BatchEnded(key.batch, state, item_texts(key, hit))

    def ack_leaf(self, leaf: Leaf, hit: int) -> tuple[Leaf | None, Leaf | None]:
        """Ack what is pending of these; return the leaf as it is now, or what refused."""
        hit &= leaf.pending
        if not hit:
            return leaf, None
        new = acked(leaf, hit, self.hour)
        refused = self.store.write([Change(new, leaf)])
        if refused is None:
            return new, None
        return None, refused[0] if isinstance(refused[0], Leaf) else None

    def fail_leaf(self, leaf: Leaf, hit: int, reason: str) -> tuple[Leaf | None, None]:
        """Fail what is pending of these, the leaf and its failed items in one transaction."""
        made = self.failing(leaf, hit, reason)
        if made is None:
            return leaf, None
        new, changes = made
        return (new if self.store.write(changes) is None else None), None

    def failing(self, leaf: Leaf, hit: int, reason: str) -> tuple[Leaf, list[Change]] | None:
        """Return the leaf with these failed, and the changes; None when none of it is pending."""
        hit &= leaf.pending
        if not hit:
            return None
        there = self.store.failed([leaf.key]).get(leaf.key)
        reasons = tuple((index, short(reason)) for index in bits(hit)) if reason else ()
        items = FailedItems(leaf.batch, leaf.group, hit, leaf.size, reasons)
        new = failed(leaf, hit, self.hour)
        return new, [Change(new, leaf), Change(with_failures(there, items), there)]

    def retry_leaf(self, leaf: Leaf, hit: int) -> tuple[Leaf | None, None]:
        """Make failed items pending again; an emptied leaf is filled with its ancestors."""
        made = self.retrying(leaf, hit)
        if made is None:
            return leaf, None
        new, changes = made
        return (new if self.store.write(changes) is None else None), None

    def retrying(self, leaf: Leaf, hit: int) -> tuple[Leaf, list[Change]] | None:
        """Return the leaf with these pending again, and the changes; None when none has failed.

        Raises:
            BatchEnded: the leaf is empty, and the batch has ended.
        """
        there = self.store.failed([leaf.key]).get(leaf.key)
        hit &= there.bits if there is not None else 0
        if there is None or not hit:
            return None
        new = retried(leaf, hit, self.hour)
        changes = [Change(new, leaf), Change(without_failures(there, hit), there)]
        if leaf.count == 0:
            changes += self.refilled(leaf)
        return new, changes

    def refilled(self, leaf: Leaf) -> list[Change]:
        """Return the changes of an emptied leaf's ancestors, up to the first that is not empty.

        Each is written even when its bit is still set: that lets a clear in flight fail.

        Raises:
            BatchEnded: the batch has ended.
        """
        number = node_of(leaf.group)
        if number is None:
            return [self._refilled_root(leaf.batch, bit_of(leaf.group), leaf.failed, leaf.size)]
        key = NodeKey(leaf.batch, number)
        node = self.store.nodes([key]).get(key)
        if node is None:
            raise BatchEnded(leaf.batch, "erased")
        bit = 1 << bit_of(leaf.group)
        clear = not node.bits & bit
        new = replace(
            node,
            bits=node.bits | bit,
            failed=node.failed - leaf.failed * clear,
            settled=node.settled - leaf.size * clear,
            version=node.version + 1,
            hour=self.hour,
        )
        changes = [Change(new, node)]
        if not node.bits:
            slot = slot_of(number)
            changes.append(self._refilled_root(leaf.batch, slot, node.failed, node.settled))
        return changes

    def _refilled_root(self, batch: str, slot: int, gone: int, settled: int) -> Change:
        root = self.store.root(batch)
        if root is None or root.ended:
            raise BatchEnded(batch, "erased" if root is None else root.state)
        clear = not root.bits >> slot & 1
        new = replace(
            root,
            bits=root.bits | 1 << slot,
            failed=root.failed - gone * clear,
            settled=root.settled - settled * clear,
            version=root.version + 1,
        )
        return Change(new, root)

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
        """Read the leaves of these items, and say which of the items cannot be settled."""
        leaves = self.store.leaves(wanted)
        writers = dict.fromkeys(
            (leaf.batch, leaf.request) for leaf in leaves.values() if leaf.request
        )
        names = [(batch, request) for batch, request in writers if request is not None]
        requests = self.store.requests(names) if names else {}
        # no request any more: between the two reads it was erased, and the leaf is as good as gone
        leaves = {
            key: leaf
            for key, leaf in leaves.items()
            if leaf.request is None or (leaf.batch, leaf.request) in requests
        }
        missing = dict.fromkeys(key.batch for key in wanted if key not in leaves)
        roots = {r.batch: r for r in self.store.roots(missing)} if missing else {}
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
            elif leaf.request is not None and not _done(requests, leaf):
                found.unknown += item_texts(key, hit)
            else:
                found.leaves[key] = leaf
                found.unknown += item_texts(key, hit >> leaf.size << leaf.size)
        found.ended = [(roots[batch], items) for batch, items in ended.items()]
        return found

    def known(self, items: Iterable[str]) -> tuple[list[str], list[str]]:
        """Divide items into those that can be settled, and those never issued or gone."""
        given = list(items)
        wanted, malformed = split_items(given)
        found = self.divide(wanted)
        bad = {*malformed, *found.unknown, *(i for _, gone in found.ended for i in gone)}
        return [i for i in given if i not in bad], [i for i in given if i in bad]


def split_items(items: Iterable[str]) -> tuple[dict[LeafKey, int], list[str]]:
    """Return the indexes, as a bitfield, by leaf; and what is not `batch:group:index`."""
    indexes: dict[LeafKey, set[int]] = {}
    malformed: list[str] = []
    for text in items:
        item = parse_item(text)
        if item is None:
            malformed.append(text)
        else:
            indexes.setdefault(LeafKey(item.batch, item.group), set()).add(item.index)
    return {key: mask(found) for key, found in indexes.items()}, malformed


def parse_items(items: Iterable[str]) -> dict[LeafKey, int]:
    """Return the indexes, as a bitfield, by leaf.

    Raises:
        UnknownItems: some are not `batch:group:index`.
        InvalidInput: it is one text, not many.
    """
    if isinstance(items, str):
        raise InvalidInput("items", "a list of item ids, not one text")
    wanted, malformed = split_items(items)
    if malformed:
        raise UnknownItems([i if isinstance(i, str) else repr(i) for i in malformed])
    return wanted


def _done(requests: Mapping[tuple[str, str], object], leaf: Leaf) -> bool:
    request = requests.get((leaf.batch, leaf.request or ""))
    return bool(getattr(request, "done", False))


def item_texts(key: LeafKey, hit: int) -> list[str]:
    """Return the ids of these indexes of a group."""
    return [str(ItemId(key.batch, key.group, index)) for index in bits(hit)]
