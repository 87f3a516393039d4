"""Ports of delivery: destinations, doorbells, the archive and the ack queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.model.messages import MessageRef, Shard
    from fairbox.model.topics import Subscription
    from fairbox.tables.stored_messages import StoredMessage

OVERDUE_MS: Final = 60_000
"""Age from which the sweep, and the visits that it asks for, take a message up."""

Verdict = Literal["taken", "refused", "throttled", "unreachable", "gone"]
Blame = Literal["destination", "message", "unknown"]
FROM_HEAD: Final = "head:"
"""`Doorbell.after` of a walk that forgets the shard's position."""


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
        quick: whether the relay may call it from the stream (3 s at most a call).
    """

    limits: Limits
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
        since: of one subscription: if no walk has noted its missing messages, go on with messages
            added or due after this time (ms); 0: with none.
        kept: with refs: no walk looks for these messages, so the doorbell comes again while their
            subscriptions are not ready.
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
    def place(self) -> Shard:
        """The shard."""
        return self.topic, self.epoch, self.shard

    @property
    def repeats(self) -> bool:
        """Whether an equal doorbell is superfluous: it is for a time ahead, and for all messages.

        One visit does the work of all equal doorbells of that time.
        """
        return not self.refs and self.not_before > 0


class Doorbells(Protocol):
    """The queues of visits."""

    def ring(self, doorbells: Sequence[Doorbell]) -> None:
        """Put the doorbells into the queue: those for later with a delay, 15 minutes at most."""
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
