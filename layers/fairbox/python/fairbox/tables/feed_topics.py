"""The rows of a feed's topic: its bundles, and of a private one how far they are acknowledged.

The newest bundle is the head, and the earlier ones are the log. A writer files the head into the
log before it replaces the head, and a reader reads the head before the log. So a reader finds every
number up to the head's, wherever a writer stops.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox.model.bodies import COMPRESS_OVER, compress
from fairbox.model.feed_types import BUNDLE_MESSAGES
from fairbox.tables.calls import Calls, ConditionFailed, key_condition
from fairbox.tables.keys import EXPIRES_AT, HEAD, PK, SK, Item, check_version, key
from fairbox.tables.stored_messages import number
from fairbox.tables.unreadable_items import reading
from fairbox.tables.write_expressions import condition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence


# bundle of messages: head, log (table Feeds)
FIRST: Final = "f"  # N, number of its first message
LAST: Final = "l"  # N, number of its last message
AT: Final = "t"  # N, ms, when it was published
MESSAGES: Final = "m"  # S, or B where zlib makes it shorter: texts with U+001E between them

# acknowledged messages of a private topic (table Feeds)
NUMBER: Final = "n"  # N, of the last one

ACKNOWLEDGED: Final = "!a"
"""Sort key of that row: directly after the head, so that one query reads both."""
_BETWEEN: Final = "\x1e"
"""A record separator, which no JSON text contains."""
_MAX_BYTES: Final = 400 * 1024
"""Bytes of the messages of an item, unpacked."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The messages that one write published: up to 16, with consecutive numbers.

    Attributes:
        first, last: numbers of its messages.
        messages: the text of each, as clients get it behind its number.
        at: when it was published, in ms since 1970 UTC.
    """

    first: int
    last: int
    messages: tuple[str, ...]
    at: int

    def follower(self, messages: Sequence[str], at: int) -> Bundle:
        """Return the bundle of these messages that comes next."""
        return Bundle(self.last + 1, self.last + len(messages), tuple(messages), at)


EMPTY: Final = Bundle(1, 0, (), 0)
"""The head of a topic without messages, which has no item."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """The head of a topic, and of a private one the last number that is acknowledged."""

    head: Bundle
    acknowledged: int

    @property
    def depth(self) -> int:
        """The number of messages that are not acknowledged."""
        return self.head.last - self.acknowledged


def topic_pk(topic: str) -> str:
    """Return the partition key of a topic."""
    return f"t#{topic}"


def topic_of(image: Mapping[str, Any]) -> str:
    """Return the topic of an item."""
    return str(image[PK]["S"]).removeprefix("t#")


def log_sk(first: int) -> str:
    """Return the sort key of a bundle in the log."""
    return f"{first:016x}"


def to_item(topic: str, sk: str, bundle: Bundle) -> Item:
    """Return the item of a bundle."""
    return key(topic_pk(topic), sk) | {
        FIRST: number(bundle.first),
        LAST: number(bundle.last),
        AT: number(bundle.at),
        MESSAGES: _pack(bundle.messages),
    }


def of_item(item: Mapping[str, Any]) -> Bundle:
    """Return the bundle of an item.

    Raises:
        Unreadable: it is none; NewerVersion: a newer release wrote it.
    """
    check_version(item)
    with reading(item, LookupError, TypeError, ValueError, zlib.error):
        first, last, at = (int(item[name]["N"]) for name in (FIRST, LAST, AT))
        messages = _unpack(item[MESSAGES])
        if len(messages) != last - first + 1:
            raise ValueError("its numbers are not those of its messages")
        return Bundle(first, last, messages, at)


def acknowledged_of(item: Mapping[str, Any]) -> int:
    """Return the number of a row of acknowledged messages; 0 where there is no row."""
    check_version(item)
    with reading(item, LookupError, TypeError, ValueError):
        return int(item[NUMBER]["N"]) if item else 0


def _pack(messages: Sequence[str]) -> dict[str, Any]:
    text = _BETWEEN.join(messages)
    raw = text.encode()
    packed, shorter = compress(raw) if len(raw) > COMPRESS_OVER else (raw, False)
    return {"B": packed} if shorter else {"S": text}


def _unpack(value: Mapping[str, Any]) -> tuple[str, ...]:
    if "S" in value:
        text = value["S"]
    else:
        # bounded: a few damaged bytes could unpack to gigabytes
        unpack = zlib.decompressobj()
        text = unpack.decompress(value["B"], _MAX_BYTES).decode()
        if not unpack.eof:  # zlib would give the part that it has
            raise ValueError("it is cut off, or too large")
    return tuple(text.split(_BETWEEN))


class FeedTopics:
    """Reads and writes the rows of topics, each named `feed/key`. Reads are consistent."""

    def __init__(self, calls: Calls, table: str) -> None:
        self.calls = calls
        self._table = table

    def state(self, topic: str) -> TopicState:
        """Return a topic's state (1 RRU for 4 KB)."""
        items = {item[SK]["S"]: item for item in self._query(topic, HEAD, ACKNOWLEDGED)}
        head = of_item(items[HEAD]) if HEAD in items else EMPTY
        return TopicState(head, acknowledged_of(items.get(ACKNOWLEDGED, {})))

    def states(self, topics: Mapping[str, bool]) -> dict[str, TopicState]:
        """Return the states of up to 100 topics in as few calls (1 RRU for 4 KB).

        Of a private one, as the values tell, its other row is read too (1 RRU).
        """
        keys = [key(topic_pk(topic), HEAD) for topic in topics]
        keys += [key(topic_pk(topic), ACKNOWLEDGED) for topic, private in topics.items() if private]
        found = self.calls.batch_get(self._table, keys)
        items = {(item[PK]["S"], item[SK]["S"]): item for item in found}

        states: dict[str, TopicState] = {}
        for topic in topics:
            head, acknowledged = (items.get((topic_pk(topic), sk)) for sk in (HEAD, ACKNOWLEDGED))
            states[topic] = TopicState(
                of_item(head) if head else EMPTY, acknowledged_of(acknowledged or {})
            )
        return states

    def acknowledged(self, topics: Collection[str]) -> dict[str, int]:
        """Return up to where private topics are acknowledged (1 RRU each)."""
        keys = [key(topic_pk(topic), ACKNOWLEDGED) for topic in topics]
        found = {item[PK]["S"]: item for item in self.calls.batch_get(self._table, keys)}
        return {topic: acknowledged_of(found.get(topic_pk(topic), {})) for topic in topics}

    def filed(self, topic: str, first: int) -> Bundle | None:
        """Return the bundle of the log that begins with a number (1 RRU for 4 KB)."""
        found = next(self._query(topic, log_sk(first), log_sk(first)), None)
        return None if found is None else of_item(found)

    def after(self, topic: str, position: int, head: Bundle, page: int = 100) -> Iterator[Bundle]:
        """Yield the bundles behind a position, whole and in order, up to a head read before.

        A bundle that contains the position and more is among them. The log is read `page` bundles
        at a time, and not at all if only the head is behind.
        """
        next_, end = position + 1, log_sk(head.first - 1)
        if next_ < head.first:
            log = map(of_item, self._query(topic, log_sk(next_), end, Limit=page))
            found = next(log, head)
            if found.first > next_:  # it has expired, or the position is within a bundle
                # a bundle with this number and the next, of 16 at most, begins no lower
                low = max(0, position - BUNDLE_MESSAGES + 2)
                newest = {"Limit": 1, "ScanIndexForward": False}
                around = next(self._query(topic, log_sk(low), log_sk(position), **newest), None)
                if around is not None and (within := of_item(around)).last > position:
                    yield within

            if found is not head:
                yield found
                yield from log

        if head.last > position:
            yield head

    def oldest(self, topic: str, number: int, head: Bundle) -> Bundle:
        """Return the first bundle with a number or later ones, up to a head read before."""
        if number >= head.first:
            return head

        before = {"Limit": 1, "ScanIndexForward": False}
        # the last bundle that begins at the number or below
        found = next(self._query(topic, log_sk(0), log_sk(number), **before), None)
        if found is None or of_item(found).last < number:  # DynamoDB has deleted what it was in
            found = next(self._query(topic, log_sk(number), log_sk(head.first - 1), Limit=1), None)

        return head if found is None else of_item(found)

    def _query(self, topic: str, low: str, high: str, **more: Any) -> Iterator[Item]:
        for page in self.calls.pages(
            "query",
            TableName=self._table,
            ConsistentRead=True,
            **key_condition(topic_pk(topic), "#sk BETWEEN :low AND :high", low=low, high=high),
            **more,
        ):
            yield from page["Items"]

    def file(self, topic: str, bundle: Bundle, keep: int) -> None:
        """Put a bundle into the log, for `keep` seconds from when it was published (1 WRU a KB).

        There is no condition: every process that files a bundle files the same.
        """
        expires = number(bundle.at // 1000 + keep)
        item = to_item(topic, log_sk(bundle.first), bundle) | {EXPIRES_AT: expires}
        self.calls.call("put_item", TableName=self._table, Item=item)

    def replace(self, topic: str, head: Bundle, was: Bundle) -> bool:
        """Replace the head if it is still `was`, which is in the log by then (1 WRU a KB).

        Returns:
            Whether this call did; where an answer was lost, the head or the log may show that it
            did all the same.
        """
        return self.calls.written(
            "put_item",
            TableName=self._table,
            Item=to_item(topic, HEAD, head),
            # each head has another last number
            **condition("l", LAST, None if was == EMPTY else number(was.last)),
        )

    def count_up(self, topic: str, message: str, count: int, at: int) -> int:
        """Make a message the only one of a topic; return its number (1 WRU a KB).

        It is the last of `count` that are published at a time (ms since 1970 UTC). Where it is the
        topic's message already, nothing changes.
        """
        counted = "if_not_exists(#l, :zero) + :count"

        try:
            answer = self.calls.call(
                "update_item",
                TableName=self._table,
                Key=key(topic_pk(topic), HEAD),
                # one message: its number is the first and the last
                UpdateExpression=f"SET #f = {counted}, #l = {counted}, #t = :t, #m = :m",
                # so an answer that was lost counts once, as long as nobody else has published
                ConditionExpression="attribute_not_exists(#m) OR #m <> :m",
                ExpressionAttributeNames={"#f": FIRST, "#l": LAST, "#t": AT, "#m": MESSAGES},
                ExpressionAttributeValues={
                    ":zero": number(0),
                    ":count": number(count),
                    ":t": number(at),
                    ":m": _pack([message]),
                },
                ReturnValues="UPDATED_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ConditionFailed as failed:
            return of_item(failed.old).last

        return int(answer["Attributes"][LAST]["N"])

    def acknowledge(self, topic: str, upto: int) -> int:
        """Acknowledge up to a number (1 WRU); return up to where is acknowledged then."""
        old = self.calls.refused(
            "update_item",
            TableName=self._table,
            Key=key(topic_pk(topic), ACKNOWLEDGED),
            UpdateExpression="SET #n = :n",
            # acknowledgements may come out of order: the number never goes back
            ConditionExpression="attribute_not_exists(#n) OR #n < :n",
            ExpressionAttributeNames={"#n": NUMBER},
            ExpressionAttributeValues={":n": number(upto)},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        return upto if old is None else acknowledged_of(old)
