"""Batch items of messages: settled by the very transaction that moves their message.

A death fails the item and a redrive retries it. Were either done from the stream, a record that
comes twice could fail an item that was put back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fairbox.batches.batch_parts import Context
from fairbox.batches.cascade import Cascade
from fairbox.batches.item_settlement import Settlement
from fairbox.errors import BatchBusy, BatchEnded, NotConfigured, UnknownItems
from fairbox.model.ids import IdGenerator, parse_item
from fairbox.settings import BATCHES_TABLE
from fairbox.tables.batch_table import BatchTable
from fairbox.tables.batch_values import Announcement, Change, LeafKey, Root

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.tables.tables import Tables

Fate = Literal["changed", "settled", "unknown", "ended"]


@dataclass(frozen=True, slots=True)
class Moved:
    """The result of a move with an item.

    Attributes:
        item: `changed` with the move; `settled`: its first outcome stood; `unknown`: never issued;
            `ended`: its batch has. In all but the first the move goes alone.
        refused: (code, old image) of each action of the move, when one of their conditions did not
            hold and nothing was written; empty: all is written.
    """

    item: Fate
    refused: Sequence[tuple[str, Mapping[str, Any]]] = ()


class MessageItems:
    """Moves messages with their items. The batches' stream clears emptied groups upwards.

    Raises:
        NotConfigured: there is no batches table.
    """

    def __init__(self, tables: Tables) -> None:
        if tables.batches is None:
            raise NotConfigured(BATCHES_TABLE)
        calls = tables.calls
        store = BatchTable(calls, tables.batches)
        self._context = Context(store, _Silent(), calls.clock, calls.rng, IdGenerator(calls.clock))
        self._settlement = Settlement(self._context, Cascade(self._context))

    def move(
        self,
        verb: Literal["fail", "retry"],
        item: str,
        actions: Sequence[dict[str, Any]],
        reason: str = "",
    ) -> Moved:
        """Fail an item, or put a failed one back, and do these actions, in one transaction.

        2 RRU, and 2 WRU each for the group and its failed items, beside the actions' own. A retry
        fills an emptied group up to the first ancestor that was not empty, at 1 RRU and 2 WRU each.

        Args:
            verb: which of the two.
            item: `batch:group:index`.
            actions: the move, as of `TransactWriteItems`.
            reason: of which 120 bytes are kept.

        Raises:
            BatchBusy: others kept changing the group; nothing is written.
        """
        for _ in self._context.tries():
            fate, changes = self._decided(verb, item, reason)
            refusal = self._context.store.write(changes, actions)
            if refusal is None:
                return Moved(fate)
            if any(code == "ConditionalCheckFailed" for code, _ in refusal.actions):
                # the move itself no longer holds: only a race for the item is tried again
                return Moved(fate, refusal.actions)
        raise BatchBusy([item])

    def _decided(
        self, verb: Literal["fail", "retry"], item: str, reason: str
    ) -> tuple[Fate, list[Change]]:
        """Return the item's fate as it stands now, and the changes that bring it about."""
        named = parse_item(item)
        if named is None:
            return "unknown", []
        key, hit = LeafKey(named.batch, named.group), 1 << named.index
        try:
            leaf = self._settlement.issued({key: hit}).get(key)
            # a leaf that went with a complete batch is left out, and no error
            if leaf is None:
                return "ended", []
            _, changes = self._settlement.changes(verb, leaf, hit, reason)
        except UnknownItems:
            return "unknown", []
        except BatchEnded:
            return "ended", []
        return ("changed", changes) if changes else ("settled", [])


class _Silent:
    """Announces nothing: a move never completes a batch, the cascade after it does."""

    def actions(self, announcement: Announcement) -> list[dict[str, Any]]:
        raise AssertionError(announcement)

    def expire(self, root: Root) -> None:
        raise AssertionError(root)
