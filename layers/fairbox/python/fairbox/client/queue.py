"""The queue, as consumers and operators of pulled topics use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox.client.outbox import Outbox
from fairbox.client.queue_operations import Operating
from fairbox.dispatch.relay import RECEIVES_LOOK_MS
from fairbox.dynamodb.queue_store import DynamoQueueStore
from fairbox.errors import FairboxError, StaleReceipt, TopicIsPushed
from fairbox.model.clock import milliseconds
from fairbox.model.receipts import Receipt
from fairbox.queue.hint_cache import HintCopies
from fairbox.queue.models import (
    QueueStats,
    Received,
    Taken,
    check_count,
    check_delay,
    check_reason,
    check_visibility,
    check_wait,
)
from fairbox.queue.ordered import Ordered
from fairbox.queue.ordered_settlement import OrderedReturns
from fairbox.queue.settlement import InPlaceReturns, looks_of
from fairbox.queue.unordered import InPlace

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from fairbox.model.bodies import BodyStore
    from fairbox.model.clock import Clock
    from fairbox.model.messages import Message, MessageRef
    from fairbox.model.topics import TopicState
    from fairbox.settings import Settings

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0


class Queue(Operating):
    """Receives the messages of pulled topics, each held by one consumer at a time.

    A message that is neither acknowledged nor given back in time is received again, and after the
    `max_attempts` of its topic's retry policy it is a dead letter; a crash counts as an attempt.
    On topics with `ordering="key"` one message of a key is held at a time, in the order of ids.

    Args:
        dynamodb: boto3's DynamoDB client, or one that has its methods.
        table: name of the outbox table.
        deliveries_table: name of the deliveries table.
        batches_table: name of the batches table, where the dead letters' items are failed; None:
            a message that carries an item is not buried.
        bodies: where bodies lie that do not fit an item; None: such bodies are refused.
        clock, rng: time and chance; the machine's by default.

    Example:
        ```python
        queue = Queue.from_env()
        queue.send(Message(topic="jobs", body=b"{}"))
        for received in queue.receive("jobs", wait=20):
            work(received.message)
            queue.ack(received.receipt)
        ```
    """

    def __init__(
        self,
        dynamodb: Any,
        *,
        table: str,
        deliveries_table: str,
        batches_table: str | None = None,
        bodies: BodyStore | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._begin(
            Outbox(
                dynamodb,
                table=table,
                deliveries_table=deliveries_table,
                batches_table=batches_table,
                bodies=bodies,
                clock=clock,
                rng=rng,
            )
        )

    @classmethod
    def from_env(cls, settings: Settings | None = None) -> Queue:
        """Return the queue that the environment names, over boto3.

        Raises:
            NotConfigured: `FAIRBOX_OUTBOX_TABLE` or `FAIRBOX_DELIVERIES_TABLE` is missing.
        """
        return cls.over(Outbox.from_env(settings))

    @classmethod
    def over(cls, outbox: Outbox) -> Queue:
        """Return a queue over the tables, bodies, clock and chance of an outbox."""
        queue = cls.__new__(cls)
        queue._begin(outbox)  # noqa: SLF001 - another constructor
        return queue

    def _begin(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self._calls = outbox.tables.calls
        self._clock = self._calls.clock
        self._store = DynamoQueueStore(outbox.tables, outbox.bodies)
        self._copies = HintCopies(self._clock)
        self._begin_operating()
        parts = self._store, self._copies, self._clock, self._calls.rng
        self._inplace = InPlace(*parts)
        self._inplace_returns = InPlaceReturns(*parts)
        self._ordered = Ordered(self._store, self._clock, self._calls.rng)
        self._ordered_returns = OrderedReturns(
            self._store, self._ordered.rows, self._clock, self._calls.rng
        )

    def send(self, message: Message) -> MessageRef:
        """Publish one message (1 WRU a KB; 1 more where it is due within the minute).

        Raises:
            As `Outbox.add` does.
        """
        ref = self.outbox.add(message)
        self._announce([ref])
        return ref

    def send_many(self, messages: Iterable[Message]) -> list[MessageRef]:
        """Publish messages, 25 a call, each to the topic that it names.

        Returns:
            The refs, in the order of the messages.

        Raises:
            As `Outbox.add_many` does.
        """
        refs = self.outbox.add_many(messages)
        self._announce(refs)
        return refs

    def _announce(self, refs: Sequence[MessageRef]) -> None:
        """Let somebody look when what is delayed is due; a look comes each minute without it."""
        bound = milliseconds(self._clock) + RECEIVES_LOOK_MS
        due = [(r.topic, r.epoch, r.shard, r.due) for r in refs if r.due and r.due < bound]
        for (topic, epoch), looks in looks_of(due).items():
            for shard in looks:
                self._copies.forget((topic, epoch, shard))
            self._store.lower_looks(topic, epoch, looks)

    def receive(
        self,
        topic: str,
        max_messages: int = 10,
        visibility_timeout: float = 30,
        wait: float = 0,
    ) -> list[Received]:
        """Receive messages, and hold them.

        Args:
            topic: a pulled topic.
            max_messages: at most so many, 1 to 100; fewer are no sign that there are no more.
            visibility_timeout: seconds until others may receive them, over 0 and up to 12 hours.
            wait: seconds to wait for the first message, 0 to 900.

        Returns:
            Messages with their receipts, oldest first as far as one shard gives them.

        Raises:
            InvalidInput: an argument is not what it takes; the error names it.
            UnknownTopic: there is no such topic.
            TopicIsPushed: the topic has subscriptions, so the dispatcher delivers it.
            Throttled, Unavailable: what is held without being known comes back in time.
        """
        wanted = check_count(max_messages)
        visibility = check_visibility(visibility_timeout)
        end = milliseconds(self._clock) + check_wait(wait)
        pause = _FIRST_PAUSE_SECONDS
        while True:
            received = self._receive(self._pulled(topic), wanted, visibility)
            left = (end - milliseconds(self._clock)) / 1000
            if received or left <= 0:
                return received
            self._clock.sleep(min(left, pause * (0.5 + self._calls.rng.random() / 2)))
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _returns(self, receipt: Receipt) -> InPlaceReturns | OrderedReturns:
        return self._ordered_returns if receipt.place == "held" else self._inplace_returns

    def _pulled(self, name: str) -> TopicState:
        topic = self._topic(name)
        if topic.pushed:
            raise TopicIsPushed(name)
        return topic

    def _receive(self, topic: TopicState, wanted: int, visibility: int) -> list[Received]:
        if topic.paused:
            return []
        way = self._ordered if topic.topic.ordering == "key" else self._inplace
        taken = way.receive(topic, wanted, visibility)
        made = (self._received(t) for t in taken)
        return [received for received in made if received is not None]

    def _received(self, taken: Taken) -> Received | None:
        """Return what the consumer gets; None: its body is out of reach, it was given back."""
        receipt = Receipt(taken.stored.ref, taken.place, taken.token, taken.until)
        try:
            message = self._store.fetch_body(taken.stored).message
        except FairboxError as error:
            self._returns(receipt).fail(receipt, None, f"its body: {error}")
            return None
        return Received(message, str(receipt), taken.count, taken.until)

    def ack(self, receipts: str | Iterable[str]) -> None:
        """Acknowledge messages: they are done, and leave (1 WRU each, 25 a call).

        A message that is there no more counts as acknowledged, so that a call may be repeated;
        but not where its time-out was over, for then others may have had it.

        Args:
            receipts: one, or several, of any topics.

        Raises:
            InvalidInput: a receipt is none; nothing was acknowledged.
            StaleReceipt: some hold their messages no more, and changed nothing; `.receipts` names
                them. The others are acknowledged.
            Throttled, Unavailable: some may not be acknowledged; call again with all.
        """
        inplace, ordered = _parsed(receipts)
        stale = self._inplace_returns.ack(inplace) if inplace else []
        stale += self._ordered_returns.ack(ordered) if ordered else []
        _raise_stale(stale)

    def nack(self, receipt: str, delay: float | None = 0, reason: str = "") -> None:
        """Give a message back: it failed, and is received again or, at last, dead.

        Args:
            receipt: of the message.
            delay: seconds until it may be received again, up to 366 days; None: the back-off of
                the topic's retry policy.
            reason: why, of which 200 characters are kept with the message.

        Raises:
            InvalidInput: an argument is not what it takes.
            StaleReceipt: it holds its message no more, and changed nothing.
            Throttled, Unavailable: it may not be given back; then its time-out will end.
        """
        parsed = Receipt.parse(receipt)
        wait = None if delay is None else check_delay(delay)
        self._returns(parsed).fail(parsed, wait, check_reason(reason))

    def bury(self, receipt: str, reason: str = "") -> None:
        """Give a message up: it goes to the dead letters, however often it was received.

        Raises:
            As `nack` does.
        """
        parsed = Receipt.parse(receipt)
        self._returns(parsed).fail(parsed, 0, check_reason(reason), dead=True)

    def extend(self, receipt: str, seconds: float) -> None:
        """Hold a message for so many seconds from now (1 WRU), over 0 and up to 12 hours.

        Raises:
            InvalidInput: an argument is not what it takes.
            StaleReceipt: it holds its message no more, and changed nothing.
        """
        parsed = Receipt.parse(receipt)
        visibility = check_visibility(seconds, field="seconds")
        if not self._returns(parsed).extend(parsed, visibility):
            raise StaleReceipt([receipt])

    def release(self, receipts: str | Iterable[str]) -> None:
        """Give messages back untouched, at once and without counting an attempt.

        For what was received and not begun, when a consumer stops.

        Raises:
            InvalidInput: a receipt is none; nothing was released.
            StaleReceipt: some hold their messages no more; the others are released.
        """
        inplace, ordered = _parsed(receipts)
        stale = self._inplace_returns.release(inplace) if inplace else []
        stale += self._ordered_returns.release(ordered) if ordered else []
        _raise_stale(stale)

    def topic(self, name: str) -> TopicState:
        """Return a pulled topic as it stands, at most 2 s ago.

        Raises:
            UnknownTopic: there is no such topic.
            TopicIsPushed: the topic has subscriptions, so the dispatcher delivers it.
        """
        return self._pulled(name)

    def stats(self, topic: str) -> QueueStats:
        """Return the figures of a topic from its shard rows (1 RRU a shard), never its backlog.

        Raises:
            UnknownTopic: there is no such topic.
        """
        state = self.outbox.topic(topic)
        found = self._store.held_rows([(topic, *shard) for shard in state.shards()])
        now = milliseconds(self._clock)
        in_flight = sum(
            entry.state == "claimed" and entry.until > now
            for _, held in found
            for entry in held.entries
        )
        return QueueStats(
            topic,
            ready=sum(max(0, row.ready) for row, _ in found),
            later=sum(max(0, row.later) for row, _ in found),
            dead=sum(max(0, row.dead) for row, _ in found),
            in_flight=in_flight if state.topic.ordering == "key" else None,
        )


def _parsed(receipts: str | Iterable[str]) -> tuple[list[Receipt], list[Receipt]]:
    """Return receipts of claims in place, and of claims in rows, each once."""
    texts = [receipts] if isinstance(receipts, str) else list(receipts)
    parsed = list(dict.fromkeys(Receipt.parse(text) for text in texts))
    return (
        [r for r in parsed if r.place != "held"],
        [r for r in parsed if r.place == "held"],
    )


def _raise_stale(stale: Sequence[Receipt]) -> None:
    if stale:
        raise StaleReceipt([str(receipt) for receipt in stale])
