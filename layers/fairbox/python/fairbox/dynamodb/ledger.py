"""The ledger in the deliveries table: who took what, and when."""

from __future__ import annotations

import heapq
from collections import Counter
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.keys import key_of
from fairbox.codec.ledger import (
    SHARED,
    SPAN_MS,
    count_ledger,
    ledger_days,
    ledger_pk,
    ledger_sk,
    read_ledger,
)
from fairbox.errors import Unavailable, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairbox.codec.keys import Item
    from fairbox.dynamodb.calls import Calls
    from fairbox.model.stored_messages import Delivery

SAMPLE_ROWS: Final = 1000
"""Ledger rows of a sample of deliveries; they hold 400 deliveries and 10 KB each at most."""
_DAY_MS = 86_400_000
_PAGE: Final = 100


class Ledger:
    """Reads ledger rows."""

    def __init__(self, calls: Calls, table: str) -> None:
        self._calls = calls
        self._table = table

    def of_topic(self, topic: str, since: int, until: int) -> Iterator[Delivery]:
        """Yield a topic's deliveries with `since` <= `at` < `until` (ms), by time, each once."""
        if since >= until:  # which a key condition does not take
            return iter(())
        rows = heapq.merge(
            self._rows(topic, since, until),
            self._rows(SHARED, since, until),
            key=_time,
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

        It reads `SAMPLE_ROWS` at most, eventually consistent, and counts what other batching
        repeats twice.
        """
        found: Counter[str] = Counter()
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
            KeyConditionExpression="#pk = :pk AND #sk BETWEEN :low AND :high",
            ExpressionAttributeNames={"#pk": attr.PK, "#sk": attr.SK},
            ExpressionAttributeValues={
                ":pk": {"S": ledger_pk(topic)},
                ":low": {"S": ledger_sk(max(0, since - SPAN_MS))},
                ":high": {"S": ledger_sk(until)},
            },
        ):
            yield from page["Items"]

    def _all_rows(self, since: int, until: int) -> Iterator[Item]:
        start = max(0, since - SPAN_MS)
        day = start - start % _DAY_MS
        while day < until:
            yield from self._rows_of(self._day_keys(day, start, until))
            day += _DAY_MS

    def _rows_of(self, keys: Iterator[Item]) -> Iterator[Item]:
        """Yield the rows of keys in order of time, a hundred a call."""
        while some := [key_of(item) for item in islice(keys, _PAGE)]:
            yield from sorted(self._calls.batch_get(self._table, some, consistent=False), key=_time)

    def _day_keys(
        self, day: int, since: int, until: int, *, newest_first: bool = False
    ) -> Iterator[Item]:
        """Yield the index's keys of one UTC day's rows that begin in a span (ms), by time."""
        parts = [
            chain.from_iterable(
                page["Items"] for page in self._part(name, since, until, newest_first)
            )
            for name in ledger_days(day)
        ]
        return heapq.merge(*parts, key=_time, reverse=newest_first)

    def _part(
        self, name: str, since: int, until: int, newest_first: bool
    ) -> Iterator[dict[str, Any]]:
        return self._calls.pages(
            "query",
            TableName=self._table,
            IndexName=attr.DELIVERED_INDEX,
            KeyConditionExpression="#y = :y AND #w BETWEEN :low AND :high",
            ExpressionAttributeNames={
                "#y": attr.LEDGER_DAY,
                "#w": attr.LEDGER_TIME,
            },
            ExpressionAttributeValues={
                ":y": {"S": name},
                ":low": {"N": str(since)},
                ":high": {"N": str(until)},
            },
            ScanIndexForward=not newest_first,
            Limit=_PAGE,
        )


def _time(item: Item) -> int:
    return int(item[attr.LEDGER_TIME]["N"])


def _ordered(
    rows: Iterator[dict[str, Any]], since: int, until: int, topic: str | None
) -> Iterator[Delivery]:
    """Merge rows that begin in order into deliveries in order; drop what other batching repeats."""
    waiting: list[tuple[int, str, str, Delivery]] = []
    seen: dict[tuple[str, str, str, int], None] = {}
    for row in rows:
        first = int(row[attr.LEDGER_TIME]["N"])
        while waiting and waiting[0][0] < first:
            yield heapq.heappop(waiting)[3]
        for d in read_ledger(row):
            identity = (d.topic, d.id, d.subscription, d.at)
            if identity in seen or not since <= d.at < until or topic not in (None, d.topic):
                continue
            seen[identity] = None
            heapq.heappush(waiting, (d.at, d.id, f"{d.topic}#{d.subscription}", d))
        if len(seen) > 100_000:
            seen = {i: None for i in seen if i[3] >= first - SPAN_MS}
    while waiting:
        yield heapq.heappop(waiting)[3]
