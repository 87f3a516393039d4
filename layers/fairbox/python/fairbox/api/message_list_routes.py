"""`GET /topics/{topic}/messages`: pages of a topic's messages by state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

from fairbox.api.cursors import PARTS, Part, pack_cursor, read_cursor, unpack_cursor, write_cursor
from fairbox.api.field_types import Out
from fairbox.api.models import DeliveryOut, ListQuery, MessageOut, Messages, Topics, TopicsQuery
from fairbox.api.responses import (
    MAX_ANSWER_BYTES,
    encoded_size,
    show_dead,
    show_delivery,
    show_message,
    show_topic,
)
from fairbox.client import message_pages
from fairbox.client.message_pages import Place
from fairbox.errors import InvalidInput
from fairbox.model.clock import Clock, milliseconds
from fairbox.model.messages import check_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairbox.client.outbox import Outbox
    from fairbox.client.reading import MessageReceives
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.ledger import Delivery
    from fairbox.tables.stored_messages import StoredMessage

P = TypeVar("P")
S = TypeVar("S", bound=Out)
Entry = tuple[tuple["Part", Place], MessageOut | DeliveryOut]
_MAX_YEAR: Final = 2999
_TOPICS: Final = "topics"


def list_messages(outbox: Outbox, topic: str, query: ListQuery, clock: Clock) -> Messages:
    """Return one page: at most `limit` entries, and no more bytes than an answer takes.

    Raises:
        InvalidInput: the cursor, or a time, is none, or does not belong to this state.
        UnknownTopic: there is no such topic.
    """
    # refused, not ignored: the caller would take all messages for those of its time
    if query.state != "delivered":
        for field in ("since", "until"):
            if getattr(query, field) is not None:
                raise InvalidInput(field, "none: it is for state=delivered")

    start = None if query.cursor is None else read_cursor(query.cursor, topic, query.state)
    wanted = _List(outbox, outbox.topic(topic), query, milliseconds(clock), outbox.receives())

    shown, last = _fitting(wanted.entries(start), query.limit)
    cursor = None if last is None else write_cursor(topic, query.state, *last)
    return Messages(messages=shown, cursor=cursor)


def list_all_topics(outbox: Outbox, query: TopicsQuery) -> Topics:
    """Return one page of all topics: at most `limit`, and no more bytes than an answer takes.

    Raises:
        InvalidInput: the cursor is none, or that of another list.
    """
    after = None if query.cursor is None else _topic_of(query.cursor)
    # one more than asked for tells whether there is a next page
    found = outbox.topics_behind(after, limit=query.limit + 1)

    entries = ((state.topic.name, show_topic(state)) for state in found)
    shown, last = _fitting(entries, query.limit)
    return Topics(topics=shown, cursor=None if last is None else pack_cursor([_TOPICS, last]))


def _fitting(entries: Iterable[tuple[P, S]], limit: int) -> tuple[list[S], P | None]:
    """Return the entries of one page, and the place of its last; None: nothing is behind it."""
    shown: list[S] = []
    last: P | None = None
    spent = 0
    for place, entry in entries:
        spent += encoded_size(entry)
        # one entry at least, however large: else the list would never go on
        if shown and (len(shown) == limit or spent > MAX_ANSWER_BYTES):
            return shown, last
        shown.append(entry)
        last = place
    return shown, None


def _topic_of(cursor: str) -> str:
    fields = unpack_cursor(cursor)
    if isinstance(fields, list) and len(fields) == 2 and fields[0] == _TOPICS:
        name = fields[1]
        try:
            return check_topic(name)
        except InvalidInput:
            pass
    raise InvalidInput("cursor", "the cursor of the page before, of the list of topics")


@dataclass(frozen=True, slots=True)
class _List:
    """A request for a list, its time (ms), and who holds messages."""

    outbox: Outbox
    topic: TopicState
    query: ListQuery
    now: int
    receives: MessageReceives

    def entries(self, start: tuple[Part, Place] | None) -> Iterator[Entry]:
        """Yield what comes behind `start`, each with its place."""
        parts = PARTS[self.query.state]
        at = 0 if start is None else parts.index(start[0])
        # the cursor's place is one of the first part; later parts are read from their beginning
        for number, part in enumerate(parts[at:]):
            after = start[1] if start is not None and number == 0 else None
            for place, entry in self._part(part, after):
                yield (part, place), entry

    def _part(
        self, part: Part, after: Place | None
    ) -> Iterator[tuple[Place, MessageOut | DeliveryOut]]:
        # one more than shown: the list ends only when there is nothing behind its last entry
        page = self.query.limit + 1
        if part == "ledger":
            for delivery in self._deliveries(after):
                yield _place(delivery), show_delivery(delivery)
        elif part == "dead":
            for letter in message_pages.dead(
                self.outbox.tables, self.topic, after=after, page=page
            ):
                yield Place(0, letter.id), show_dead(self.outbox, letter, self.receives)
        else:
            for stored in self._lane(part, after, page):
                place = Place(stored.ref.due or 0, stored.ref.id)
                yield place, show_message(self.outbox, stored, self.receives)

    def _lane(self, part: Part, after: Place | None, page: int) -> Iterator[StoredMessage]:
        tables = self.outbox.tables
        if part == "ready":
            return message_pages.ready(tables, self.topic, after=after, page=page)
        # the two states meet at the request's time: each delayed message is in one of them
        bounds = (
            {"due_from": self.now + 1}
            if self.query.state == "waiting"
            else {"due_until": self.now + 1}
        )
        return message_pages.later(tables, self.topic, after=after, page=page, **bounds)

    def _deliveries(self, after: Place | None) -> Iterator[Delivery]:
        since, until = _time("since", self.query.since), _time("until", self.query.until)
        if since is not None and until is not None and until < since:
            raise InvalidInput("until", "a time that is not before since")
        if after is not None:
            # several deliveries share a millisecond: it is read again without those shown
            behind = datetime.fromtimestamp(after.time / 1000, UTC)
            since = behind if since is None else max(since, behind)
        for delivery in self.outbox.delivered(self.topic.topic.name, since=since, until=until):
            if after is None or _place(delivery) > after:
                yield delivery


def _place(delivery: Delivery) -> Place:
    """Return where a delivery stands in the ledger's own order."""
    return Place(delivery.at, delivery.id, delivery.subscription)


def _time(field: str, text: str | None) -> datetime | None:
    """Return the time that a parameter names.

    Raises:
        InvalidInput: it is neither RFC 3339 nor milliseconds since 1970 UTC.
    """
    if text is None:
        return None

    expected = f"milliseconds since 1970 UTC, or RFC 3339 with a zone, up to year {_MAX_YEAR}"
    try:
        # `isdigit` alone takes digits of other scripts
        if text.isascii() and text.isdigit():
            time = datetime.fromtimestamp(int(text) / 1000, UTC)
        else:
            # a plus that was not escaped reads as a space
            time = datetime.fromisoformat(text.replace(" ", "+"))
        if time.tzinfo is None or not 1970 <= time.year <= _MAX_YEAR:
            raise InvalidInput(field, expected)
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(field, expected) from None

    return time
