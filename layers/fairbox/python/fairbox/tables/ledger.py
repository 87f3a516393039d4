"""The ledger in the deliveries table: who took which message, and when.

A row packs up to 400 deliveries, at some 24 bytes each.
"""

from __future__ import annotations

import heapq
import json
import uuid
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import Unavailable, Unreadable
from fairbox.model.ids import time_of
from fairbox.model.messages import MessageRef
from fairbox.model.versions import check_number
from fairbox.tables.calls import Rows, key_condition
from fairbox.tables.keys import EXPIRES_AT, PK, Item, check_version, key, key_of, key_text
from fairbox.tables.unreadable_items import reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


DELIVERED_INDEX: Final = "DeliveredAllTopics"
LEDGER_DAY: Final = "y"  # S, UTC day, "#", 0 to 7: hash key of DeliveredAllTopics
LEDGER_TIME: Final = "w"  # N, ms: range key of DeliveredAllTopics
LEDGER_PACKED: Final = "b"  # B, the deliveries of a ledger row
LEDGER_COUNT: Final = "c"  # N, how many they are
MAX_PER_ROW: Final = 400
SHARED: Final = "*"  # stands for the topic in the key of a row that several small topics share
SPAN_MS: Final = 300_000  # no row covers more time than this, so that a range read can be bounded
DAY_PARTS: Final = 8
"""Hash keys a day: each takes 1,000 rows a second."""
_FORMAT: Final = 1
SAMPLE_ROWS: Final = 1000
"""Ledger rows of a sample of deliveries; they hold 400 deliveries and 10 KB each at most."""
_DAY_MS = 86_400_000
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery as the ledger has it.

    Attributes:
        topic, epoch, shard, id: which message.
        subscription: who took it; `pull` on pulled topics.
        at: when, in milliseconds since 1970 UTC (whole seconds, as the stream stamps records).
        attempts: which attempt it was, from 1.
        size: bytes of the body.
    """

    topic: str
    epoch: int
    shard: int
    id: str
    subscription: str
    at: int
    attempts: int
    size: int

    @property
    def ref(self) -> MessageRef:
        """The message's ref; without due time, which the ledger does not keep."""
        return MessageRef(self.topic, self.epoch, self.shard, self.id)

    @property
    def added_at(self) -> int:
        """The id's time in milliseconds since 1970 UTC."""
        return time_of(self.id)


def ledger_pk(topic: str) -> str:
    """Return the partition key of a topic's ledger rows."""
    return f"ledger#{topic}"


def ledger_sk(at: int, sequences: tuple[str, str] | None = None) -> str:
    """Return the sort key of a row that begins at `at` (ms); without sequences: a bound."""
    return f"{at:015d}" + ("" if sequences is None else f"#{sequences[0]}#{sequences[1]}")


def day_of(at: int) -> str:
    """Return the UTC day of a time in milliseconds."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varints(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    values = []
    for _ in range(count):
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        values.append(value)
    return values, at


def ledger_item(
    topic: str, deliveries: Sequence[Delivery], sequences: tuple[str, str], expires_at: int
) -> Item:
    """Return one ledger row.

    Args:
        topic: the topic, or `SHARED`.
        deliveries: 1 to `MAX_PER_ROW`, ascending by `at`.
        sequences: first and last stream sequence number that the row covers.
        expires_at: when it may be dropped, in seconds since 1970 UTC.
    """
    first = deliveries[0].at
    topics = sorted({d.topic for d in deliveries})
    subscriptions = sorted({d.subscription for d in deliveries})

    # names once for the row: a delivery then takes about 24 bytes
    head = json.dumps([topics, subscriptions], separators=(",", ":")).encode()
    packed = bytearray(bytes([_FORMAT]) + _varint(len(head)) + head)

    for d in deliveries:
        packed += uuid.UUID(d.id).bytes
        for value in (
            d.at - first,
            topics.index(d.topic),
            subscriptions.index(d.subscription),
            d.epoch,
            d.shard,
            d.attempts,
            d.size,
        ):
            packed += _varint(value)

    # named by its records: a batch that the stream repeats writes the same row again
    sk = ledger_sk(first, sequences)
    # a hash key of the index takes 1,000 rows a second: a day has several
    part = zlib.crc32(sk.encode()) % DAY_PARTS
    return key(ledger_pk(topic), sk) | {
        LEDGER_PACKED: {"B": bytes(packed)},
        LEDGER_COUNT: {"N": str(len(deliveries))},
        LEDGER_DAY: {"S": f"{day_of(first)}#{part}"},
        LEDGER_TIME: {"N": str(first)},
        EXPIRES_AT: {"N": str(expires_at)},
    }


def count_ledger(item: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the number of a row's deliveries by topic; only a shared row is unpacked.

    Raises:
        Unreadable: it is no entry of the ledger; NewerVersion: a newer release wrote it.
    """
    topic = str(item[PK]["S"]).partition("#")[2]
    if topic == SHARED:
        return Counter(delivery.topic for delivery in read_ledger(item))
    return {topic: int(item[LEDGER_COUNT]["N"])}


def read_ledger(item: Mapping[str, Any]) -> Iterator[Delivery]:
    """Yield the deliveries of a ledger row, in the order of the row.

    Raises:
        Unreadable: it is no entry of the ledger; NewerVersion: a newer release wrote it.
    """
    check_version(item)

    with reading(item, LookupError, ValueError, TypeError, AttributeError, RecursionError):
        data = item[LEDGER_PACKED]["B"]
        if not isinstance(data, bytes):
            raise TypeError("a ledger row is binary")

        first = int(item[LEDGER_TIME]["N"])
        check_number(data[0], key_text(item))
        (length,), at = _varints(data, 1, 1)
        topics, subscriptions = json.loads(data[at : at + length])
        at += length

        # all of them before the first is given out: a damaged row never looks like a short one
        rows = []
        while at < len(data):
            message_id = str(uuid.UUID(bytes=data[at : at + 16]))
            (delta, topic, subscription, epoch, shard, attempts, size), at = _varints(
                data, at + 16, 7
            )
            rows.append(
                Delivery(
                    topics[topic],
                    epoch,
                    shard,
                    message_id,
                    subscriptions[subscription],
                    first + delta,
                    attempts,
                    size,
                )
            )

    yield from rows


class Ledger(Rows):
    """Reads ledger rows."""

    def of_topic(self, topic: str, since: int, until: int) -> Iterator[Delivery]:
        """Yield a topic's deliveries with `since` <= `at` < `until` (ms), by time, each once."""
        if since >= until:  # which a key condition does not take
            return iter(())
        # a topic's deliveries lie in its own rows, and, when they were few, in shared ones
        rows = heapq.merge(
            self._rows(topic, since, until), self._rows(SHARED, since, until), key=_time
        )
        return _ordered((row for row in rows), since, until, topic)

    def all(self, since: int, until: int) -> Iterator[Delivery]:
        """Yield every topic's deliveries with `since` <= `at` < `until`, by time, each once."""
        if since >= until:
            return iter(())
        return _ordered(self._all_rows(since, until), since, until, None)

    def write(self, items: Sequence[Item]) -> None:
        """Write rows, 25 a call; a repetition overwrites.

        Raises:
            Unavailable: some stayed unwritten; all may be written again.
        """
        left = self._calls.batch_write(self._table, [{"PutRequest": {"Item": i}} for i in items])
        if left:
            raise Unavailable("batch_write_item", f"{len(left)} ledger rows were not written")

    def sample(self, since: int, until: int) -> Counter[str]:
        """Count the deliveries of the newest rows with `since` <= `at` < `until` (ms), by topic.

        It reads `SAMPLE_ROWS` at most, eventually consistent, and counts a delivery twice if other
        batching repeats it.
        """
        found: Counter[str] = Counter()

        # the newest day first; a span of up to a day touches two
        days = dict.fromkeys(at - at % _DAY_MS for at in (until, since))
        newest = chain.from_iterable(
            self._day_keys(day, since, until, newest_first=True) for day in days
        )

        for row in self._rows_of(islice(newest, SAMPLE_ROWS)):
            with suppress(Unreadable):  # one row more or less of a sample
                found.update(count_ledger(row))

        return found

    def _rows(self, topic: str, since: int, until: int) -> Iterator[Item]:
        for page in self._calls.pages(
            "query",
            TableName=self._table,
            **key_condition(
                ledger_pk(topic),
                "#sk BETWEEN :low AND :high",
                # a row that begins before the span may reach into it
                low=ledger_sk(max(0, since - SPAN_MS)),
                high=ledger_sk(until),
            ),
        ):
            yield from page["Items"]

    def _all_rows(self, since: int, until: int) -> Iterator[Item]:
        # a row that begins before the span may reach into it
        start = max(0, since - SPAN_MS)
        day = start - start % _DAY_MS
        while day < until:
            yield from self._rows_of(self._day_keys(day, start, until))
            day += _DAY_MS

    def _rows_of(self, keys: Iterator[Item]) -> Iterator[Item]:
        """Yield the rows of keys in order of time, a hundred a call."""
        while some := [key_of(item) for item in islice(keys, _PAGE)]:
            # a batch answers in no order
            yield from sorted(self._calls.batch_get(self._table, some, consistent=False), key=_time)

    def _day_keys(
        self, day: int, since: int, until: int, *, newest_first: bool = False
    ) -> Iterator[Item]:
        """Yield the index's keys of one UTC day's rows that begin in a span (ms), by time."""
        name = day_of(day)
        # the first is that of rows before there were several
        names = [name, *(f"{name}#{part}" for part in range(DAY_PARTS))]
        parts = [
            chain.from_iterable(
                page["Items"] for page in self._part(name, since, until, newest_first)
            )
            for name in names
        ]
        return heapq.merge(*parts, key=_time, reverse=newest_first)

    def _part(
        self, name: str, since: int, until: int, newest_first: bool
    ) -> Iterator[dict[str, Any]]:
        return self._calls.pages(
            "query",
            TableName=self._table,
            IndexName=DELIVERED_INDEX,
            KeyConditionExpression="#y = :y AND #w BETWEEN :low AND :high",
            ExpressionAttributeNames={"#y": LEDGER_DAY, "#w": LEDGER_TIME},
            ExpressionAttributeValues={
                ":y": {"S": name},
                ":low": {"N": str(since)},
                ":high": {"N": str(until)},
            },
            ScanIndexForward=not newest_first,
            Limit=_PAGE,
        )


def _time(item: Item) -> int:
    return int(item[LEDGER_TIME]["N"])


def _ordered(
    rows: Iterator[dict[str, Any]], since: int, until: int, topic: str | None
) -> Iterator[Delivery]:
    """Merge rows that begin in order into deliveries in order; drop repeated deliveries."""
    waiting: list[tuple[int, str, str, Delivery]] = []
    seen: dict[tuple[str, str, str, int], None] = {}

    for row in rows:
        first = int(row[LEDGER_TIME]["N"])
        # later rows begin no sooner, and hold nothing from before their beginning
        while waiting and waiting[0][0] < first:
            yield heapq.heappop(waiting)[3]

        for d in read_ledger(row):
            # a batch that came again divided otherwise has left the delivery in two rows
            identity = (d.topic, d.id, d.subscription, d.at)
            if identity in seen or not since <= d.at < until or topic not in (None, d.topic):
                continue
            seen[identity] = None
            heapq.heappush(waiting, (d.at, d.id, f"{d.topic}#{d.subscription}", d))

        # rows cover 5 minutes at most: what is older cannot come again
        if len(seen) > 100_000:
            seen = {i: None for i in seen if i[3] >= first - SPAN_MS}

    while waiting:
        yield heapq.heappop(waiting)[3]
