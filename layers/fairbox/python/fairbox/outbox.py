"""The outbox, as producers and operators use it."""

from __future__ import annotations

import hashlib
import heapq
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from fairbox import listing
from fairbox.clock import milliseconds
from fairbox.codec import names
from fairbox.codec.keys import dedup_key, message_key
from fairbox.codec.messages import message_item, number, read_message
from fairbox.dispatch.ports import Doorbell
from fairbox.dynamodb.bodies import S3Bodies
from fairbox.dynamodb.calls import TransactionCancelled
from fairbox.dynamodb.clients import make_client
from fairbox.dynamodb.doorbells import SqsDoorbells
from fairbox.dynamodb.store import DynamoStore
from fairbox.dynamodb.tables import Tables
from fairbox.dynamodb.topics import IN_FORCE_SECONDS, ProducerTopics
from fairbox.errors import (
    InvalidInput,
    MessagesNotFound,
    MessagesNotWritten,
    NotConfigured,
    UnknownTopic,
    Unreadable,
)
from fairbox.ids import time_of
from fairbox.messages import Message, MessageRef
from fairbox.scanning import parallel_scan
from fairbox.settings import (
    BODIES_BUCKET,
    DELIVERIES_TABLE,
    DOORBELL_QUEUE_URL,
    LATER_QUEUE_URL,
    OUTBOX_TABLE,
    Settings,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Sequence

    from fairbox.bodies import BodyStore
    from fairbox.clock import Clock
    from fairbox.codec.keys import Item
    from fairbox.dispatch.ports import Doorbells
    from fairbox.dynamodb.lanes import OpenLane
    from fairbox.stored import DeadLetter, Delivery, ShardRow, StoredMessage
    from fairbox.topics import Subscription, Topic, TopicState

MAX_TRANSACTION: Final = 100
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep by hand found: overdue messages, their shards, doorbells rung."""

    overdue: int
    shards: int
    rung: int


class Outbox:
    """Publishes messages, in transactions of the caller's or alone, and shows what is outstanding.

    Args:
        dynamodb: boto3's DynamoDB client, or one that has its methods.
        table: name of the outbox table.
        deliveries_table: name of the deliveries table.
        bodies: where bodies go that do not fit an item; None: such bodies are refused.
        doorbells: rings for visits, for `sweep`; None: `sweep` is refused.
        clock, rng: time and jitter; the machine's by default.

    Example:
        ```python
        outbox = Outbox.from_env()
        message = Message(topic="orders", body=b'{"id": 7}', partition_key="customer-42")
        dynamodb.transact_write_items(TransactItems=[put_order, *outbox.transact_items(message)])
        ```
    """

    def __init__(
        self,
        dynamodb: Any,
        *,
        table: str,
        deliveries_table: str,
        bodies: BodyStore | None = None,
        doorbells: Doorbells | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        tables = Tables(dynamodb, outbox=table, deliveries=deliveries_table, clock=clock, rng=rng)
        self._begin(tables, bodies, doorbells)

    def _begin(self, tables: Tables, bodies: BodyStore | None, doorbells: Doorbells | None) -> None:
        self.tables = tables
        self._clock = tables.calls.clock
        self._topics = ProducerTopics(tables.topics, tables.calls)
        self._bodies = bodies
        self._doorbells = doorbells

    @classmethod
    def over(cls, tables: Tables, bodies: BodyStore | None = None) -> Outbox:
        """Return an outbox over tables that are open already."""
        outbox = cls.__new__(cls)
        outbox._begin(tables, bodies, None)  # noqa: SLF001 - another constructor
        return outbox

    @classmethod
    def from_env(cls, settings: Settings | None = None) -> Outbox:
        """Return the outbox that the environment names, over boto3.

        Raises:
            NotConfigured: `FAIRBOX_OUTBOX_TABLE` or `FAIRBOX_DELIVERIES_TABLE` is missing.
        """
        settings = settings or Settings.from_env()
        table = settings.required(OUTBOX_TABLE)
        deliveries = settings.required(DELIVERIES_TABLE)
        bucket = settings.optional(BODIES_BUCKET)
        doorbell, later = (settings.optional(n) for n in (DOORBELL_QUEUE_URL, LATER_QUEUE_URL))
        return cls(
            make_client("dynamodb"),
            table=table,
            deliveries_table=deliveries,
            bodies=S3Bodies(make_client("s3"), bucket) if bucket else None,
            doorbells=SqsDoorbells(make_client("sqs"), doorbell, later) if doorbell else None,
        )

    # topics

    def create_topic(self, topic: Topic) -> TopicState:
        """Create a topic; again with other retry, window or retention brings these up to date.

        Raises:
            TopicConflict: it is there with another ordering or shard count.
        """
        state = self.tables.topics.create(topic)
        self._topics.forget(topic.name)
        return state

    def topic(self, name: str) -> TopicState:
        """Return a topic as it stands now.

        Raises:
            UnknownTopic: there is none of this name.
        """
        state = self.tables.topics.load(name)
        if state is None:
            raise UnknownTopic(name)
        return state

    def topics(self) -> list[TopicState]:
        """Return every topic, by name."""
        return self.tables.topics.all()

    def add_subscription(self, subscription: Subscription) -> None:
        """Add or replace a subscription; it is in force when this returns, 2 s later.

        Raises:
            UnknownTopic: there is no such topic.
        """
        self.add_subscriptions([subscription])

    def add_subscriptions(self, subscriptions: Iterable[Subscription]) -> None:
        """Add or replace several; all are in force when this returns, 2 s after the last.

        Raises:
            UnknownTopic: there is no such topic; those before it in the order are added.
        """
        topics: dict[str, TopicState] = {}
        for subscription in subscriptions:
            before = self.tables.topics.add_subscription(subscription)
            topics.setdefault(subscription.topic, before)
        self._in_force(*topics)
        for state in topics.values():
            if not state.pushed:
                self._look_now(state)

    def _look_now(self, state: TopicState) -> None:
        """Let the next sweep look at the backlog of a topic that has just become pushed."""
        name = state.topic.name
        for row in self.tables.rows.get_many([(name, *shard) for shard in state.shards()]):
            if row.outstanding > 0:
                self.tables.rows.look_again(row, milliseconds(self._clock), 0)

    def remove_subscription(self, topic: str, name: str) -> None:
        """Remove a subscription; it is in force when this returns, 2 s later.

        Raises:
            UnknownSubscription: there is none of this name.
        """
        self.tables.topics.remove_subscription(topic, name)
        self._in_force(topic)

    def _in_force(self, *topics: str) -> None:
        for topic in topics:
            self._topics.forget(topic)
        self._clock.sleep(IN_FORCE_SECONDS)

    # publishing

    def add(self, message: Message) -> MessageRef:
        """Publish one message (1 WRU a KB); again while it is outstanding finds it.

        On a topic with a deduplication window, a `dedup_key` seen within it gives the ref of the
        message that was first.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidInput: an ordered topic takes no delay; BodyTooLarge: no bucket for its body.
            Throttled, Unavailable: nothing is known to be written; try again with the same message.
        """
        state, ref = self._place(message)
        item = self._item(message, ref)
        if self._window(state, message) is None:
            self.tables.lanes.put(item)
            return ref
        return self._add_once(state, message, ref, item)

    def add_many(self, messages: Iterable[Message]) -> list[MessageRef]:
        """Publish messages, 25 a call; messages with a deduplication window go one by one.

        Returns:
            The refs, in the order of the messages.

        Raises:
            MessagesNotWritten: some were not written after all retries; it names them.
        """
        placed = [(m, *self._place(m)) for m in messages]
        refs: list[MessageRef] = [ref for _, _, ref in placed]
        # every item is made before the first is written: a message that is refused stops them all
        made = [self._item(message, ref) for message, _, ref in placed]
        items: dict[tuple[str, str], tuple[Item, MessageRef]] = {}
        for n, ((message, state, ref), item) in enumerate(zip(placed, made, strict=True)):
            if self._window(state, message) is not None:
                refs[n] = self._add_once(state, message, ref, item)
            else:
                items[item[names.PK]["S"], item[names.SK]["S"]] = item, ref
        if items:
            self.tables.lanes.put_many(
                [item for item, _ in items.values()], [ref for _, ref in items.values()]
            )
        return refs

    def transact_items(self, *messages: Message) -> list[dict[str, Any]]:
        """Return the actions that publish these messages in the caller's own transaction.

        A deduplication key seen within its window makes the transaction fail with
        `ConditionalCheckFailed` at its action. An offloaded body is stored by this call.

        Raises:
            InvalidInput: over 100 actions.
            UnknownTopic: there is no such topic.
        """
        return self._actions(messages, by_id=False)

    def _actions(self, messages: Sequence[Message], *, by_id: bool) -> list[dict[str, Any]]:
        """Return the actions; `by_id`: windows begin at the id's time, not now.

        A call that is repeated under its token must be the same to the letter.
        """
        actions: list[dict[str, Any]] = []
        for message in messages:
            state, ref = self._place(message)
            actions.append({"Put": self.tables.lanes.put_action(self._item(message, ref))})
            if self._window(state, message) is not None:
                since = time_of(message.id) // 1000 if by_id else None
                actions.append(self._dedup_action(state, message, ref, since))
        if len(actions) > MAX_TRANSACTION:
            raise InvalidInput("messages", f"at most {MAX_TRANSACTION} actions in a transaction")
        return actions

    def transact(
        self, items: Sequence[dict[str, Any]], *messages: Message, token: str | None = None
    ) -> list[MessageRef]:
        """Write the caller's items and these messages in one transaction, repeated as one.

        Throttling, conflicts and lost answers are retried under one `ClientRequestToken`, so that
        nothing is written twice.

        Args:
            items: `TransactItems` of the caller's own.
            messages: what is published with them.
            token: 1 to 36 characters; give the same one to repeat a call that a crash cut off,
                within ten minutes and with the same items and messages.

        Returns:
            The refs of the messages.

        Raises:
            InvalidInput: over 100 actions.
            TransactionCancelled: a condition did not hold; `.reasons` has one for each action.
            Throttled, Unavailable: whether it is written is not known; repeat it with the token.
        """
        actions = [*items, *self._actions(messages, by_id=token is not None)]
        if not 1 <= len(actions) <= MAX_TRANSACTION:
            raise InvalidInput("items", f"1 to {MAX_TRANSACTION} actions in all")
        arguments: dict[str, Any] = {"TransactItems": actions}
        if token is not None:
            arguments["ClientRequestToken"] = token
        refs = [self._place(message)[1] for message in messages]
        self.tables.calls.call("transact_write_items", **arguments)
        return refs

    def _place(self, message: Message) -> tuple[TopicState, MessageRef]:
        state = self._topics.get(message.topic)
        if message.delay and state.topic.ordering == "key":
            raise InvalidInput("delay", f"none: topic {message.topic!r} is ordered")
        return state, state.ref(message)

    def _item(self, message: Message, ref: MessageRef) -> Item:
        bucket = None if self._bodies is None else self._bodies.bucket
        item, body = message_item(message, ref, bucket=bucket)
        if body is not None and self._bodies is not None:
            self._bodies.put(*body, message.content_type)
        return item

    @staticmethod
    def _window(state: TopicState, message: Message) -> int | None:
        return None if message.dedup_key is None else state.topic.dedup_window

    def _add_once(
        self, state: TopicState, message: Message, ref: MessageRef, item: Item
    ) -> MessageRef:
        put = {"Put": self.tables.lanes.put_action(item)}
        try:
            self.tables.calls.call(
                "transact_write_items",
                TransactItems=[put, self._dedup_action(state, message, ref)],
            )
        except TransactionCancelled as cancelled:
            first = cancelled.reasons[1][1].get(names.DEDUP_REF)
            if first is None and cancelled.reasons[0][0] != "ConditionalCheckFailed":
                raise
            return ref if first is None else MessageRef.parse(first["S"])
        return ref

    def _dedup_action(
        self, state: TopicState, message: Message, ref: MessageRef, since: int | None = None
    ) -> dict[str, Any]:
        now = int(self._clock.now()) if since is None else since
        digest = hashlib.sha256((message.dedup_key or "").encode()).hexdigest()[:32]
        return {
            "Put": {
                "TableName": self.tables.deliveries,
                "Item": dedup_key(message.topic, digest)
                | {
                    names.DEDUP_REF: {"S": str(ref)},
                    names.EXPIRES_AT: number(now + (state.topic.dedup_window or 0)),
                },
                "ConditionExpression": "attribute_not_exists(#pk) OR #x <= :now",
                "ExpressionAttributeNames": {"#pk": names.PK, "#x": names.EXPIRES_AT},
                "ExpressionAttributeValues": {":now": number(now)},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }

    # reading

    def get(self, ref: MessageRef) -> Message | None:
        """Return a message that is outstanding or dead; None when it is neither."""
        stored = self.find(ref)
        return None if stored is None else self.fetch(stored).message

    def find(self, ref: MessageRef) -> StoredMessage | None:
        """Return a message with its lane and state, its body maybe still offloaded."""
        item = self.tables.lanes.get(ref)
        if item is not None and names.GONE not in item:
            return read_message(item)
        dead = self.tables.dead.get(ref)
        return None if dead is None else read_message(dead)

    def get_many(self, refs: Iterable[MessageRef]) -> list[Message]:
        """Return the messages in the order of the refs, outstanding or dead.

        Raises:
            MessagesNotFound: some are neither; it names them in `.missing`.
        """
        wanted = list(refs)
        there = {
            (stored.ref.topic, stored.ref.epoch, stored.ref.shard, stored.ref.id): stored
            for stored in map(read_message, self.tables.lanes.items(wanted))
            if stored.gone is None
        }
        rest = [r for r in wanted if _identity(r) not in there]
        if rest:
            for stored in map(read_message, self.tables.dead.items(list(dict.fromkeys(rest)))):
                there[_identity(stored.ref)] = stored
        missing = [r for r in wanted if _identity(r) not in there]
        if missing:
            raise MessagesNotFound(missing)
        return [self.fetch(there[_identity(r)]).message for r in wanted]

    def fetch(self, stored: StoredMessage) -> StoredMessage:
        """Return the message with its body in place, from S3 where it was offloaded."""
        return DynamoStore(self.tables, self._bodies).fetch_body(stored)

    def outstanding(
        self,
        topic: str | None = None,
        *,
        older_than: float | timedelta | None = None,
        limit: int | None = None,
    ) -> Iterator[Message]:
        """Yield messages of the `ready` lanes.

        Of one topic: consistent, ascending by id across its shards. Across all topics: of those
        shards that the index lists (which trails by half a minute), ascending by id.

        Args:
            topic: the topic; None: all.
            older_than: seconds, or a timedelta: only messages whose id is older.
            limit: at most so many.
        """
        for stored in self.stored("ready", topic, older_than=older_than, limit=limit):
            yield self.fetch(stored).message

    def waiting(self, topic: str, *, limit: int | None = None) -> Iterator[Message]:
        """Yield a topic's delayed messages that are not yet due, ascending by due time."""
        _check_limit(limit)
        now = milliseconds(self._clock)
        given = 0
        for stored in self.stored("later", topic):
            if limit is not None and given >= limit:
                return
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
        """Yield what lies in a lane, with its state; ordered as `outstanding` and `waiting` are."""
        _check_limit(limit)
        upper = "~"
        if older_than is not None:
            upper = _id_bound(milliseconds(self._clock) - _age_ms(older_than))
        if topic is None:
            shards = [(r.topic, r.epoch, r.shard) for r in self.listed() if r.outstanding > 0]
        else:
            state = self._topics.get(topic)
            shards = [(topic, epoch, shard) for epoch, shard in state.shards()]
        page = min(_PAGE, limit or _PAGE)
        walks = [self.tables.lanes.walk(lane, *shard, page=page, upper=upper) for shard in shards]
        merged = heapq.merge(*walks, key=lambda s: (s.ref.due or 0, s.ref.id))
        for n, stored in enumerate(merged):
            if limit is not None and n >= limit:
                return
            yield stored

    def listed(self) -> list[ShardRow]:
        """Return the shard rows that the index `OutstandingAllTopics` lists."""
        return list(self.tables.rows.listed())

    def scan_outstanding(self, *, concurrency: int = 4) -> Iterator[Message]:
        """Yield every message of the table by parallel scan, in no order.

        Args:
            concurrency: segments read at a time, 1 to 64.
        """
        if not 1 <= concurrency <= 64:
            raise InvalidInput("concurrency", "a number from 1 to 64")
        for item in self._scan(concurrency):
            try:
                stored = read_message(item)
            except Unreadable:
                continue
            if stored.gone is None:
                yield self.fetch(stored).message

    def _scan(self, concurrency: int) -> Iterator[Item]:
        return parallel_scan(
            self.tables.calls, self.tables.lanes.scan_arguments, concurrency=concurrency
        )

    def outstanding_count(self, topic: str | None = None, *, limit: int | None = None) -> int:
        """Return how many messages are outstanding: exact, or `limit + 1` when there are more.

        It reads no further than it must: a query of each lane of a topic, a scan for all topics.
        """
        _check_limit(limit)
        bound = None if limit is None else limit + 1
        if topic is None:
            return self.tables.lanes.count_all(limit=bound)
        total = 0
        lanes: tuple[OpenLane, ...] = ("ready", "later")
        for epoch, shard in self._topics.get(topic).shards():
            for lane in lanes:
                rest = None if bound is None else bound - total
                if rest is not None and rest <= 0:
                    return total
                total += self.tables.lanes.count(lane, topic, epoch, shard, limit=rest)
        return total

    def dead(self, topic: str, *, limit: int | None = None) -> Iterator[DeadLetter]:
        """Yield a topic's dead letters, consistent, ascending by id across its shards.

        Bodies that were offloaded still are: `fetch` brings one.

        Args:
            topic: the topic.
            limit: at most so many.

        Raises:
            UnknownTopic: there is no such topic.
        """
        _check_limit(limit)
        page = min(_PAGE, limit or _PAGE)
        yield from islice(listing.dead(self.tables, self._topics.get(topic), page=page), limit)

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
            since: from then on; by default the longest retention, a topic's own or 7 days.
            until: before then; by default now.
            limit: at most so many.
        """
        _check_limit(limit)
        now = self._clock.now()
        retention = self._topics.get(topic).topic.retention if topic else 7 * 86400
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

    # marking

    def mark_delivered(self, refs: Iterable[MessageRef]) -> None:
        """Take messages out of the outbox as delivered, 25 a call; what is gone stays gone.

        Raises:
            MessagesNotWritten: some were not deleted after all retries; it names them.
        """
        wanted = list(dict.fromkeys(refs))
        left = self.tables.lanes.delete([message_key(r) for r in wanted])
        if left:
            keys = [{names.PK: k[names.PK], names.SK: k[names.SK]} for k in left]
            raise MessagesNotWritten([r for r in wanted if message_key(r) in keys])

    def cancel(self, refs: Iterable[MessageRef], *, reason: str = "") -> None:
        """Take messages out of the outbox undelivered (2 WRU each).

        Raises:
            MessagesNotFound: some were not outstanding; `.missing` names them. The rest is
                cancelled.
        """
        wanted = list(dict.fromkeys(refs))
        missing = [r for r in wanted if not self.tables.lanes.mark_gone(r, "cancelled", reason)]
        cancelled = [message_key(r) for r in wanted if r not in missing]
        # whoever meets a marked message finishes the work, so that what is left unprocessed
        # here is cancelled all the same
        self.tables.lanes.delete(cancelled)
        if missing:
            raise MessagesNotFound(missing)

    def sweep(self, *, older_than: float | timedelta = 60, limit: int | None = None) -> SweepResult:
        """Ring for what is overdue, found by scanning the table: it needs no index.

        Args:
            older_than: seconds, or a timedelta, since a message was due.
            limit: at most so many messages.

        Raises:
            NotConfigured: there is no doorbell queue.
        """
        if self._doorbells is None:
            raise NotConfigured(DOORBELL_QUEUE_URL)
        _check_limit(limit)
        bound = milliseconds(self._clock) - _age_ms(older_than)
        overdue = 0
        shards: set[tuple[str, int, int]] = set()
        pushed = {state.topic.name for state in self.topics() if state.pushed}
        for item in self._scan(1):
            if limit is not None and overdue >= limit:
                break
            try:
                ref = read_message(item).ref
            except Unreadable:
                continue
            if ref.topic in pushed and max(time_of(ref.id), ref.due or 0) <= bound:
                overdue += 1
                shards.add((ref.topic, ref.epoch, ref.shard))
        self._doorbells.ring([Doorbell(*shard) for shard in sorted(shards)])
        return SweepResult(overdue, len(shards), len(shards))


def _identity(ref: MessageRef) -> tuple[str, int, int, str]:
    return ref.topic, ref.epoch, ref.shard, ref.id


def _check_limit(limit: int | None) -> None:
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidInput("limit", "a whole number from 0")


def _age_ms(older_than: float | timedelta) -> int:
    seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 <= seconds < math.inf:
        raise InvalidInput("older_than", "seconds from 0, or a timedelta")
    return round(seconds * 1000)


def _id_bound(ms: int) -> str:
    """Return the text above which lie the ids of a millisecond and all after it."""
    text = f"{max(0, ms):012x}"
    return f"{text[:8]}-{text[8:]}"


def _ms(field: str, value: datetime | None, default: float) -> int:
    if value is None:
        return max(0, int(default))
    if value.tzinfo is None:
        raise InvalidInput(field, "a datetime with a time zone")
    return int(value.astimezone(UTC).timestamp() * 1000)
