"""Messages as they lie in the outbox: lane, state by subscription, and the rows beside them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.model.ids import time_of
from fairbox.model.messages import MessageRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.model.messages import Message

Lane = Literal["ready", "later", "dead"]
OpenLane = Literal["ready", "later"]
Shard = tuple[str, int, int]
"""Topic, epoch and number of a shard."""
Gone = Literal["dead", "cancelled", "purged", "expired", "moved"]
MAX_HISTORY: Final = 10
"""Failures of a subscription that a message keeps."""
RECEIVES_CHECK_MS: Final = 60_000
"""Time between two checks of what receives have passed in a shard, at most."""
MAX_CHECK_AHEAD_MS: Final = 120_000
"""A minute, and what clocks may be apart."""
NEVER_MS: Final = 253_402_300_799_000
"""The next check of a shard that holds dead letters only, so that it is listed: 9999-12-31."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that failed: its number from 1, its time (ms), and the destination's answer.

    In an item, all but the last of a subscription have whole seconds and what fits of the answer.
    """

    attempt: int
    at: int
    error: str


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """The state of a message for one subscription that has not simply taken it.

    Attributes:
        attempts: how many were counted.
        due: when the next may be made, in milliseconds since 1970 UTC.
        history: the ten newest failures, oldest first.
        dead: it died for this subscription.
    """

    attempts: int = 0
    due: int = 0
    history: tuple[Failure, ...] = ()
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Offloaded:
    """The place of a body that does not fit an item: the claim check."""

    bucket: str
    key: str

    @property
    def uri(self) -> str:
        """The body's `s3://` address."""
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim that a receive left on a message of an unordered pulled topic.

    Attributes:
        count: how often it was received.
        until: when it may be received (again), in milliseconds since 1970 UTC.
        token: the holder's fencing token; empty: it was given back and has no holder.
        consumer: the name that the holder gave; empty: none.
    """

    count: int
    until: int
    token: bytes = b""
    consumer: str = ""


@dataclass(frozen=True, slots=True)
class Hint:
    """The place where a receive begins in a shard, and when what it passes is checked next.

    All times are in milliseconds since 1970 UTC.

    Attributes:
        after: all ids up to this one were claimed when it was written; empty: begin at the head.
        next_check: when the earliest of those claims ends or a delayed message is due; None: nobody
            has looked yet.
        scan_at: when to scan what lies before `after` from the head; 0: at the next check.
        checked: segments that end up to then have been read.
        later: all delayed messages up to this sort key were claimed when it was written; empty:
            begin at the head.
    """

    after: str = ""
    next_check: int | None = None
    scan_at: int = 0
    checked: int = 0
    later: str = ""

    def check_due(self, now: int) -> bool:
        """Whether the check is due at a time (ms).

        Checks are a minute apart at most: one further off was written under another clock.
        """
        return self.next_check is None or not now < self.next_check <= now + MAX_CHECK_AHEAD_MS

    def scan_due(self, now: int) -> bool:
        """Whether to scan from the head at a time (ms), at most a minute after the last scan."""
        return not now < self.scan_at <= now + MAX_CHECK_AHEAD_MS


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with its place and its state.

    Attributes:
        message: what was published; the body is empty until an offloaded one was fetched.
        ref: its name.
        lane: the lane it lies in.
        size: bytes of the body as published.
        pending: the subscriptions that still lack it; None: all of the topic.
        states: state by subscription, for those that failed.
        gone: why it leaves undelivered; None while it is outstanding.
        reason: given by `cancel`, `purge` or a reader.
        offloaded: where the body lies when it does not lie in the item, fetched or not.
        redriven: how often it was put back from the dead letters.
        claim: who holds it, on unordered pulled topics; None: it was never received.
        edits: how often an operator changed it.
        moved: an operator put it here from another due time.
        skipped: the subscriptions for which an operator skipped it, each with the reason.
        packed: bytes that the body takes in the item; 0: not known, or it lies elsewhere.
        unknown: attributes that this release does not know, by name: they go where it goes.
    """

    message: Message
    ref: MessageRef
    lane: Lane
    size: int
    pending: frozenset[str] | None = None
    states: Mapping[str, SubscriptionState] = field(default_factory=dict)
    gone: Gone | None = None
    reason: str = ""
    offloaded: Offloaded | None = None
    redriven: int = 0
    claim: Claim | None = None
    edits: int = 0
    moved: bool = False
    skipped: Mapping[str, str] = field(default_factory=dict)
    packed: int = field(default=0, compare=False)
    unknown: tuple[tuple[str, Any], ...] = field(default=(), hash=False)

    def claimed_until(self, now: int) -> int | None:
        """Return the time until which it is held (ms); None: it may be received at `now`."""
        return self.claim.until if self.claim is not None and self.claim.until > now else None

    def lacking(self, subscriptions: frozenset[str]) -> frozenset[str]:
        """Return which of the topic's subscriptions still lack the message and are not dead."""
        open_ = subscriptions if self.pending is None else self.pending & subscriptions
        return frozenset(s for s in open_ if not self.state(s).dead)

    def state(self, subscription: str) -> SubscriptionState:
        """Return the state for one subscription; the empty one where nothing failed."""
        return self.states.get(subscription, _FRESH)

    def tried(self, subscriptions: frozenset[str]) -> bool:
        """Whether it is under retry for one of the topic's subscriptions."""
        return any(self.state(name).attempts for name in self.lacking(subscriptions))

    def due(self, subscription: str) -> int:
        """Return when it may be sent to the subscription, in milliseconds since 1970 UTC."""
        return max(self.state(subscription).due, self.ref.due or 0)

    @property
    def holder(self) -> bytes:
        """The fencing token of its claim; empty: nobody holds it, or its key's claim says who."""
        return b"" if self.claim is None else self.claim.token

    @property
    def any_dead(self) -> bool:
        """Whether it died for at least one subscription."""
        return any(state.dead for state in self.states.values())


_FRESH = SubscriptionState()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An entry of lane `dead`: a message with its state, or an item that nothing could read.

    Attributes:
        topic, epoch, shard: where it died.
        id: the message's id; of an unreadable item what its sort key ended in.
        reason: the text of the last failure, or of the reader.
        died_at: when, in milliseconds since 1970 UTC.
        stored: the message with its failures by subscription; None: it cannot be read.
        raw: the unreadable item as JSON; empty where there is a message.
        newer: a newer release can read it: it is to be redriven or purged by that.
    """

    topic: str
    epoch: int
    shard: int
    id: str
    reason: str
    died_at: int
    stored: StoredMessage | None
    raw: str = ""
    newer: bool = False

    @property
    def name(self) -> str:
        """The text that names it: its ref without due time, whatever it holds."""
        return f"{self.topic}/{self.epoch}/{self.shard}/{self.id}"

    @property
    def message(self) -> Message | None:
        """The message, its body maybe still offloaded; None: it cannot be read."""
        return None if self.stored is None else self.stored.message

    @property
    def ref(self) -> MessageRef | None:
        """The message's ref; None: it cannot be read."""
        return None if self.stored is None else self.stored.ref

    @property
    def subscriptions(self) -> frozenset[str]:
        """The subscriptions that it died for."""
        pending = None if self.stored is None else self.stored.pending
        return pending or frozenset()


@dataclass(frozen=True, slots=True)
class ShardRow:
    """The row at the head of a shard's `ready` lane: exact counts and the next check.

    Attributes:
        topic, epoch, shard: which shard.
        ready, later: messages outstanding in each lane.
        ready_deaths, later_deaths: deaths less redrives, counted from each lane's stream.
        ready_sequence, later_sequence: stream sequence number that last changed each lane's count.
        next_check: when the sweep looks, in milliseconds since 1970 UTC; None: nothing is there.
        backoff: seconds by which a visit that could send nothing last moved `next_check` on.
        purged_dead: dead letters purged or cancelled by operators.
        settled: no older shard of an ordered topic lists the shard's keys.
        recount: None: the counts are right as of their sequence numbers; 0: they may be wrong, and
            a recount is asked for; else when one began (ms), and changes are kept for it. An entry
            of the index does not say.
    """

    topic: str
    epoch: int
    shard: int
    ready: int = 0
    later: int = 0
    ready_deaths: int = 0
    later_deaths: int = 0
    ready_sequence: str = ""
    later_sequence: str = ""
    next_check: int | None = None
    backoff: int = 0
    purged_dead: int = 0
    settled: bool = False
    recount: int | None = None

    @property
    def outstanding(self) -> int:
        """Messages in both lanes."""
        return self.ready + self.later

    @property
    def odd(self) -> bool:
        """Whether its counts cannot be right: a negative one, or none where a check is due."""
        negative = self.ready < 0 or self.later < 0
        return negative or (self.outstanding == 0 and self.next_check not in (None, NEVER_MS))

    @property
    def may_hold(self) -> bool:
        """Whether messages may lie in its lanes, as far as its counts can be believed."""
        return self.outstanding > 0 or self.odd

    def doubted(self, now: int) -> ShardRow:
        """Return the row with its counts in doubt, and listed for the next sweep (`now`: ms)."""
        next_check = now if self.next_check is None else min(self.next_check, now)
        return replace(self, recount=0, next_check=next_check)

    @property
    def dead(self) -> int:
        """Messages in the lane `dead`."""
        return self.ready_deaths + self.later_deaths - self.purged_dead

    @property
    def zero(self) -> bool:
        """Whether it counts nothing at all."""
        return (self.ready, self.later, self.dead) == (0, 0, 0)


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


Saved = Literal["saved", "absent", "too large"] | StoredMessage
"""The result of a conditional write: the message as it is, if it differs from what was read."""
