"""Ports of delivery: destinations, doorbells, the store, the archive and the ack queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairbox.dynamodb.lanes import ShardPage
    from fairbox.model.deferred_keys import DeferredKeys
    from fairbox.model.messages import MessageRef
    from fairbox.model.recounts import LaneMarks
    from fairbox.model.stored_messages import Offloaded, Saved, ShardRow, StoredMessage
    from fairbox.model.topics import Subscription, TopicState
    from fairbox.model.walk_positions import Places, WalkPosition

OVERDUE_MS: Final = 60_000
"""Age from which the sweep, and the visits that it asks for, take a message up."""

Verdict = Literal["taken", "refused", "throttled", "unreachable", "gone"]
Blame = Literal["destination", "message", "unknown"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A destination's answer to one message.

    Attributes:
        verdict: `taken`; `refused`: an error or no answer in time, counts as an attempt;
            `throttled` or `unreachable`: counts for no message; `gone`: the receiver wants no
            more, and its subscription is paused.
        error: the text of its answer, at most 200 characters.
        retry_after: seconds that it asked for; None: it did not.
        fault: the cause of a refusal: the destination, which then fails all messages alike; the
            message; `unknown` if the answer does not say.
        final: of a refusal: the destination can never take the message, which dies at once.
    """

    verdict: Verdict
    error: str = ""
    retry_after: float | None = None
    fault: Blame = "unknown"
    final: bool = False

    @property
    def taken(self) -> bool:
        """Whether the destination has the message."""
        return self.verdict == "taken"

    @property
    def blames(self) -> Blame:
        """The party at fault if the message was not taken."""
        return self.fault if self.verdict == "refused" else "destination"


TAKEN = Outcome("taken")

Outcomes = dict[tuple["MessageRef", str], Outcome]
"""Outcomes by message and subscription."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one call to a destination: messages, and bytes of their envelopes."""

    messages: int
    bytes: int


class Destination(Protocol):
    """A receiver of messages.

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
        """Send messages that fit one call, and return one outcome for each, in order.

        Never raises for a destination's failure; the messages' bodies are in place.
        """
        ...


class Destinations(Protocol):
    """Opens destinations, and keeps them open."""

    def open(self, subscription: Subscription) -> Destination:
        """Return the destination of a subscription.

        Raises:
            InvalidInput: the address is none that can be used; the error names the field.
        """
        ...


@dataclass(frozen=True, slots=True)
class Doorbell:
    """A request for a visit of one shard.

    Attributes:
        topic, epoch, shard: the shard.
        refs: the messages to send; empty: all that are overdue and due, as the sweep asks for.
        not_before: when to visit, in milliseconds since 1970 UTC; 0: now.
        before: without refs: also send messages added before this time (ms) that are not overdue,
            once they are no longer the relay's; 0: only overdue ones.
        subscription: the only subscription to send to, in a visit apart from the others'; empty:
            all that share visits.
        after: without refs: where the walk goes on, `{lane}:{sort key}`; `head:`: at the head;
            `later:`: in lane `later` alone; empty: where the last walk stopped.
        since: of one subscription: where no walk has noted what it lacks, go on with what was added
            or due after this time (ms); 0: with nothing.
        kept: with refs: no walk looks for these messages, so that the doorbell comes again as long
            as their subscriptions are not ready.
    """

    topic: str
    epoch: int
    shard: int
    refs: tuple[MessageRef, ...] = ()
    not_before: int = 0
    before: int = 0
    subscription: str = ""
    after: str = ""
    since: int = 0
    kept: bool = False

    @property
    def repeats(self) -> bool:
        """Whether an equal doorbell is superfluous: it is for a time ahead, and for all messages.

        Its visit finds all that those saw who rang for the same time.
        """
        return not self.refs and self.not_before > 0


class Doorbells(Protocol):
    """The queues of visits."""

    def ring(self, doorbells: Sequence[Doorbell]) -> None:
        """Put the doorbells into the queue: those for later with a delay, 15 minutes at most."""
        ...


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
        """Return those of these messages that lie in the outbox (consistent), and unreadable items.

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
        upto: str | None = None,
        consistent: bool = True,
    ) -> ShardPage:
        """Return a page of a lane; `until_due` bounds lane `later`, `upto` the sort key."""
        ...

    def delete(self, messages: Sequence[StoredMessage]) -> None:
        """Delete messages that every subscription has taken, 25 a call."""
        ...

    def save_state(self, stored: StoredMessage, before: StoredMessage) -> Saved:
        """Write pending, states, gone and reason where they are as in `before`.

        Returns:
            `saved`; `absent` when the message is not there; `too large` when an item would be, and
            nothing was written; the message as it is, when it differs.
        """
        ...

    def delete_unchanged(self, before: StoredMessage) -> Saved:
        """Delete a message whose state is as in `before`; as `save_state`."""
        ...

    def delete_marked(self, stored: StoredMessage) -> None:
        """Delete a message that carries `gone`; no effect if it is gone or was redriven."""
        ...

    def bury(self, stored: StoredMessage, died: frozenset[str]) -> None:
        """Move a message, which the caller has just marked as dead, into lane `dead`.

        A batch item that it carries fails in the same transaction. If the item is settled already,
        was never issued, or its batch has ended, the move goes alone.

        Raises:
            BatchBusy: others kept changing the item's group; nothing is written.
            NotConfigured: it carries an item, and there is no batches table.
        """
        ...

    def finish(self, stored: StoredMessage, died: frozenset[str]) -> None:
        """Move a message that somebody marked as dead, as `bury`; no effect if it was moved."""
        ...

    def bury_partly(
        self,
        stored: StoredMessage,
        before: StoredMessage,
        died: frozenset[str],
        letter: StoredMessage | None = None,
    ) -> Saved:
        """Bury for these subscriptions and save the state, in one transaction; as `save_state`.

        The dead letter is `letter`, by default `stored`. A batch item fails as with `bury`.
        """
        ...

    def bury_raw(self, item: Mapping[str, object], reason: str) -> None:
        """Put an unreadable item into lane `dead` as it is, and delete it from the outbox."""
        ...

    def postpone(self, row: ShardRow, next_check: int, backoff: int) -> bool:
        """Postpone the next check if it is as in `row`; return whether it was."""
        ...

    def walk_position(self, shard: tuple[str, int, int]) -> WalkPosition:
        """Return where walks of a shard go on, eventually consistent (0.5 RRU)."""
        ...

    def move_walk(
        self,
        shard: tuple[str, int, int],
        before: WalkPosition,
        *,
        shared: tuple[Places, str] | None = None,
        apart: Mapping[str, Places | None] | None = None,
    ) -> WalkPosition | None:
        """Write where walks go on, if it is as in `before` (1 WRU).

        Args:
            shard: topic, epoch and number.
            before: the position as it was read.
            shared: the shared places and the digest of their subscriptions; None: they stay.
            apart: places by subscription; None removes them.

        Returns:
            None if it was written; else the position that others wrote.
        """
        ...

    def settle_shard(self, topic: str, epoch: int, shard: int) -> None:
        """Write into a shard's row that no older shard lists its keys, for good (1 WRU)."""
        ...

    def deferred(self, shard: tuple[str, int, int]) -> tuple[ShardRow | None, DeferredKeys]:
        """Return a shard row and the keys that visits hold back (consistent, 1 RRU for 4 KB)."""
        ...

    def write_deferred(
        self, shard: tuple[str, int, int], deferred: DeferredKeys, version: int
    ) -> DeferredKeys | None:
        """Write the keys that visits hold back if the version is this one (1 WRU a KB).

        Returns:
            None if they were written; the row's keys if others were faster.
        """
        ...

    def outstanding_or_dead(
        self, ref: MessageRef
    ) -> tuple[StoredMessage | None, StoredMessage | None]:
        """Return a message in its lane and as a dead letter, read at one time (4 RRU)."""
        ...

    def wake_receives(self, refs: Sequence[MessageRef], *, ordered: bool) -> None:
        """Let receives of pulled topics find messages that lie before their start.

        Costs 0.5 RRU for sixteen shards of an unordered topic, and 1 WRU for each shard in which
        receives had passed a message or would read too late; on ordered topics 1 WRU a shard.

        Args:
            refs: of messages that were committed behind younger ones, or are due within the minute.
            ordered: whether their topics are.
        """
        ...

    def due_shards(self, *, ahead_ms: int = 0) -> Iterator[ShardRow]:
        """Yield the shard rows whose check is due, or will be so soon, from the index."""
        ...


class Archive(Protocol):
    """The history of every message."""

    def write(self, lines: Sequence[bytes]) -> None:
        """Store these lines (JSON objects without line break), each at least once.

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
    """The tables, as marking uses them."""

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
        """Write the differences if the row is as `before`; return whether it was."""
        ...

    def ask_recount(self, shard: tuple[str, int, int]) -> None:
        """Ask for a recount of a shard whose row is in doubt."""
        ...

    def log_changes(
        self,
        row: ShardRow,
        lane: Literal["ready", "later"],
        marks: LaneMarks,
        *,
        first: str,
        last: str,
    ) -> None:
        """Keep, for the row's recount, what changed in a lane between two sequence numbers."""
        ...

    def expire_body(self, offloaded: Offloaded) -> None:
        """Let an offloaded body expire after its retention.

        Raises:
            Unavailable: the body store did not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class GivenUpBatch:
    """Records that a stream reader gave up, or that a function set aside.

    Attributes:
        records: in the order of the stream.
        counted: whether the counts include them.
    """

    records: Sequence[Mapping[str, Any]]
    counted: bool = False


class SetAside(Protocol):
    """A place for stream records that a function cannot handle, from where repair replays them."""

    def keep(self, reason: str, records: Sequence[Mapping[str, Any]]) -> str:
        """Keep records, which are counted already; return the name under which they are kept.

        Raises:
            Unavailable: they are not kept.
        """
        ...
