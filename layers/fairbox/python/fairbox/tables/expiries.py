"""Expiries: messages that are older than their topic's retention, marked and deleted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from fairbox.model.ids import bound_of
from fairbox.tables.keys import due_sk, message_key
from fairbox.tables.message_claims import as_read_places
from fairbox.tables.message_edits import gone_action
from fairbox.tables.partiql import Statement, execute, statement
from fairbox.tables.stored_messages import GONE, REASON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.messages import OpenLane, Shard
    from fairbox.tables.key_claims import KeyClaims
    from fairbox.tables.lanes import ShardPage
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables

logger = logging.getLogger("fairbox")

EXPIRED: Final = "older than message_retention"
_EXPIRED: Final = {"S": "expired"}


class Expiries:
    """Marks messages as expired, and deletes the marked.

    A mark holds where the message is as it was read: nobody has claimed, edited or redriven it.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def page(
        self, lane: OpenLane, shard: Shard, *, until: int, limit: int, after: str | None
    ) -> ShardPage:
        """Return a page of messages sent, or due, up to a time (ms); eventually consistent."""
        upper = due_sk(until + 1) if lane == "later" else bound_of(until + 1)
        # at half the price: of a message that has changed since, `mark` is refused
        return self._tables.lanes.page(
            lane, *shard, limit=limit, after=after, upto=upper, consistent=False
        )

    def mark(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Mark messages without a batch item (1 WRU a KB, 25 a call); return the marked.

        One that could not be written is left out, and logged.
        """
        answers = execute(self._tables.calls, [self._mark(m) for m in messages])

        marked = []
        for stored, answer in zip(messages, answers, strict=True):
            if answer.error is not None:
                extra = {"ref": str(stored.ref), "error": str(answer.error)}
                logger.warning("a message could not expire yet", extra=extra)
            # ours, when the answer to an earlier try was lost
            elif answer.done or answer.old.get(GONE) == _EXPIRED:
                marked.append(stored)

        return marked

    def mark_in_row(self, messages: Sequence[StoredMessage], shard: Shard, row: KeyClaims) -> bool:
        """Mark messages of an ordered shard and write its row, in one transaction.

        It costs 2 WRU a KB for each message and for the row. None has a batch item.

        Returns:
            Whether all was as read, under the row's version; if not, nothing is written.
        """
        hold = {"Update": self._tables.key_claims.action(shard, row, row.version)}
        return self._tables.calls.transacted([*map(self.action, messages), hold])

    def delete(self, messages: Sequence[StoredMessage]) -> int:
        """Delete messages that are marked as expired (1 WRU a KB); return how many were.

        A message that could not be deleted stays marked, for its next reader.
        """
        deletions = [
            statement(
                "DELETE FROM",
                self._tables.outbox,
                message_key(m.ref, m.lane),
                # a delete of a message without the mark would count as a delivery
                wheres=[f'"{GONE}" = ?'],
                parameters=[_EXPIRED],
            )
            for m in messages
        ]

        return sum(answer.done for answer in execute(self._tables.calls, deletions))

    def _mark(self, stored: StoredMessage) -> Statement:
        wheres, parameters = as_read_places(stored)
        return statement(
            "UPDATE",
            self._tables.outbox,
            message_key(stored.ref, stored.lane),
            clauses=f'SET "{GONE}" = ? SET "{REASON}" = ?',
            values=[_EXPIRED, {"S": EXPIRED}],
            wheres=wheres,
            parameters=parameters,
        )

    def action(self, stored: StoredMessage) -> dict[str, Any]:
        """Return the update that marks a message where it is as it was read."""
        return {"Update": gone_action(self._tables.outbox, stored, "expired", EXPIRED)}
