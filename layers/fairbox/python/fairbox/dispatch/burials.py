"""Burials, and other removals of messages that nobody is to receive any more.

A burial moves a message into lane `dead`, in one transaction with its batch item. A message that
is marked `gone` is removed by whoever reads it first.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairbox.dispatch.delivery import DeliveryResult, VisitReport
from fairbox.errors import FairboxError, ItemTooLarge, TransactionCancelled, Unavailable
from fairbox.observability.delivery_metrics import DeliveryMetrics
from fairbox.tables import message_states
from fairbox.tables.dead_letters import reason_of
from fairbox.tables.keys import key_of
from fairbox.tables.lanes import saved_or_there
from fairbox.tables.stored_messages import Saved, StoredMessage, read_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairbox.batches.message_items import Moved
    from fairbox.tables.tables import Tables

logger = logging.getLogger("fairbox")


class Burials:
    """Moves messages from the outbox into lane `dead`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lanes = tables.lanes
        self._dead = tables.dead

    def bury(self, stored: StoredMessage, died: frozenset[str]) -> None:
        """Move a message that its own caller has just marked as dead.

        Without a batch item: a put there, then a delete here. With one: see `finish`.

        Raises:
            BatchBusy: nothing is written; the message stays marked, for `finish`.
        """
        if stored.message.batch_item is not None:
            self.finish(stored, died)
            return
        for letter in _ever_smaller(stored):
            with suppress(ItemTooLarge):
                self._dead.bury(letter, died)
                break
        else:
            raise Unavailable("update_item", "the dead letter does not fit an item")
        # last: a crash before leaves a mark, and the next reader buries it again
        self._lanes.delete_marked(stored)

    def finish(self, stored: StoredMessage, died: frozenset[str]) -> None:
        """Move a marked message in one transaction; do nothing where another call has moved it.

        So a late call cannot bury a message that a redrive has put back. 2 WRU a KB more
        than a put and a delete; a batch item costs as `MessageItems.move` does.

        Raises:
            BatchBusy: others kept changing the item's group; nothing is written.
        """
        for letter in _ever_smaller(stored):
            with suppress(ItemTooLarge):
                self._finish(letter, died)
                return
        raise Unavailable("transact_write_items", "the dead letter does not fit an item")

    def _finish(self, stored: StoredMessage, died: frozenset[str]) -> None:
        actions = [
            {"Delete": message_states.marked(self._lanes.table, stored)},
            {"Update": self._dead.bury_action(stored, died)},
        ]
        try:
            if stored.message.batch_item is not None:
                self._failed(stored, stored.message.batch_item, actions)
                return
            self._tables.calls.transact(actions)
        except TransactionCancelled as cancelled:
            # a refused condition is no error: another call has moved the message
            if cancelled.reasons[0][0] != "ConditionalCheckFailed":
                raise

    def complete(self, stored: StoredMessage) -> None:
        """Complete the removal of a marked message: bury it if it is dead, else delete it."""
        died = _died(stored)
        if stored.gone == "dead" and died:
            # in one transaction: another process may be at this move, or a redrive behind it
            self.finish(stored, died)
        else:
            self._lanes.delete_marked(stored)

    def outstanding(self, image: Mapping[str, Any]) -> StoredMessage | None:
        """Return the message that lies in the outbox, unless it is leaving; then finish its move.

        Args:
            image: its item, as a refused write found it; empty: there is none.
        """
        if not image:
            return None
        there = read_message(image)
        if there.gone is None:
            return there
        self.complete(there)
        return None

    def bury_partly(
        self,
        stored: StoredMessage,
        before: StoredMessage,
        died: frozenset[str],
        letter: StoredMessage | None = None,
    ) -> Saved:
        """Bury for these subscriptions and save the state, in one transaction with the item.

        The dead letter is `letter`, by default `stored`.

        Raises:
            BatchBusy: others kept changing the item's group; nothing is written.
        """
        letter = letter or stored
        bury = {"Update": self._dead.bury_action(letter, died)}
        item = stored.message.batch_item
        if item is None:
            return self._lanes.save_state(stored, before, bury)
        update = {"Update": message_states.update(self._lanes.table, stored, before)}
        try:
            moved = self._failed(letter, item, [update, bury])
        except ItemTooLarge:
            return "too large"
        return saved_or_there(moved.refused[0][1], stored) if moved.refused else "saved"

    def bury_raw(self, item: Mapping[str, object], reason: str) -> None:
        """Put an unreadable item into lane `dead` as it is, and delete it from the outbox."""
        # in this order: a crash in between leaves it in both places, and loses nothing
        self._dead.bury_raw(item, reason)
        self._lanes.delete([key_of(item)])

    def _failed(self, stored: StoredMessage, item: str, actions: list[dict[str, Any]]) -> Moved:
        # imported where it is used: no cold start pays for it
        from fairbox.batches.message_items import MessageItems  # noqa: PLC0415

        moved = MessageItems(self._tables).move("fail", item, actions, reason_of(stored))
        if moved.item == "unknown" and not moved.refused:
            logger.warning(
                "a message died whose batch item was never issued",
                extra={"ref": str(stored.ref), "batch_item": item},
            )
        return moved


def _ever_smaller(stored: StoredMessage) -> Iterator[StoredMessage]:
    """Yield a dying message whole, then without history, then without any attempts."""
    yield stored
    yield message_states.bare(stored)
    yield replace(stored, states={}, reason=reason_of(stored))


def _died(stored: StoredMessage) -> frozenset[str]:
    """Return the subscriptions for which a message is dead."""
    return frozenset(name for name, state in stored.states.items() if state.dead)


def finish_marked(
    tables: Tables, messages: Sequence[StoredMessage], errors: list[str] | None = None
) -> int:
    """Bury the dead among messages that carry `gone`, delete the others.

    A message that cannot be finished now, such as one whose batch item's group is busy, stays
    marked for its next reader, and stops no other.

    Args:
        tables: the tables.
        messages: all marked.
        errors: the errors are added here; None: they are only logged.

    Returns:
        The number of messages finished.
    """
    finished = 0
    for stored in messages:
        try:
            Burials(tables).complete(stored)
        except FairboxError as error:
            logger.warning(
                "a marked message could not be finished",
                extra={"ref": str(stored.ref), "error": str(error)},
            )
            if errors is not None:
                errors.append(str(error))
        else:
            finished += 1

    return finished


def bury_marked(tables: Tables, stored: StoredMessage) -> None:
    """Bury a message that the caller has just marked as dead.

    If that fails it stays marked, and so dead, for its next reader.
    """
    with suppress(FairboxError):
        Burials(tables).bury(stored, _died(stored))


def readable(
    tables: Tables,
    messages: Sequence[StoredMessage],
    unreadable: Sequence[Mapping[str, object]],
    report: VisitReport | None = None,
) -> list[StoredMessage]:
    """Bury unreadable items, finish messages marked as leaving; return the outstanding ones."""
    for item in unreadable:
        Burials(tables).bury_raw(item, "unreadable")
    errors: list[str] = []
    finished = finish_marked(tables, [m for m in messages if m.gone], errors)
    if report is not None:
        report.unreadable += len(unreadable)
        report.finished += finished
        if errors:
            report.deliveries.append(DeliveryResult(DeliveryMetrics(errors=errors)))
    return [m for m in messages if not m.gone]
