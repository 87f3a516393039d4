"""Topics, their epochs and retry policies, and their subscriptions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from fairbox.errors import InvalidInput
from fairbox.model.epochs import MAX_PARTITIONS, MAX_SHARDS
from fairbox.model.messages import check_text, check_topic

if TYPE_CHECKING:
    from random import Random


Ordering = Literal["none", "key"]
OnDead = Literal["skip", "block"]
DAY: Final = 24 * 3600
MAX_DEDUP_WINDOW: Final = 30 * DAY
MIN_MESSAGE_RETENTION: Final = 60
MAX_MESSAGE_RETENTION: Final = 3650 * DAY
EXPIRY_MARGIN_MS: Final = 60_000
"""The time that clocks may be apart: a message, or a claim that has ended, stays so much longer."""
MAX_LABEL: Final = 250
MAX_SUBSCRIPTIONS: Final = 100
"""Subscriptions of a topic: a message that fails for all of them still fits its item."""
MIN_WEIGHT: Final = 0.01
MAX_WEIGHT: Final = 100
MAX_MINI_BATCH: Final = 100
MOST_OUTSTANDING: Final = 1_000_000_000
MAX_TENANT_WEIGHTS: Final = 100
_LAST_NAME = re.compile(r"[/:]")
_AFTER_HOST = re.compile(r"[/?#]")
PULL: Final = "pull"  # the subscription's name in the records of pulled topics
GROUPS: Final = 8
"""Visits of one topic at a time, at most."""
MAX_IN_FLIGHT: Final = 1000
IN_FLIGHT: Final = 64
"""Messages that a destination of one message a call has in hand, where nothing else is said."""
_GROUPS_APART: Final = ((16, 1), (32, 2), (128, 4))
MIN_RATE: Final = 0.01
MAX_RATE: Final = 10_000
AWS_SCHEMES: Final = ("sqs", "sns", "events", "kinesis", "lambda")
"""Destinations that are resources of AWS: an ARN, the URL of a queue, or a name."""
SCHEMES: Final = (*AWS_SCHEMES, "https", "http", "topic", "feed")


def _between(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidInput(name, f"a number from {low} to {high}")


def _whole_between(name: str, value: int, low: int, high: int) -> None:
    # a fraction would be written, and no longer read back as a count or as seconds
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(name, f"a whole number from {low} to {high}")


def check_shards(shards: int) -> None:
    """Refuse a shard count that is none.

    Raises:
        InvalidInput: it is not a whole number from 1 to 1,000.
    """
    _whole_between("shards", shards, 1, MAX_SHARDS)


def _tenant_weights(given: Mapping[str, float]) -> Mapping[str, float]:
    if not isinstance(given, Mapping) or len(given) > MAX_TENANT_WEIGHTS:
        raise InvalidInput("tenant_weights", f"at most {MAX_TENANT_WEIGHTS} weights by tenant")
    for tenant, weight in given.items():
        if not check_text("tenant_weights", tenant):
            raise InvalidInput("tenant_weights", "weights by tenant, whose name is not empty")
        _between(f"tenant_weights.{tenant}", weight, MIN_WEIGHT, MAX_WEIGHT)
    return MappingProxyType(dict(given))


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """The repetition of failures: exponential backoff with full jitter, then dead.

    Attributes:
        max_attempts: attempts before a message dies, 1 to 1,000.
        base: seconds that no backoff falls below; the first is up to twice as long.
        cap: seconds that no backoff exceeds.
    """

    max_attempts: int = 10
    base: float = 1.0
    cap: float = 900.0

    def __post_init__(self) -> None:
        _whole_between("retry.max_attempts", self.max_attempts, 1, 1000)
        _between("retry.base", self.base, 0.001, 900)
        _between("retry.cap", self.cap, self.base, 12 * 3600)

    def delay(self, attempt: int, rng: Random) -> float:
        """Return seconds to wait after the attempt (from 1): at least `base`, jittered."""
        # the power is bounded: a float overflows at 2 to the power of 1,024
        bound = min(self.cap, self.base * 2.0 ** min(attempt, 60))
        return self.base + rng.random() * (bound - self.base)


@dataclass(frozen=True, slots=True)
class Partition:
    """The part of a partitioned queue that a topic is.

    Attributes:
        queue: the logical name, which is partition 0's own.
        number: the partition, from 0.
        count: how many partitions there are, or were when it took messages last.
    """

    queue: str
    number: int
    count: int

    def __post_init__(self) -> None:
        check_topic(self.queue)
        _whole_between("partitions", self.count, 1, MAX_PARTITIONS)
        _whole_between("partition", self.number, 0, self.count - 1)


@dataclass(frozen=True, slots=True)
class Topic:
    """A named stream of messages, as a user declares it.

    Attributes:
        name: up to 120 letters, digits, `.`, `_`, `-`.
        shards: units of order and of write throughput, 1 to 1,000.
        ordering: `none`, or `key`: messages of one partition key are delivered in id order.
        retry: the policy for messages that a destination refuses.
        dedup_window: seconds within which a `dedup_key` gives the same ref; None: no window.
        retention: seconds that the ledger keeps deliveries.
        on_dead: of pushed ordered topics, the policy for a key whose message died: `skip`: it goes
            on; `block`: it waits until the dead letter is redriven or gone.
        partition: which part of a partitioned queue it is; None: of none.
        weight: its share of a destination's bytes beside other topics, 0.01 to 100.
        mini_batch: messages that it sends in one turn, 1 to 100.
        tenant_weights: shares of its tenants (by fairness key) beside one another, where they are
            not 1; at most 100.
        message_retention: of pulled topics, seconds, 60 or more, after which the sweep removes
            messages that no consumer has taken; None: messages stay until they are taken. The time
            counts from the id's time or, of a delayed message, from its due time.
        max_outstanding: messages, delayed ones too, past which the topic takes none (`TopicFull`),
            1 to 1,000,000,000; None: no limit. It is not exact: the count trails by half a minute.
            Until then, producers do not see one another's messages, and can pass the limit. They
            follow a change of it within 30 s.
        given: names of the attributes that were given; all others have their defaults.
    """

    name: str
    shards: int = 8
    ordering: Ordering = "none"
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    dedup_window: int | None = None
    retention: int = 7 * DAY
    partition: Partition | None = None
    on_dead: OnDead = "skip"
    weight: float = 1.0
    mini_batch: int = 1
    tenant_weights: Mapping[str, float] = field(default_factory=dict, hash=False)
    message_retention: int | None = None
    max_outstanding: int | None = None
    given: frozenset[str] = field(init=False, compare=False, repr=False)

    def __new__(cls, *values: Any, **named: Any) -> Self:
        """Note the given attributes: an existing topic keeps its others."""
        topic = object.__new__(cls)
        names = (f.name for f in fields(cls))
        given = frozenset(name for name, _ in zip(names, values, strict=False)) | named.keys()
        object.__setattr__(topic, "given", given)
        return topic

    def __post_init__(self) -> None:
        check_topic(self.name)
        check_shards(self.shards)
        _between("weight", self.weight, MIN_WEIGHT, MAX_WEIGHT)
        _whole_between("mini_batch", self.mini_batch, 1, MAX_MINI_BATCH)
        object.__setattr__(self, "tenant_weights", _tenant_weights(self.tenant_weights))

        if self.ordering not in ("none", "key"):
            raise InvalidInput("ordering", "'none' or 'key'")
        if self.on_dead not in ("skip", "block"):
            raise InvalidInput("on_dead", "'skip' or 'block'")
        if self.on_dead == "block" and self.ordering != "key":
            raise InvalidInput("on_dead", "'skip': the topic is not ordered")

        if self.dedup_window is not None:
            _whole_between("dedup_window", self.dedup_window, 1, MAX_DEDUP_WINDOW)

        _whole_between("retention", self.retention, 3600, 3650 * DAY)
        if self.message_retention is not None:
            low, high = MIN_MESSAGE_RETENTION, MAX_MESSAGE_RETENTION
            _whole_between("message_retention", self.message_retention, low, high)
        if self.max_outstanding is not None:
            _whole_between("max_outstanding", self.max_outstanding, 1, MOST_OUTSTANDING)


@dataclass(frozen=True, slots=True)
class Subscription:
    """One destination that gets a topic's messages.

    Attributes:
        topic: the topic's name.
        name: the subscription's own name, up to 64 characters like a topic's.
        destination: `sqs:<queue url>`, `sns:<arn>`, `events:<bus>`, `kinesis:<arn>`,
            `lambda:<arn>`, `https://...`, `topic:<name>`, `feed:<name>`.
        max_attempts: in place of the topic's; None: the topic's.
        timeout: seconds that one call may take, 1 to 14: a visit begins none so late that its time
            limit of 45 s would cut it off.
        max_in_flight: messages of this topic that the destination has in hand at a time, at most;
            1 to 1,000. Where it is given, the subscription of an unordered topic has visits of its
            own. None: 64, if a call takes one message (webhooks, functions); as many as eight
            visits hold in one call each, if a call takes more. On ordered topics: one call of each
            of eight visits.
        rate: messages a second, 0.01 to 10,000, in the long run; in any t seconds at most those of
            t + 4 seconds, because visits may be late. None: as fast as they come.
        weight: the topic's share of this destination's bytes, in place of the topic's own; None:
            the topic's.
        since: when it was added, in milliseconds since 1970 UTC; set by `add_subscription`.
    """

    topic: str
    name: str
    destination: str
    max_attempts: int | None = None
    timeout: float = 10.0
    max_in_flight: int | None = None
    rate: float | None = None
    weight: float | None = None
    since: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        check_topic(self.topic)
        try:
            check_topic(self.name)
        except InvalidInput as error:
            raise InvalidInput("subscription", error.expected) from None

        # records of pulled topics have this name in the place of a subscription's
        if self.name == PULL or len(self.name) > 64:
            raise InvalidInput("subscription", f"at most 64 characters, not {PULL!r}")

        check_text("destination", self.destination, limit=2048)
        scheme, _, rest = self.destination.partition(":")
        if scheme not in SCHEMES or not rest:
            raise InvalidInput("destination", f"one of {', '.join(SCHEMES)}, then ':' and address")

        if self.max_attempts is not None:
            _whole_between("max_attempts", self.max_attempts, 1, 1000)
        _between("timeout", self.timeout, 1, 14)
        if self.max_in_flight is not None:
            _whole_between("max_in_flight", self.max_in_flight, 1, MAX_IN_FLIGHT)
        if self.rate is not None:
            _between("rate", self.rate, MIN_RATE, MAX_RATE)
        if self.weight is not None:
            _between("weight", self.weight, MIN_WEIGHT, MAX_WEIGHT)

    @property
    def groups(self) -> int:
        """Visits apart of it at a time: 1 with up to 16 messages in flight, 2 to 32, 4 to 128, 8.

        Few visits of many calls each take few workers.
        """
        limit = self.max_in_flight or IN_FLIGHT
        return next((groups for most, groups in _GROUPS_APART if limit <= most), GROUPS)

    @property
    def scheme(self) -> str:
        """The destination's kind."""
        return self.destination.partition(":")[0]

    @property
    def label(self) -> str:
        """The destination's short name in metrics: kind and last name; of a URL the host alone."""
        scheme, _, rest = self.destination.partition(":")
        if scheme in ("http", "https"):
            # path and query of a webhook may have keys, and metrics are read by many
            host = _AFTER_HOST.split(rest.lstrip("/"))[0].rpartition("@")[2]
            return f"{scheme}:{host}"[:MAX_LABEL]
        return f"{scheme}:{_LAST_NAME.split(rest)[-1]}"[:MAX_LABEL]
