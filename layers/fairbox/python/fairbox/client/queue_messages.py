"""Messages of pulled topics: sent, received, and settled by their receipts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fairbox.client.queue_context import QueuePart, given_back, leaving
from fairbox.errors import FairboxError, InvalidInput, StaleReceipt
from fairbox.model.clock import seconds_left
from fairbox.model.messages import Message, MessageRef
from fairbox.model.receipts import Receipt, Received, check_consumer
from fairbox.queue.models import (
    Taken,
    check_count,
    check_delay,
    check_reason,
    check_visibility,
    check_wait,
)
from fairbox.queue.ordered_reader import Wanted
from fairbox.tables.stored_messages import fetch_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fairbox.model.topic_states import TopicState
    from fairbox.queue.rotation import Round


class QueueMessages(QueuePart):
    """Sends and receives messages, and settles them."""

    def send(self, message: Message) -> MessageRef:
        """Publish one message (1 WRU a KB; 1 more where it is due within the minute).

        Raises:
            As `Outbox.add` does.
        """
        ref = self.outbox.add(message)
        self._announce([ref])
        return ref

    def send_many(self, messages: Iterable[Message], *, new: bool = False) -> list[MessageRef]:
        """Publish messages, 25 a call, each to the topic that it names.

        Args:
            messages: the messages.
            new: none of them was ever sent; see `Outbox.add_many`.

        Returns:
            The refs, in the order of the messages.

        Raises:
            As `Outbox.add_many` does.
        """
        refs = self.outbox.add_many(messages, new=new)
        self._announce(refs)
        return refs

    def _announce(self, refs: Sequence[MessageRef]) -> None:
        self._context.announce((r.topic, r.epoch, r.shard, r.due) for r in refs if r.due)

    def receive(
        self,
        topic: str,
        max_messages: int = 10,
        visibility_timeout: float = 30,
        wait: float = 0,
        *,
        consumer: str = "",
        max_per_key: int = 1,
        dead: bool = False,
    ) -> list[Received]:
        """Receive messages: claim them for a time.

        A receive reads the shards in turn until one yields messages. It returns none only if all
        shards had none, so that a loop over receives without a wait ends when nothing is left. A
        receive with a wait repeats that after pauses: a tenth of the time for which nothing came,
        from 0.1 s to 2 s, and longer on topics of more than 32 shards.

        Args:
            topic: a pulled topic.
            max_messages: maximum number, 1 to 100. A shorter result says nothing: messages are
                those of one shard, and others may hold more.
            visibility_timeout: seconds until others may receive them, over 0 and up to 12 hours.
            wait: seconds to wait for the first message, 0 to 900.
            consumer: a name, at most 64 characters of ASCII, which lists show with the messages
                that are held. Claims of unordered topics store it; ordered topics do not.
            max_per_key: maximum number of messages of one key, 1 to 100 (ordered topics). Handle
                and acknowledge several in their order. If one fails, or its time-out ends, those
                of its key behind it go back too, uncounted. Keys come before further messages of
                a key, and a message that failed comes alone.
            dead: receive dead letters, also of a pushed or a paused topic, without a wait. `ack`
                purges them as `Outbox.purge_dead` does; `nack`, `release` and a time-out keep them.
                Each shard is read from its oldest on, held ones too, `max_messages` a page (1 RRU
                for 4 KB, at least 1); a claim costs 1 WRU a KB. Unreadable ones are passed over,
                and `consumer` and `max_per_key` have no effect.

        Returns:
            Messages with their receipts; those of one shard are oldest first.

        Raises:
            InvalidInput: an argument is invalid, or a wait for dead letters; the error names it.
            UnknownTopic: there is no such topic.
            TopicIsPushed: the topic has subscriptions, so the dispatcher delivers it.
            Throttled, Unavailable: messages claimed without an answer are visible again after
                their time-out.
        """
        take = self._take(max_messages, visibility_timeout, consumer, max_per_key)
        end = self._context.now + check_wait(wait)

        if dead:
            if wait:
                raise InvalidInput("wait", "0 where dead letters are received")
            state, visibility = self._context.topic(topic), check_visibility(visibility_timeout)
            return self._context.dead_letters.receive(state, max_messages, visibility)

        while True:
            received = self._context.rounds.read(topic, take)
            left = min((end - self._context.now) / 1000, seconds_left())
            if received or left <= 0:
                return received
            # jitter: consumers that wait do not read at the same moments
            pause = self._context.rounds.pause(topic) * (0.75 + self._context.rng.random() / 2)
            self._context.clock.sleep(min(left, pause))

    def poll(
        self,
        topic: str,
        max_messages: int = 10,
        visibility_timeout: float = 30,
        *,
        consumer: str = "",
        max_per_key: int = 1,
    ) -> tuple[list[Received], float]:
        """Do one step of a receive that waits, and return without waiting.

        Repeated calls, with pauses, return the same messages as `receive` with a wait.

        Args:
            topic: a pulled topic.
            max_messages: maximum number, 1 to 100.
            visibility_timeout: seconds until others may receive them, over 0 and up to 12 hours.
            consumer: a name, as `receive` takes it.
            max_per_key: maximum number of messages of one key, as `receive` takes it.

        Returns:
            Messages, and the seconds until the next step.

        Raises:
            As `receive` does.
        """
        take = self._take(max_messages, visibility_timeout, consumer, max_per_key)
        received = self._context.rounds.read(topic, take)
        return received, 0.0 if received else self._context.rounds.pause(topic)

    def _take(
        self, max_messages: int, visibility_timeout: float, consumer: str, max_per_key: int
    ) -> Callable[[TopicState, Round], list[Received]]:
        """Return a function that receives from a set of shards."""
        wanted = Wanted(
            check_count(max_messages),
            check_visibility(visibility_timeout),
            check_count(max_per_key, "max_per_key"),
        )
        name = check_consumer(consumer)

        def take(topic: TopicState, round_: Round) -> list[Received]:
            if topic.topic.ordering == "key":
                taken = self._context.ordered.receive(topic, wanted, round_.left)
            else:
                taken = self._context.unordered.receive(
                    topic, wanted.count, wanted.visibility, name, round_
                )
            made = (self._received(t) for t in taken)
            return [received for received in made if received is not None]

        return take

    def _received(self, taken: Taken) -> Received | None:
        """Return the message for the consumer; None: without its body it was given back."""
        receipt = Receipt(taken.stored.ref, taken.place, taken.token, taken.until)
        try:
            message = fetch_body(self._context.tables.bodies, taken.stored).message
        except FairboxError as error:
            self._context.settlement(receipt).fail(receipt, None, f"its body: {error}")
            return None
        return Received(message, str(receipt), taken.count, taken.until)

    def ack(self, receipts: str | Iterable[str]) -> None:
        """Acknowledge messages: they are done, and are deleted (1 WRU each, 25 a call).

        A message that is already deleted counts as acknowledged, so that a call may be repeated,
        unless its time-out is over, because then another consumer may have received it. The receipt
        of a dead letter that is purged or redriven is stale.

        Args:
            receipts: one receipt, or several, of any topics.

        Raises:
            InvalidInput: a text is not a receipt; nothing was acknowledged.
            StaleReceipt: some no longer hold their messages, or came behind a message of their key
                that is not acknowledged; they changed nothing, and `.receipts` names them. The
                others are acknowledged.
            Throttled, Unavailable: some may not be acknowledged; call again with all.
        """
        inplace, ordered, dead = _parsed(receipts)
        stale = self._context.unordered_settlement.ack(inplace) if inplace else []
        stale += self._context.ordered_settlement.ack(ordered) if ordered else []
        stale += self._context.dead_letters.ack(dead) if dead else []
        _raise_stale(stale)

    def nack(self, receipt: str, delay: float | None = 0, reason: str = "") -> None:
        """Give a failed message back: it is received again, or dead after its last attempt.

        Args:
            receipt: the message's receipt.
            delay: seconds until it may be received again, up to 366 days; None: the back-off of
                the topic's retry policy, and of a dead letter, which stays one, at once.
            reason: the reason; 200 characters of it are kept with the message, but no dead letter.

        Raises:
            InvalidInput: an argument is invalid.
            StaleReceipt: it no longer holds its message, and changed nothing.
            Throttled, Unavailable: the message may not be given back; then its time-out ends.
        """
        parsed = Receipt.parse(receipt)
        wait = None if delay is None else check_delay(delay)
        kept = check_reason(reason)
        if parsed.place == "dead":
            _raise_stale(self._context.dead_letters.hold([parsed], wait or 0, less=0))
            return
        self._context.settlement(parsed).fail(parsed, wait, kept)

    def bury(self, receipt: str | MessageRef, reason: str = "") -> None:
        """Make a message a dead letter, regardless of its number of attempts.

        Args:
            receipt: the message's receipt; or its ref, whether a consumer holds it or not, also
                before it is due.
            reason: the reason; 200 characters of it are kept with the message.

        Raises:
            As `nack` does, and InvalidInput for that of a dead letter; for a ref as `reset` does.
        """
        kept = check_reason(reason)
        if isinstance(receipt, MessageRef):
            change = partial(leaving, gone="dead", reason=kept)
            self._context.by_ref.settle(receipt, change)
            return
        parsed = Receipt.parse(receipt)
        parsed.check_alive()
        self._context.settlement(parsed).fail(parsed, 0, kept, dead=True)

    def extend(self, receipt: str, seconds: float) -> None:
        """Hold a message for so many seconds from now (1 WRU), over 0 and up to 12 hours.

        Raises:
            InvalidInput: an argument is invalid.
            StaleReceipt: it no longer holds its message, and changed nothing.
        """
        self.extend_many([receipt], seconds)

    def extend_many(self, receipts: str | Iterable[str], seconds: float) -> None:
        """Hold messages for so many seconds from now (1 WRU each, 25 a call).

        One write of an ordered topic extends all messages of a shard (1 WRU a KB of its row).

        Args:
            receipts: one receipt, or several, of any topics.
            seconds: over 0 and up to 12 hours.

        Raises:
            InvalidInput: an argument is invalid; nothing was extended.
            StaleReceipt: some no longer hold their messages; the others are extended.
            Throttled, Unavailable: some may not be extended; call again with all.
        """
        inplace, ordered, dead = _parsed(receipts)
        visibility = check_visibility(seconds, field="seconds")
        stale = self._context.unordered_settlement.extend(inplace, visibility) if inplace else []
        stale += self._context.ordered_settlement.extend(ordered, visibility) if ordered else []
        stale += self._context.dead_letters.hold(dead, visibility)
        _raise_stale(stale)

    def release(self, receipts: str | MessageRef | Iterable[str | MessageRef]) -> None:
        """Give messages back at once, without counting an attempt.

        A consumer that stops releases the messages not yet begun. An operator releases the messages
        of a dead consumer by ref. By ref, a message that waits after a failure is due at once;
        other unclaimed messages are unchanged.

        Args:
            receipts: one receipt or ref, or several, of any topics.

        Raises:
            InvalidInput: a text is not a receipt; nothing was released.
            StaleReceipt: some no longer hold their messages; the others are released.
            MessagesNotFound, TopicIsPushed, UnknownTopic: for refs, which come first, as `reset`.
        """
        given = [receipts] if isinstance(receipts, str | MessageRef) else list(receipts)
        inplace, ordered, dead = _parsed(r for r in given if not isinstance(r, MessageRef))
        refs = [r for r in given if isinstance(r, MessageRef)]
        self._context.by_ref.settle(refs, given_back)
        stale = self._context.unordered_settlement.release(inplace) if inplace else []
        stale += self._context.ordered_settlement.release(ordered) if ordered else []
        stale += self._context.dead_letters.hold(dead, 0, less=1)
        _raise_stale(stale)


def _parsed(receipts: str | Iterable[str]) -> tuple[list[Receipt], list[Receipt], list[Receipt]]:
    """Return the receipts of unordered and of ordered topics and of dead letters, each once."""
    texts = [receipts] if isinstance(receipts, str) else list(receipts)
    parsed = list(dict.fromkeys(Receipt.parse(text) for text in texts))
    return (
        [r for r in parsed if r.place in ("ready", "later")],
        [r for r in parsed if r.place == "held"],
        [r for r in parsed if r.place == "dead"],
    )


def _raise_stale(stale: Sequence[Receipt]) -> None:
    if stale:
        raise StaleReceipt([str(receipt) for receipt in stale], [receipt.ref for receipt in stale])
