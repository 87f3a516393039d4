"""The row of a feed: its kind and its numbers (partition `config` of the feeds table)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import InvalidInput, UnknownFeed
from fairbox.model.feed_types import NUMBERS, Feed
from fairbox.tables.calls import Calls, ConditionFailed, Rows
from fairbox.tables.keys import CONFIG, PK, SK, Item, check_version, key
from fairbox.tables.stored_messages import number
from fairbox.tables.unreadable_items import reading

if TYPE_CHECKING:
    from collections.abc import Mapping


# feed, with the numbers of its kind under their own names (table Feeds)
KIND: Final = "kind"  # S, `snapshot`, `ring` or `private`

COPY_SECONDS: Final = 30.0
"""Time after which a process reads a feed again."""


def to_item(feed: Feed) -> Item:
    """Return the row."""
    numbers = {name: number(getattr(feed, name)) for name in NUMBERS[feed.kind]}
    return key(CONFIG, feed.name) | {KIND: {"S": feed.kind}} | numbers


def of_item(name: str, item: Mapping[str, Any]) -> Feed:
    """Return the feed of a row.

    Raises:
        Unreadable: it is none; NewerVersion: a newer release wrote it.
    """
    check_version(item)
    with reading(item, LookupError, TypeError, ValueError):
        kind = item[KIND]["S"]
        # a row that an older release wrote may lack a number: it has its default
        return Feed(name, kind, **{n: int(item[n]["N"]) for n in NUMBERS[kind] if n in item})


class FeedRows(Rows):
    """Reads and writes the rows of feeds."""

    def __init__(self, calls: Calls, table: str) -> None:
        super().__init__(calls, table)
        self._feeds: dict[str, tuple[Feed, float]] = {}

    def known(self, name: str) -> Feed:
        """Return a feed, from a copy that is at most `COPY_SECONDS` old.

        Raises:
            UnknownFeed: there is no such feed.
        """
        now = self._calls.clock.now()
        copy = self._feeds.get(name)
        if copy is not None and now < copy[1]:
            return copy[0]

        # a feed that is missing is not remembered: it may be created at any time
        feed = self.load(name)
        self._feeds[name] = feed, now + COPY_SECONDS
        return feed

    def load(self, name: str) -> Feed:
        """Return a feed, read consistently (1 RRU).

        Raises:
            UnknownFeed: there is no such feed.
        """
        item = self._calls.get(self._table, key(CONFIG, name))
        if item is None:
            raise UnknownFeed(name)
        return of_item(name, item)

    def all(self) -> list[Feed]:
        """Return every feed by name, read consistently (1 RRU for 4 KB)."""
        items = self._calls.partition(self._table, CONFIG)
        return [of_item(item[SK]["S"], item) for item in items]

    def delete(self, name: str) -> None:
        """Delete a feed (1 WRU).

        Raises:
            UnknownFeed: there is no such feed.
        """
        try:
            self._calls.call(
                "delete_item",
                TableName=self._table,
                Key=key(CONFIG, name),
                ConditionExpression="attribute_exists(#pk)",
                ExpressionAttributeNames={"#pk": PK},
            )
        except ConditionFailed as failed:
            raise UnknownFeed(name) from failed

        self._feeds.pop(name, None)

    def save(self, feed: Feed) -> None:
        """Write a feed, new or changed in its numbers (1 WRU).

        Raises:
            InvalidInput: it is there, and of another kind.
        """
        try:
            self._calls.call(
                "put_item",
                TableName=self._table,
                Item=to_item(feed),
                ConditionExpression="attribute_not_exists(#k) OR #k = :k",
                ExpressionAttributeNames={"#k": KIND},
                ExpressionAttributeValues={":k": {"S": feed.kind}},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ConditionFailed as failed:
            there = of_item(feed.name, failed.old).kind
            expected = f"{there!r}, as feed {feed.name!r} is: a kind cannot be changed"
            raise InvalidInput("kind", expected) from failed

        self._feeds.pop(feed.name, None)
