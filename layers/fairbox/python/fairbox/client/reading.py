"""Reads of messages: outstanding, waiting, dead and delivered ones, and who holds them."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from fairbox.client import message_pages
from fairbox.client.outbox_context import OutboxPart
from fairbox.errors import InvalidInput, MessagesNotFound, UnknownTopic, Unreadable
from fairbox.model.ids import bound_of
from fairbox.tables.dead_letters import DeadLetter, read_dead
from fairbox.tables.parallel_scan import parallel_scan
from fairbox.tables.stored_messages import StoredMessage, fetch_body, key_digest, read_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairbox.model.messages import Message, MessageRef, OpenLane
    from fairbox.tables.key_claims import KeyClaims
    from fairbox.tables.ledger import Delivery
    from fairbox.tables.shard_rows import ShardRow
    from fairbox.tables.tables import Tables
    from fairbox.tables.topic_cache import ProducerTopics

_PAGE: Final = 100
State = Literal["outstanding", "held", "waiting", "dead"]


@dataclass(frozen=True, slots=True)
class Receives:
    """The receives of a message so far.

    Attributes:
        count: how many there were, as far as it was not put back from the dead letters.
        held_until: when others may receive it, in milliseconds since 1970 UTC; None: nobody holds
            it.
        consumer: the name that its holder gave; empty: none, or an ordered topic.
    """

    count: int = 0
    held_until: int | None = None
    consumer: str = ""


class MessageReads(OutboxPart):
    """Reads and counts messages, and finds one by its ref."""

    def get(self, ref: MessageRef) -> Message | None:
        """Return a message that is outstanding or dead; None when it is neither."""
        stored = self.find(ref)
        return None if stored is None else self.fetch(stored).message

    def find(self, ref: MessageRef) -> StoredMessage | None:
        """Return a message with its lane and state; an offloaded body is not fetched."""
        # a redrive may put it back between the first two reads
        for read in (self.tables.lanes.get, self.tables.dead.get, self.tables.lanes.get):
            item = read(ref)
            if item is not None and (stored := _there(read_message(item))) is not None:
                return stored
        return None

    def get_many(self, refs: Iterable[MessageRef]) -> list[Message]:
        """Return the messages in the order of the refs, outstanding or dead.

        Raises:
            MessagesNotFound: some are neither; `.missing` names them.
        """
        wanted = list(refs)
        there: dict[tuple[str, int, int, str], StoredMessage] = {}
        missing = wanted

        # a redrive may put some back between the first two reads
        for read in (self.tables.lanes.items, self.tables.dead.items, self.tables.lanes.items):
            if not missing:
                break
            for item in read(list(dict.fromkeys(missing))):
                if (stored := _there(read_message(item))) is not None:
                    there[_identity(stored.ref)] = stored
            missing = [r for r in wanted if _identity(r) not in there]

        if missing:
            raise MessagesNotFound(missing)
        return [self.fetch(there[_identity(r)]).message for r in wanted]

    def fetch(self, stored: StoredMessage) -> StoredMessage:
        """Return the message with its body, which is read from S3 if it was offloaded."""
        return fetch_body(self.tables.bodies, stored)

    def outstanding(
        self,
        topic: str | None = None,
        *,
        older_than: float | timedelta | None = None,
        limit: int | None = None,
    ) -> Iterator[Message]:
        """Yield messages of the `ready` lanes.

        For one topic the read is consistent, ascending by id across its shards. For all topics it
        covers the shards that the index lists (which is half a minute behind), ascending by id.

        Args:
            topic: the topic; None: all.
            older_than: minimum age of the message's id, in seconds or as a timedelta.
            limit: maximum number.
        """
        for stored in self.stored("ready", topic, older_than=older_than, limit=limit):
            yield self.fetch(stored).message

    def waiting(self, topic: str, *, limit: int | None = None) -> Iterator[Message]:
        """Yield a topic's delayed messages that are not yet due, ascending by due time."""
        check_limit(limit)
        now = self._context.now
        given = 0
        for stored in self.stored("later", topic):
            if limit is not None and given >= limit:
                return
            # one that is due lies in the same lane until it is delivered
            if (stored.ref.due or 0) > now:
                given += 1
                yield self.fetch(stored).message

    def stored(
        self,
        lane: OpenLane,
        topic: str | None,
        *,
        older_than: float | timedelta | None = None,
        limit: int | None = None,
    ) -> Iterator[StoredMessage]:
        """Yield a lane's messages with their states, ordered as `outstanding` and `waiting` are."""
        check_limit(limit)
        upper = "~"
        if older_than is not None:
            upper = bound_of(self._context.now - age_ms(older_than))

        if topic is None:
            shards = [(r.topic, r.epoch, r.shard) for r in self.listed() if r.may_hold]
        else:
            state = self._context.topics.get(topic)
            shards = [(topic, epoch, shard) for epoch, shard in state.shards()]

        page = min(_PAGE, limit or _PAGE)
        walks = [self.tables.lanes.walk(lane, *shard, page=page, upper=upper) for shard in shards]
        merged = heapq.merge(*walks, key=lambda s: (s.ref.due or 0, s.ref.id))

        for n, stored in enumerate(merged):
            if limit is not None and n >= limit:
                return
            yield stored

    def receives(self) -> MessageReceives:
        """Return a reader of who holds messages now, and how often they were received."""
        return MessageReceives(self.tables, self._context.topics, self._context.now)

    def listed(self) -> list[ShardRow]:
        """Return the shard rows that the index `OutstandingAllTopics` lists."""
        return list(self.tables.rows.listed())

    def scan_outstanding(self, *, concurrency: int = 4) -> Iterator[Message]:
        """Yield every message of the table by parallel scan, in no order.

        Args:
            concurrency: number of segments read at a time, 1 to 64.
        """
        if not 1 <= concurrency <= 64:
            raise InvalidInput("concurrency", "a number from 1 to 64")
        arguments = self.tables.lanes.scan_arguments
        for item in parallel_scan(self.tables.calls, arguments, concurrency=concurrency):
            try:
                stored = read_message(item)
            except Unreadable:
                continue
            if stored.gone is None:
                yield self.fetch(stored).message

    def outstanding_count(self, topic: str | None = None, *, limit: int | None = None) -> int:
        """Return the number of outstanding messages: exact, or `limit + 1` if there are more.

        It queries each lane of a topic, or scans the table for all topics, and stops at the limit.

        Raises:
            InvalidInput: the limit is not a whole number from 1.
            UnknownTopic: there is no such topic.
        """
        check_limit(limit)
        if limit == 0:
            raise InvalidInput("limit", "a whole number from 1")
        bound = None if limit is None else limit + 1

        if topic is None:
            return self.tables.lanes.count_all(limit=bound)

        total = 0
        lanes: tuple[OpenLane, ...] = ("ready", "later")
        for epoch, shard in self._context.topics.get(topic).shards():
            for lane in lanes:
                rest = None if bound is None else bound - total
                if rest is not None and rest <= 0:
                    return total
                total += self.tables.lanes.count(lane, topic, epoch, shard, limit=rest)
        return total

    def dead(self, topic: str, *, limit: int | None = None) -> Iterator[DeadLetter]:
        """Yield a topic's dead letters, consistent, ascending by id across its shards.

        Offloaded bodies are not fetched: `fetch` reads one.

        Args:
            topic: the topic.
            limit: maximum number.

        Raises:
            UnknownTopic: there is no such topic.
        """
        check_limit(limit)
        page = min(_PAGE, limit or _PAGE)
        yield from islice(
            message_pages.dead(self.tables, self._context.topics.get(topic), page=page), limit
        )

    def dead_letter(self, ref: MessageRef) -> DeadLetter | None:
        """Return a dead letter, even an unreadable one, consistent; None: there is none."""
        item = self.tables.dead.get(ref)
        return None if item is None else read_dead(item)

    def delivered(
        self,
        topic: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> Iterator[Delivery]:
        """Yield deliveries from the ledger, ascending by time.

        Args:
            topic: the topic; None: all.
            since: the earliest time; by default the topic's retention ago, or 7 days for all
                topics.
            until: the end, exclusive; by default now.
            limit: maximum number.
        """
        check_limit(limit)
        now = self._context.clock.now()
        retention = self._context.topics.get(topic).topic.retention if topic else 7 * 86400
        low = _ms("since", since, (now - retention) * 1000)
        high = _ms("until", until, (now + 60) * 1000)

        found = (
            self.tables.ledger.all(low, high)
            if topic is None
            else self.tables.ledger.of_topic(topic, low, high)
        )

        for n, delivery in enumerate(found):
            if limit is not None and n >= limit:
                return
            yield delivery


class MessageReceives:
    """Reads the receives of messages; each row of an ordered topic's shard is read once.

    Args:
        topics: this process's copies of topics.
        now: the time for which it is said, in milliseconds since 1970 UTC.
    """

    def __init__(self, tables: Tables, topics: ProducerTopics, now: int) -> None:
        self._rows = tables.key_claims
        self._aside = tables.keys_aside
        self._topics = topics
        self._now = now
        self._in_row: dict[str, bool] = {}
        self._read: dict[tuple[str, int, int], KeyClaims] = {}

    def of(self, stored: StoredMessage) -> Receives:
        """Return the receives of a message as it was read (on ordered topics 1 RRU a shard)."""
        if stored.lane == "dead":
            return NEVER
        if self._ordered(stored.ref.topic):
            return self._of_row(stored)

        claim = stored.claim
        if claim is None:
            return NEVER
        active = bool(claim.token) and claim.until > self._now
        return Receives(
            claim.count, claim.until if active else None, claim.consumer if active else ""
        )

    def state(self, stored: StoredMessage, receives: Receives) -> State:
        """Return the state of a message: dead, held, waiting until it is due, or outstanding."""
        if stored.lane == "dead":
            return "dead"
        if receives.held_until is not None:
            return "held"
        return "waiting" if (stored.ref.due or 0) > self._now else "outstanding"

    def _of_row(self, stored: StoredMessage) -> Receives:
        shard = stored.ref.topic, stored.ref.epoch, stored.ref.shard
        if shard not in self._read:
            self._read[shard] = self._rows.get(shard)

        row, message_id = self._read[shard], stored.ref.id
        entry = row.of_key(key_digest(stored))
        # of the keys that wait, the row lists only some
        if entry is None and row.aside.count:
            entry = self._aside.read(shard, row.aside.name, [key_digest(stored)]).get(
                key_digest(stored)
            )

        if entry is None:
            return NEVER
        active = entry.active(self._now) and message_id in entry.claimed
        return Receives(entry.receives_of(message_id), entry.until if active else None)

    def _ordered(self, name: str) -> bool:
        """Whether the claims of a topic lie in the rows of its shards."""
        if name not in self._in_row:
            try:
                topic = self._topics.get(name)
            except UnknownTopic:
                self._in_row[name] = False
            else:
                self._in_row[name] = topic.topic.ordering == "key" and not topic.pushed
        return self._in_row[name]


def check_limit(limit: int | None) -> None:
    """Refuse a limit that is not a whole number from 0."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidInput("limit", "a whole number from 0")


def age_ms(older_than: float | timedelta) -> int:
    """Return an age in milliseconds, from seconds or a timedelta."""
    seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 <= seconds < math.inf:
        raise InvalidInput("older_than", "seconds from 0, or a timedelta")
    return round(seconds * 1000)


def _there(stored: StoredMessage) -> StoredMessage | None:
    """Return an item's message as readers see it; None: it is leaving."""
    if stored.gone == "dead":
        # by its mark it is dead; its dead letter comes next
        return replace(stored, lane="dead", gone=None)
    return stored if stored.gone is None else None


def _identity(ref: MessageRef) -> tuple[str, int, int, str]:
    return ref.topic, ref.epoch, ref.shard, ref.id


def _ms(field: str, value: datetime | None, default: float) -> int:
    if value is None:
        return max(0, int(default))
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidInput(field, "a datetime with a time zone")
    return int(value.timestamp() * 1000)


NEVER = Receives()
