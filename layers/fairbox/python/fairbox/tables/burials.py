"""Burials: moves of messages into lane `dead`, each in one transaction with its batch item."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairbox.errors import ItemTooLarge, TransactionCancelled, Unavailable, Unreadable
from fairbox.tables import message_states
from fairbox.tables.dead_letters import read_dead, reason_of
from fairbox.tables.keys import key_of, message_key
from fairbox.tables.lanes import saved_or_there
from fairbox.tables.message_failures import bare
from fairbox.tables.stored_messages import read_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fairbox.batches.message_items import MessageItems, Moved
    from fairbox.model.messages import MessageRef
    from fairbox.tables.dead_letters import DeadLane
    from fairbox.tables.lanes import Lanes
    from fairbox.tables.stored_messages import Saved, StoredMessage

logger = logging.getLogger("fairbox")


class Burials:
    """Moves messages from the outbox into lane `dead`.

    Args:
        lanes: of the outbox.
        dead: lane `dead`.
        message_items: gives what moves batch items; asked for when a message carries one.
    """

    def __init__(
        self, lanes: Lanes, dead: DeadLane, message_items: Callable[[], MessageItems]
    ) -> None:
        self._lanes = lanes
        self._dead = dead
        self._message_items = message_items

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
        self._lanes.delete_marked(stored)

    def finish(self, stored: StoredMessage, died: frozenset[str]) -> None:
        """Move a marked message in one transaction; do nothing where another call has moved it.

        So a late call cannot bury a message that a redrive has put back. 2 WRU a KB more
        than a put and a delete; a batch item costs as `MessageItems.fail_with` does.

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
            self._lanes.calls.call("transact_write_items", TransactItems=actions)
        except TransactionCancelled as cancelled:
            if cancelled.reasons[0][0] != "ConditionalCheckFailed":
                raise

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
        died = frozenset(name for name, state in there.states.items() if state.dead)
        if there.gone == "dead" and died:
            self.finish(there, died)
        else:
            self._lanes.delete_marked(there)
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
        self._dead.bury_raw(item, reason)
        self._lanes.delete([key_of(item)])

    def outstanding_or_dead(
        self, ref: MessageRef
    ) -> tuple[StoredMessage | None, StoredMessage | None]:
        """Return a message as it lies in its lane and as a dead letter, both at one time.

        A death and a redrive move it from one to the other, so two reads could miss it in both. A
        transaction of two reads: 4 RRU for messages of up to 4 KB.
        """
        gets = [
            {"Get": {"TableName": self._lanes.table, "Key": message_key(ref)}},
            {"Get": {"TableName": self._dead.table, "Key": message_key(ref, "dead")}},
        ]
        answer = self._lanes.calls.call("transact_get_items", TransactItems=gets)
        lying, dead = (found.get("Item") for found in answer["Responses"])
        letter = read_dead(dead).stored if dead else None
        try:
            return (read_message(lying) if lying else None), letter
        except Unreadable:
            return None, letter  # the page that it lies in buries it

    def _failed(self, stored: StoredMessage, item: str, actions: list[dict[str, Any]]) -> Moved:
        moved = self._message_items().fail_with(item, reason_of(stored), actions)
        if moved.item == "unknown" and not moved.refused:
            logger.warning(
                "a message died whose batch item was never issued",
                extra={"ref": str(stored.ref), "batch_item": item},
            )
        return moved


def _ever_smaller(stored: StoredMessage) -> Iterator[StoredMessage]:
    """Yield a dying message whole, then without history, then without any attempts."""
    yield stored
    yield bare(stored)
    yield replace(stored, states={}, reason=reason_of(stored))
