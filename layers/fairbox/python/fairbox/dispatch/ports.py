"""What delivery needs of the world: destinations, doorbells, the store, the archive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fairbox.model.ids import before
from fairbox.model.stored_messages import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairbox.model.deferred_keys import Holds
    from fairbox.model.key_claims import HeldRow
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import Offloaded, ShardRow
    from fairbox.model.topics import Subscription, TopicState

Saved = Literal["saved", "absent"] | StoredMessage
Verdict = Literal["taken", "refused", "throttled", "unreachable", "gone"]
Blame = Literal["destination", "message", "unknown"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a destination made of one message.

    Attributes:
        verdict: `taken`; `refused`: an error or no answer in time, counts an attempt;
            `throttled` or `unreachable`: counts for no message; `gone`: the receiver wants no
            more, and its subscription is paused.
        error: what it said, at most 200 characters.
        retry_after: seconds that it asked for; None: it did not.
        fault: whose a refusal is: the destination's, which then fails all messages alike; the
            message's own; `unknown` where the answer does not say.
    """

    verdict: Verdict
    error: str = ""
    retry_after: float | None = None
    fault: Blame = "unknown"

    @property
    def taken(self) -> bool:
        """Whether the destination has the message."""
        return self.verdict == "taken"

    @property
    def blames(self) -> Blame:
        """Whose fault it is that the message was not taken."""
        return self.fault if self.verdict == "refused" else "destination"


TAKEN = Outcome("taken")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call to a destination takes: messages and bytes of their envelopes."""

    messages: int
    bytes: int


class Destination(Protocol):
    """Somewhere messages go.

    Attributes:
        limits: of one call.
        keeps_order: whether it keeps the order in which calls are made, by partition key.
        quick: whether the relay may call it from the stream (3 s at most a call).
    """

    limits: Limits
    keeps_order: bool
    quick: bool

    def size(self, message: StoredMessage) -> int:
        """Return the bytes that the message takes of the call's limit."""
        ...

    def send(self, messages: Sequence[StoredMessage], timeout: float) -> list[Outcome]:
        """Send in one call what fits the limits, and return one outcome for each, in order.

        Never raises for what a destination does; the messages' bodies are in place.
        """
        ...


class Destinations(Protocol):
    """Opens destinations; keeps what it opened."""

    def open(self, subscription: Subscription) -> Destination:
        """Return the destination of a subscription.

        Raises:
            InvalidInput: the address is none that can be used; the error names the field.
        """
        ...


@dataclass(frozen=True, slots=True)
class Doorbell:
    """Asks for a visit of one shard.

    Attributes:
        topic, epoch, shard: which shard.
        refs: the messages to send; empty: whatever is overdue and due, rung by the sweep.
        not_before: when to ring, in milliseconds since 1970 UTC; 0: now.
        before: where it names none: what was added before this time (ms) too, though it is not
            overdue, once it is no longer the relay's; 0: what is overdue alone.
    """

    topic: str
    epoch: int
    shard: int
    refs: tuple[MessageRef, ...] = ()
    not_before: int = 0
    before: int = 0

    @property
    def repeats(self) -> bool:
        """Whether another one equal to it asks for nothing more: a walk at a time."""
        return not self.refs and self.before > 0 and self.not_before > 0


class Doorbells(Protocol):
    """Rings for visits."""

    def ring(self, doorbells: Sequence[Doorbell]) -> None:
        """Put the doorbells into the queue: those for later with a delay, 15 minutes at most."""
        ...


@dataclass(frozen=True, slots=True)
class ShardPage:
    """What one consistent read of a shard's lanes gave.

    Attributes:
        row: the shard row; None when there is none yet.
        messages: what could be read, in key order.
        unreadable: items that the codec could not read, as they are.
        last: the sort key to go on after; None at the end.
        held: what consumers hold, on ordered pulled topics, where the row was read.
        holds: what visits hold back, on ordered pushed topics, where the row was read.
        newer: the first sort key of what only a newer release can read: it is not among the
            messages, stays where it lies, and on ordered topics nothing behind it may go. Empty:
            there is none.
    """

    row: ShardRow | None
    messages: tuple[StoredMessage, ...]
    unreadable: tuple[Mapping[str, object], ...]
    last: str | None
    held: HeldRow | None = None
    holds: Holds | None = None
    newer: str = ""

    def before_newer(self) -> ShardPage:
        """Return what of an ordered lane's page lies before what only a newer release can read."""
        if not self.newer:
            return self
        messages = tuple(m for m in self.messages if m.ref.id < self.newer)
        return replace(self, messages=messages, last=before(self.newer))


class Store(Protocol):
    """The outbox and the deliveries tables, as delivery uses them."""

    def topic(self, name: str) -> TopicState | None:
        """Return the topic; at most as old as the last `refresh`."""
        ...

    def refresh(self) -> None:
        """Compare the version of the topics when the copy is over 1 s old (1 RRU)."""
        ...

    def fetch_body(self, stored: StoredMessage) -> StoredMessage:
        """Return the message with its offloaded body in place.

        Raises:
            NotConfigured: there is no body store.
            Unavailable: the body could not be read.
        """
        ...

    def read(
        self, refs: Sequence[MessageRef], *, pass_newer: bool = False
    ) -> tuple[list[StoredMessage], list[Mapping[str, object]]]:
        """Return what of these lies in the outbox (consistent), and what is unreadable.

        Raises:
            NewerVersion: only a newer release can read one; with `pass_newer` it is passed over.
        """
        ...

    def read_lane(
        self,
        lane: Literal["ready", "later"],
        topic: str,
        epoch: int,
        shard: int,
        *,
        limit: int,
        after: str | None = None,
        until_due: int | None = None,
        consistent: bool = True,
    ) -> ShardPage:
        """Return a page of a lane from its head; `until_due` bounds lane `later`."""
        ...

    def delete(self, messages: Sequence[StoredMessage]) -> None:
        """Delete what every subscription has taken, 25 a call."""
        ...

    def save_state(self, stored: StoredMessage, before: StoredMessage) -> Saved:
        """Write pending, states, gone and reason where they are as in `before`.

        Returns:
            `saved`; `absent` when the message is not there; the message as it is, when it differs.
        """
        ...

    def delete_unchanged(self, before: StoredMessage) -> Saved:
        """Delete a message whose state is as in `before`; as `save_state`."""
        ...

    def delete_marked(self, stored: StoredMessage) -> None:
        """Delete a message that carries `gone`; nothing where it is gone or was redriven."""
        ...

    def bury(self, stored: StoredMessage, died: frozenset[str]) -> None:
        """Move a message, which the caller has just marked as dead, into lane `dead`.

        A batch item that it carries fails in the same transaction; where it is settled already, was
        never issued, or its batch has ended, the move goes alone.

        Raises:
            BatchBusy: others kept changing the item's group; nothing is written.
            NotConfigured: it carries an item, and there is no batches table.
        """
        ...

    def finish(self, stored: StoredMessage, died: frozenset[str]) -> None:
        """Move a message that somebody marked as dead, as `bury`; nothing where it was moved."""
        ...

    def bury_partly(
        self, stored: StoredMessage, before: StoredMessage, died: frozenset[str]
    ) -> Saved:
        """Bury for these subscriptions and save the state, in one transaction; as `save_state`.

        A batch item fails as with `bury`.
        """
        ...

    def bury_raw(self, item: Mapping[str, object], reason: str) -> None:
        """Put an unreadable item into lane `dead` as it is, and delete it from the outbox."""
        ...

    def look_again(self, row: ShardRow, look_at: int, backoff: int) -> bool:
        """Move `look_at` on when it is as in `row`; return whether it was."""
        ...

    def settle_shard(self, topic: str, epoch: int, shard: int) -> None:
        """Write into a shard's row that no older shard lists its keys, for good (1 WRU)."""
        ...

    def holds(self, shard: tuple[str, int, int]) -> tuple[ShardRow | None, Holds]:
        """Return a shard row and what visits hold back of it (consistent, 1 RRU for 4 KB)."""
        ...

    def write_holds(self, shard: tuple[str, int, int], holds: Holds, version: int) -> Holds | None:
        """Write what visits hold back where the version is this one (1 WRU a KB).

        Returns:
            None when it was written; what is there, when others were faster.
        """
        ...

    def outstanding_or_dead(
        self, ref: MessageRef
    ) -> tuple[StoredMessage | None, StoredMessage | None]:
        """Return a message as it lies in its lane, and as a dead letter, at one time (4 RRU)."""
        ...

    def wake_receives(self, refs: Sequence[MessageRef], *, ordered: bool) -> None:
        """Let receives of pulled topics find messages that lie before where they begin.

        Costs 0.5 RRU for sixteen shards of an unordered topic, and 1 WRU for each shard where
        receives had passed one or look too late; on ordered topics 1 WRU a shard.

        Args:
            refs: of messages that were committed behind younger ones, or are due within the minute.
            ordered: whether their topics are.
        """
        ...

    def due_shards(self) -> Iterator[ShardRow]:
        """Yield the shard rows whose look is due, from the index."""
        ...


class Archive(Protocol):
    """Keeps the history of every message."""

    def write(self, lines: Sequence[bytes]) -> None:
        """Keep these lines (JSON objects without line break), each at least once.

        Raises:
            Unavailable: some were not taken; all may be written again.
        """
        ...


class AckQueue(Protocol):
    """Takes acks of batch items for the function that writes them, coalesced by group."""

    def put(self, bodies: Sequence[str]) -> None:
        """Put messages as `fairbox.batches.ack_messages.pack` writes them into the queue.

        Raises:
            Unavailable: some were not taken; all may be put again.
            NotConfigured: there is no such queue.
        """
        ...


class MarkingStore(Protocol):
    """What marking needs of the tables."""

    def topic(self, name: str) -> TopicState | None:
        """Return the topic; at most as old as the last `refresh`."""
        ...

    def refresh(self) -> None:
        """Compare the version of the topics when the copy is over 1 s old (1 RRU)."""
        ...

    def write_ledger(self, items: Sequence[dict[str, Any]]) -> None:
        """Write ledger rows; a repetition overwrites.

        Raises:
            Unavailable: some were not written; all may be written again.
        """
        ...

    def shard_rows(self, shards: Sequence[tuple[str, int, int]]) -> list[ShardRow]:
        """Return the shard rows that are there (consistent)."""
        ...

    def change_row(self, row: ShardRow, before: ShardRow) -> bool:
        """Write what differs where the row is as `before`; return whether it was."""
        ...

    def expire_body(self, offloaded: Offloaded) -> None:
        """Let an offloaded body expire after its retention.

        Raises:
            Unavailable: the body store did not answer.
        """
        ...
