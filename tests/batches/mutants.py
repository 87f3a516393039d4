"""Versions of the shipped code, each with one rule of the protocol broken."""

from __future__ import annotations

from dataclasses import replace
from types import MethodType
from typing import TYPE_CHECKING, Any

from fairbox.batches.models import Child

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.batches.models import Leaf, NodeKey, Root
    from fairbox.client.batches import Batches


def child_before_parent(batches: Batches) -> None:
    cascade: Any = batches._context.cascade

    def read_root(self: Any, batch: str, children: Any) -> Any:
        under = self.read_children(children)
        return batches.store.root(batch), under

    def read_node(self: Any, key: NodeKey, children: Any) -> Any:
        leaves = list(batches.store.leaves(children).values())
        return batches.store.nodes([key]).get(key), leaves

    cascade.read_root = MethodType(read_root, cascade)
    cascade.read_node = MethodType(read_node, cascade)


def refill_of_clear_bits_only(batches: Batches) -> None:
    settlement: Any = batches._context.settlement
    shipped = settlement.refilled

    def refilled(leaf: Leaf) -> Any:
        return [c for c in shipped(leaf) if c.new.bits != c.old.bits]

    settlement.refilled = refilled


def unconditional(kind: type) -> Callable[[Batches], None]:
    def mutant(batches: Batches) -> None:
        store: Any = batches.store
        shipped = store.condition

        def condition(change: Any) -> dict[str, Any]:
            if change.old is not None and isinstance(change.new, kind):
                return {
                    "ConditionExpression": "attribute_exists(#pk)",
                    "ExpressionAttributeNames": {"#pk": "pk"},
                }
            result: dict[str, Any] = shipped(change)
            return result

        store.condition = condition

    return mutant


def message_apart(batches: Batches) -> None:
    store: Any = batches.store
    shipped = store.write

    def write(changes: Any, actions: Any = ()) -> Any:
        refused = shipped(changes)
        if refused is None and actions:
            shipped([], actions)
        return refused

    store.write = write


def count_before_commit(batches: Batches) -> None:
    work: Any = batches._context.additions
    store: Any = batches.store
    reserve, write = work.reserve, store.write

    def early(root: Root, wanted: Any) -> Any:
        def grown(changes: Any, actions: Any = ()) -> Any:
            first = replace(changes[0], new=replace(changes[0].new, total=root.total + 3))
            return write([first, *changes[1:]], actions)

        store.write = grown
        try:
            return reserve(root, wanted)
        finally:
            store.write = write

    work.reserve = early


def any_leaf_counts(batches: Batches) -> None:
    settlement: Any = batches._context.settlement
    shipped = settlement._store.leaves

    def issued(wanted: Any) -> Any:
        return shipped(wanted)

    settlement.issued = issued


def tell_every_time(batches: Batches) -> None:
    cascade: Any = batches._context.cascade
    store: Any = batches.store
    shipped = cascade.notify_parent

    def tell(batch: str) -> Any:
        root_of = store.root

        def untold(of: str) -> Any:
            root = root_of(of)
            return replace(root, told=False) if root is not None and of == batch else root

        store.root = untold
        try:
            return shipped(batch)
        finally:
            store.root = root_of

    cascade.notify_parent = tell


def clear_without_reading_again(batches: Batches) -> None:
    """After a lost race the parent is read again, but the children stay as first read."""
    cascade: Any = batches._context.cascade
    read_root, read_node = cascade.read_root, cascade.read_node
    first: dict[tuple[int, object], Any] = {}

    def stale_root(batch: str, children: Any) -> Any:
        root, under = read_root(batch, children)
        _, kept = first.setdefault((id(children), batch), (children, under))
        return root, kept

    def stale_node(key: NodeKey, children: Any) -> Any:
        node, leaves = read_node(key, children)
        _, kept = first.setdefault((id(children), key), (children, leaves))
        return node, kept

    cascade.read_root, cascade.read_node = stale_root, stale_node


def ends_without_a_fence(batches: Batches) -> None:
    lifecycle: Any = batches._context.lifecycle
    lifecycle.fence = lambda *_: True


def any_child(batches: Batches) -> None:
    """The nested batch of an item is written whatever another process has written since."""
    store: Any = batches.store
    shipped = store._action

    def action(change: Any) -> Any:
        made = shipped(change)
        if isinstance(getattr(change, "new", None), Child):
            del made["Put"]["ConditionExpression"], made["Put"]["ExpressionAttributeNames"]
            made["Put"].pop("ExpressionAttributeValues", None)
        return made

    store._action = action


def called_outside(batches: Batches) -> None:
    """Callbacks are told after the transaction that ends the batch."""
    cascade: Any = batches._context.cascade
    called, write_root = cascade._callback_actions, cascade.write_root

    def write(old: Root, new: Root, message: str) -> Any:
        written = write_root(old, new, message)
        if written is not None and written.state == "complete":
            batches.store.write([], called(cascade._announcement(written, message)))
        return written

    cascade._callback_actions = lambda _: []
    cascade.write_root = write
