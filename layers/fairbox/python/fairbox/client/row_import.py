"""The import of rows that wait in another outbox's table, each in one transaction."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairbox.client.publishing import place_all
from fairbox.client.reading import check_limit
from fairbox.errors import (
    BodyTooLarge,
    InvalidInput,
    TopicConflict,
    TransactionCancelled,
    UnknownTopic,
)
from fairbox.tables.row_layouts import OtherOutbox, RowLayout, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairbox.client.outbox import Outbox
    from fairbox.tables.keys import Item


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of an import; of a dry run, the expected result.

    Attributes:
        topics: number of messages by topic.
        left: rows that still wait, by their keys as text, with the reason.
        dry_run: nothing was changed.
    """

    topics: Mapping[str, int] = field(default_factory=dict)
    left: tuple[tuple[str, str], ...] = ()
    dry_run: bool = False


class RowImport:
    """Moves rows of another outbox into this one.

    Args:
        outbox: this one.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._context = outbox._context  # noqa: SLF001 - a part over the same context

    def move(
        self,
        table: str,
        layout: RowLayout,
        *,
        topic: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        progress: Callable[[int], object] = lambda _: None,
    ) -> ImportResult:
        """Move the waiting rows of a table in the same account and Region, the oldest first.

        Each row leaves its outbox in the transaction that publishes its message (4 WRU a KB and
        those of the table's indexes): a crash loses no row and moves none twice, and the call may
        be repeated. The other outbox may run on; a message that it sends meanwhile comes twice.
        The call scans the table once (1 RRU for 4 KB); the keys of waiting rows must fit in memory.

        Args:
            table: name of the table.
            layout: the layout of its rows.
            topic: the topic's name in the rows that are moved; None: all rows.
            limit: maximum number of rows that are tried; None: all.
            dry_run: change nothing, and return the numbers of messages that would be moved.
            progress: told after each row how many were tried.

        Raises:
            UnknownTable: there is no such table.
            InvalidInput: a topic is given, and the layout has no attribute of this name.
            TopicFull: a topic has no room; those before are moved.
            NotAllowed: the credentials may not read or change the table.
            Throttled, Unavailable: call again; moved rows stay moved.
        """
        check_limit(limit)
        if topic is not None and not layout.topic:
            raise InvalidInput("topic", "none: the layout names no attribute with the topic")

        other = OtherOutbox(self._outbox.tables.calls, table, layout)
        moved: Counter[str] = Counter()
        left: list[tuple[str, str]] = []
        rows: list[tuple[int, str, Item]] = []

        for key, shown in other.waiting(topic):
            try:
                rows.append((layout.created_ns(shown), text_of(key), key))
            except InvalidInput as error:
                left.append((text_of(key), str(error)))

        # by time and name: keys, being dictionaries, do not compare
        rows.sort(key=lambda row: row[:2])
        for tried, (_, name, key) in enumerate(rows[:limit], 1):
            try:
                to = self._move(other, layout, key, dry_run=dry_run)
            except (BodyTooLarge, InvalidInput, TopicConflict, UnknownTopic) as error:
                left.append((name, str(error)))
            except TransactionCancelled as error:
                # by the first action: it was sent in the meantime
                if error.reasons[0][0] != "ConditionalCheckFailed":
                    left.append((name, str(error)))
            else:
                moved.update([to] if to is not None else [])
            progress(tried)

        return ImportResult(dict(moved), tuple(left), dry_run)

    def _move(
        self, other: OtherOutbox, layout: RowLayout, key: Item, *, dry_run: bool
    ) -> str | None:
        """Publish the message of a row that leaves; return its topic, None: the row is gone."""
        # read again: the row may have left its outbox since the scan
        row = other.get(key)
        if row is None:
            return None

        now = self._context.now
        message = layout.message(row, key, now)
        if dry_run:
            place_all([message], self._context)
        else:
            self._outbox.transact([other.leaving(key, now)], message)
        return message.topic
