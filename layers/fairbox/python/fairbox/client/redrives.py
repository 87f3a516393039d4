"""The way back from lane `dead`: each dead letter in one transaction, with its batch item."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.dispatch.burials import Burials
from fairbox.errors import BatchBusy, MessagesOutstanding, TransactionCancelled
from fairbox.tables import message_states
from fairbox.tables.dead_letters import returning_item
from fairbox.tables.message_inserts import put_new
from fairbox.tables.stored_messages import with_content

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.tables.keys import Item
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables

Returned = Literal["inserted", "merged", "gone"]
_TRIES: Final = 8
_REFUSED: Final = "ConditionalCheckFailed"


class Redrives:
    """Puts dead letters back into their own lanes."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lanes = tables.lanes
        self._dead = tables.dead
        self._burials = Burials(tables)

    def put_back(self, letter: StoredMessage, edited: Item | None = None) -> Returned:
        """Put a dead letter back for the subscriptions that it died for, with a fresh state.

        4 WRU a KB, and with a batch item the cost of `MessageItems.retry_with`. It may be repeated.

        Args:
            letter: as read from lane `dead`.
            edited: attributes of its content, in place of the old ones, and `EDITS`; None: it comes
                back as it is.

        Returns:
            `inserted`; `merged`: into the message, which others still lack; `gone`: it is no
            longer a dead letter: others have put it back or removed it.

        Raises:
            BatchBusy: others kept changing the message, or its item's group; nothing is written.
            MessagesOutstanding: it is edited, and others still lack it as it is; nothing is
                written.
        """
        there: StoredMessage | None = None
        for _ in range(_TRIES):
            if there is not None and edited is not None:
                raise MessagesOutstanding([letter.ref])
            reasons = self._write(letter, there, edited)
            if reasons is None:
                return "inserted" if there is None else "merged"
            (code, image), (removal, _) = reasons[0], reasons[1]
            # its old place is taken: others lack the message, or it was added again
            if code == _REFUSED:
                there = self._burials.outstanding(image)
                if there is not None and there.redriven > letter.redriven:
                    self._dead.remove(letter)  # written by who came late: it is back already
                    return "gone"
            # the letter may be another since: died for one more, edited, redriven
            if _REFUSED in (code, removal):
                again = self._dead.find(letter.ref)
                if again is None:
                    return "gone"
                letter = again
        raise BatchBusy([str(letter.ref)])

    def _write(
        self, letter: StoredMessage, there: StoredMessage | None, edited: Item | None
    ) -> Sequence[tuple[str, Mapping[str, Any]]] | None:
        """Make the transaction; return None, or the reasons of its two actions of ours."""
        removal = {"Delete": message_states.unchanged(self._dead.table, letter)}
        actions = [self._returning(letter, there, edited), removal]
        item = letter.message.batch_item
        if item is not None:
            # imported where it is used: no cold start pays for it
            from fairbox.batches.message_items import message_items  # noqa: PLC0415

            return message_items(self._tables).retry_with(item, actions).refused or None
        try:
            self._tables.calls.transact(actions)
        except TransactionCancelled as cancelled:
            return cancelled.reasons
        return None

    def _returning(
        self, letter: StoredMessage, there: StoredMessage | None, edited: Item | None
    ) -> dict[str, Any]:
        if there is None:
            item = returning_item(letter)
            put = put_new(self._lanes.table, item if edited is None else with_content(item, edited))
            return {"Put": put | {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}}
        pending = None if there.pending is None else there.pending | (letter.pending or frozenset())
        alive = {name: state for name, state in there.states.items() if not state.dead}
        # a new life: writers that have read either one before are refused
        times = max(there.redriven, letter.redriven) + 1
        after = replace(there, pending=pending, states=alive, redriven=times)
        return {"Update": message_states.update(self._lanes.table, after, there)}
