"""States: a topic as it stands, and its subscriptions with their circuits and pauses. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.model.epochs import Epoch, epoch_at, ref_of
from fairbox.model.topics import EXPIRY_MARGIN_MS, GROUPS, Subscription, Topic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from fairbox.model.messages import Message, MessageRef

CircuitState = Literal["closed", "open", "half-open"]
Admission = Literal["all", "one", "none"]

FAILURES_TO_OPEN: Final = 5
PROBE_MS: Final = 20_000
"""The time for which the answer to a probe is awaited: a call takes 14 s at most."""
QUIET_BASE_SECONDS: Final = 1.0
QUIET_CAP_SECONDS: Final = 900.0
RECHECK_MS: Final = 5_000
"""The time after which a status that others may have changed is read again."""
_REASON_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStatus:
    """The status of a subscription's destination, as its row has it.

    Attributes:
        circuit: `closed`: everything is sent; `open`: nothing is, until `until`; `half-open`: one
            message is on its way as a probe.
        until: open: when the next probe may go; half-open: when this probe counts as lost. In
            milliseconds since 1970 UTC.
        failures: how often the quiet period has grown; 0 while closed.
        since: when the circuit opened (ms).
        reason: the last answer of the destination.
        paused_at: since when it is paused (ms), so that nothing is sent; None: it is not.
        pause_reason: the reason given for the pause.
        version: counts every change, for compare-and-set.
    """

    circuit: CircuitState = "closed"
    until: int = 0
    failures: int = 0
    since: int = 0
    reason: str = ""
    paused_at: int | None = None
    pause_reason: str = ""
    version: int = 0

    @property
    def paused(self) -> bool:
        """Whether somebody paused it."""
        return self.paused_at is not None

    @property
    def ready(self) -> bool:
        """Whether everything is sent."""
        return self.circuit == "closed" and not self.paused

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that operators see: circuit, next probe, error, pause."""
        closed = self.circuit == "closed"
        return {
            "circuit": self.circuit,
            "next_probe_at": None if closed else self.until,
            "error": None if closed else self.reason,
            "paused_at": self.paused_at,
            "pause_reason": self.pause_reason if self.paused else None,
        }

    def admits(self, now: int) -> Admission:
        """Return how many messages may go at `now` (ms): all, one as a probe, or none."""
        if self.paused:
            return "none"
        if self.circuit == "closed":
            return "all"
        return "one" if now >= self.until else "none"

    def is_stale(self, read_at: int, now: int) -> bool:
        """Whether others may have changed it by now, where it was read at `read_at` (ms).

        An open circuit is not probed before its time, and every opening and pause is announced; so
        nothing is read again while it must be quiet.
        """
        if self.paused or self.circuit == "closed":
            return False
        if self.circuit == "half-open":
            return now - read_at >= RECHECK_MS or now >= self.until
        # only once for each probe's time: a copy read after it shows what came of the probe
        return now >= self.until > read_at

    def opened(
        self, now: int, reason: str, rng: Random, *, asked: float | None = None
    ) -> SubscriptionStatus:
        """Return it with an open circuit, quiet for longer each time that a probe fails.

        Args:
            now: milliseconds since 1970 UTC.
            reason: the answer of the destination.
            rng: jitter.
            asked: seconds of quiet that the destination asked for; None: it did not.
        """
        failures = self.failures + 1
        # the power is bounded: a float overflows at 2 to the power of 1,024
        bound = min(QUIET_CAP_SECONDS, QUIET_BASE_SECONDS * 2.0 ** min(failures, 60))
        quiet = QUIET_BASE_SECONDS + rng.random() * (bound - QUIET_BASE_SECONDS)

        return replace(
            self,
            circuit="open",
            # the destination knows best, but 0 would let probes follow one another at once
            until=now + round(1000 * (quiet if asked is None else max(asked, QUIET_BASE_SECONDS))),
            failures=failures,
            # a probe that failed goes on with the same outage
            since=now if self.circuit == "closed" else self.since,
            reason=reason[:_REASON_CHARACTERS],
            version=self.version + 1,
        )

    def undecided(self, now: int) -> SubscriptionStatus:
        """Return it open as before a probe that told nothing about the destination: try another."""
        until = now + round(1000 * QUIET_BASE_SECONDS)
        return replace(self, circuit="open", until=until, version=self.version + 1)

    def probing(self, now: int, rng: Random) -> SubscriptionStatus:
        """Return it with a probe on its way; by chance its own, so that two claims differ."""
        until = now + PROBE_MS + rng.randrange(1000)
        return replace(self, circuit="half-open", until=until, version=self.version + 1)

    def closed(self) -> SubscriptionStatus:
        """Return it with a closed circuit."""
        return SubscriptionStatus(
            paused_at=self.paused_at, pause_reason=self.pause_reason, version=self.version + 1
        )

    def paused_by(self, now: int, reason: str) -> SubscriptionStatus:
        """Return it paused; its circuit is closed, because nothing more is known of it then."""
        return SubscriptionStatus(
            paused_at=now, pause_reason=reason[:_REASON_CHARACTERS], version=self.version + 1
        )

    def reset(self) -> SubscriptionStatus:
        """Return it with its circuit closed; one that never changed stays new."""
        # a row that was never written need not be written for this
        return self.closed() if self.version else self

    def resumed(self) -> SubscriptionStatus:
        """Return it as new: neither paused nor open."""
        return SubscriptionStatus(version=self.version + 1)


NEW: Final = SubscriptionStatus()


@dataclass(frozen=True, slots=True)
class CircuitEvent:
    """A change of a circuit: `opened`, `probed` in vain, `closed`; or the receiver is `gone`.

    Attributes:
        reason: the destination's answer.
        ref: a message of the call that caused it.
        until: opened or probed: when the next probe may go (ms).
        since: when the circuit opened (ms).
    """

    topic: str
    subscription: str
    kind: Literal["opened", "probed", "closed", "gone"]
    reason: str
    ref: MessageRef
    until: int = 0
    since: int = 0


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as it stands: declaration, epochs, subscriptions.

    Attributes:
        topic: the declaration; `topic.shards` is the newest epoch's count.
        epochs: ascending by number and by time.
        subscriptions: ascending by name; empty: the topic is pulled.
        version: grows with every change of the topic row.
        paused: receiving from it gives nothing.
        deleting: since when it takes no messages because it is being deleted, in milliseconds since
            1970 UTC; None: it is not.
        statuses: of its subscriptions by name, as they were when the topic was read.
        widths: of a partitioned queue's logical name: the numbers of partitions that it has had, as
            epochs, since it was resized first; else empty.
    """

    topic: Topic
    epochs: tuple[Epoch, ...]
    subscriptions: tuple[Subscription, ...] = ()
    version: int = 1
    paused: bool = False
    deleting: int | None = None
    statuses: Mapping[str, SubscriptionStatus] = field(default_factory=dict, compare=False)
    widths: tuple[Epoch, ...] = ()

    @property
    def groups(self) -> int:
        """Visits at a time that subscriptions share: eight.

        On ordered topics at most as many as a subscription may have in flight, because there no
        subscription has visits of its own.
        """
        if self.topic.ordering == "none":
            return GROUPS
        limits = [s.max_in_flight for s in self.subscriptions if s.max_in_flight is not None]
        return min([GROUPS, *limits])

    def status(self, name: str) -> SubscriptionStatus:
        """Return how a subscription stood when the topic was read."""
        return self.statuses.get(name, NEW)

    @property
    def pushed(self) -> bool:
        """Whether the dispatcher delivers the topic."""
        return bool(self.subscriptions)

    @property
    def kept_ms(self) -> int | None:
        """Age (ms) from which messages expire, with a margin for clocks; None: they do not.

        Messages of a pushed topic never expire, even if its row has a retention.
        """
        if self.pushed or self.topic.message_retention is None:
            return None
        return self.topic.message_retention * 1000 + EXPIRY_MARGIN_MS

    @property
    def subscription_names(self) -> frozenset[str]:
        """The names of all subscriptions."""
        return frozenset(s.name for s in self.subscriptions)

    def only(self, *names: str) -> TopicState:
        """Return the topic as if it had these subscriptions alone."""
        return replace(self, subscriptions=tuple(s for s in self.subscriptions if s.name in names))

    def subscribed_at(self, ms: int) -> frozenset[str]:
        """Return the names of the subscriptions that were there at a time."""
        return frozenset(s.name for s in self.subscriptions if s.since <= ms)

    def epoch_at(self, ms: int) -> Epoch:
        """Return the epoch that an id's time chooses; the first for times before all."""
        return epoch_at(self.epochs, ms)

    def width_at(self, ms: int) -> Epoch:
        """Return the number of partitions that an id's time chooses, as an epoch's `shards`."""
        count = 1 if self.topic.partition is None else self.topic.partition.count
        return epoch_at(self.widths or (Epoch(0, count, 0),), ms)

    def ref(self, message: Message) -> MessageRef:
        """Return the message's ref: epoch by the id's time, shard by its key."""
        return ref_of(message, self.epochs)

    def shards(self) -> list[tuple[int, int]]:
        """Return every (epoch, shard) that may hold messages, oldest epoch first."""
        return [(e.number, n) for e in self.epochs for n in range(e.shards)]

    def epoch(self, number: int) -> Epoch | None:
        """Return an epoch by its number; None: it is not listed."""
        return next((e for e in self.epochs if e.number == number), None)
