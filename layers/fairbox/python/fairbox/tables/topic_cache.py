"""Copies of topics in a process, and the version row, which says which of them are out of date.

The version row (`!` of `config`) has the latest changes of topics in a ring of slots, and the
busiest topics: those whose figures are written as metrics by topic. CloudWatch bills a metric for
each hour in which it is written. So the list is made once an hour, and within the hour it only
grows, up to a bound: that bounds the metrics of an hour.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import UnknownTopic
from fairbox.tables.calls import Rows, key_condition
from fairbox.tables.keys import (
    CONFIG,
    HEAD,
    Item,
    version_key,
)
from fairbox.tables.stored_messages import number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairbox.model.clock import Clock
    from fairbox.model.topic_states import TopicState
    from fairbox.model.topics import (
        Subscription,
    )

    Near = Callable[[str], list[TopicState]]
    from collections.abc import Iterable

    from fairbox.model.topic_states import SubscriptionStatus

    _Subscribed = list[tuple[Subscription, SubscriptionStatus]]
    from collections.abc import Collection, Sequence

CONFIG_VERSION: Final = "n"  # N, counts every change of a topic or subscription (row `!`)
ANNOUNCED: Final = "an"  # N, counts circuits that opened and pauses that changed (row `!`)
CHANGED_TOPIC: Final = "t"  # B, with a number behind: digest of a topic that changed (row `!`)
CHANGE_NUMBER: Final = "u"  # N, with the same number: `n` plus `an` before that (row `!`)

SLOTS: Final = 24
"""Changes that are kept: with the longest list of busiest topics their row stays under 4 KB."""
_DIGEST_BYTES: Final = 6

BUSIEST: Final = "bt"  # SS, topics whose figures are metrics by topic (row `!`)
RANKED_HOUR: Final = "bh"  # N, hours since 1970 UTC, when these were ranked (row `!`)
RANKED_VERSION: Final = "bv"  # N, the `n` that was seen then, or when some joined (row `!`)

MAX_BUSIEST: Final = 20
"""Topics that an hour begins with, at most."""
TROUBLED: Final = 10
"""Places of them for topics in trouble; and as many more may join within the hour."""
INCUMBENT: Final = 2
"""Factor for a topic that is listed: another must be more than twice as busy to replace it."""
DISPATCHER_COPY_SECONDS: Final = 1.0
MAX_TOPICS: Final = 5_000
"""Topics that a process keeps: some 1.3 KB each. The oldest copy makes room for another."""
PRODUCER_COPY_SECONDS: Final = 30.0


@lru_cache(maxsize=10_000)
def topic_digest(name: str) -> bytes:
    """Return the six bytes that stand for a topic; two that share them drop one copy too many."""
    return hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """Counts of changes, and which topics the latest concerned.

    Attributes:
        version: changes of topics and subscriptions so far.
        announced: circuits opened and pauses changed so far.
        latest: the digest of a change's topic by the number of the change: `total` before it.
    """

    version: int = 0
    announced: int = 0
    latest: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Changes of either kind so far."""
        return self.version + self.announced

    def since(self, earlier: TopicChanges) -> frozenset[bytes] | None:
        """Return the digests of the topics that changed after `earlier`; None: nobody knows.

        Nobody knows where more changes came than are kept, where two writers took one slot, or
        where a release that keeps none made a change.
        """
        if not 0 <= self.total - earlier.total <= SLOTS:
            return None
        try:
            return frozenset(self.latest[n] for n in range(earlier.total, self.total))
        except KeyError:
            return None


def read_changes(item: Mapping[str, Any]) -> TopicChanges:
    """Return the changes of the version row; none where there is no row."""
    version, announced = (
        int(item.get(name, {"N": "0"})["N"]) for name in (CONFIG_VERSION, ANNOUNCED)
    )
    latest = {
        int(item[count]["N"]): bytes(item[topic]["B"])
        for topic, count in map(slot_attributes, range(SLOTS))
        if count in item
    }
    return TopicChanges(version, announced, latest)


def slot_attributes(place: int) -> tuple[str, str]:
    """Return the attributes of a slot: its topic, and the number of the change."""
    return f"{CHANGED_TOPIC}{place}", f"{CHANGE_NUMBER}{place}"


@dataclass(frozen=True, slots=True)
class BusiestTopics:
    """The list, as one row keeps it for all processes.

    Attributes:
        names: the topics, at most `MAX_BUSIEST` + `TROUBLED`.
        hour: hours since 1970 UTC, when they were ranked; -1: never.
        version: the version of the topics that was seen then, or when some joined.
    """

    names: frozenset[str] = frozenset()
    hour: int = -1
    version: int = -1

    @property
    def has_room(self) -> bool:
        """Whether any topic may join, because there were fewer topics than places."""
        return len(self.names) < MAX_BUSIEST

    def joined(self, names: Iterable[str], *, limit: int) -> BusiestTopics:
        """Return the list with these topics too, the first ones first, up to a limit."""
        new = [name for name in names if name not in self.names]
        return replace(self, names=self.names | set(new[: max(0, limit - len(self.names))]))


def ranked(
    listed: Collection[str],
    topics: Collection[str],
    deliveries: Mapping[str, int],
    troubled: Sequence[str],
) -> frozenset[str]:
    """Return the topics to list: those in trouble (the worst first), then the busiest, then any.

    Those that are listed are replaced only by much busier ones, by a sample of recent deliveries.
    """
    there = set(topics)
    # of those in trouble too, the listed ones stay
    first = sorted((t for t in troubled if t in there), key=lambda t: t not in listed)[:TROUBLED]

    def rank(name: str) -> tuple[float, bool, str]:
        weight = deliveries.get(name, 0) * (INCUMBENT if name in listed else 1)
        return -weight, name not in listed, name

    rest = sorted(there - set(first), key=rank)
    return frozenset([*first, *rest][:MAX_BUSIEST])


def busiest_attributes(busiest: BusiestTopics) -> Item:
    """Return the list as attributes; a set that is empty cannot be written and is left out."""
    named = {BUSIEST: {"SS": sorted(busiest.names)}} if busiest.names else {}
    return named | {RANKED_HOUR: number(busiest.hour), RANKED_VERSION: number(busiest.version)}


def read_busiest(item: Mapping[str, Any]) -> BusiestTopics:
    """Return the list of the row; the empty one if topics were never ranked."""
    if RANKED_HOUR not in item:
        return BusiestTopics()
    return BusiestTopics(
        frozenset(item.get(BUSIEST, {"SS": ()})["SS"]),
        int(item[RANKED_HOUR]["N"]),
        int(item[RANKED_VERSION]["N"]),
    )


class ChangesRow(Rows):
    """Reads the row that counts changes of topics, and counts them."""

    def item(self) -> Mapping[str, Any]:
        """Return the row as it is (consistent, 1 RRU); empty: there is none yet."""
        return self._calls.get(self._table, version_key()) or {}

    def read(self, *, consistent: bool = True) -> TopicChanges:
        """Return the counts and the latest changes of topics (1 RRU; 0.5 if not consistent)."""
        # a query, because policies of producers allow no other read of topics
        page = self._calls.call(
            "query",
            TableName=self._table,
            ConsistentRead=consistent,
            **key_condition(CONFIG, "#sk = :sk", sk=HEAD),
        )
        return read_changes(page["Items"][0] if page["Items"] else {})

    def count(self, counter: str, topic: str) -> dict[str, Any]:
        """Return the update that counts a change of a topic (0.5 RRU to choose its slot)."""
        # an old count only chooses a slot that others take too: readers see that one is missing
        return change_update(self._table, counter, topic, self.read(consistent=False))


def change_update(table: str, counter: str, topic: str, before: TopicChanges) -> dict[str, Any]:
    """Return the update that counts a change of a topic, for the transaction that makes it.

    It has no condition, so that changes never hinder each other. `before` only chooses the slot:
    two writers that saw the same count take the same slot, and readers find the first one missing.
    The counter is `CONFIG_VERSION` or `ANNOUNCED`.
    """
    changed, count = slot_attributes(before.total % SLOTS)

    return {
        "TableName": table,
        "Key": version_key(),
        # operands are values before the update: the number is the total without this change
        "UpdateExpression": "SET #t = :t, "
        "#k = if_not_exists(#n, :none) + if_not_exists(#a, :none) ADD #c :one",
        "ExpressionAttributeNames": {
            "#t": changed,
            "#k": count,
            "#n": CONFIG_VERSION,
            "#a": ANNOUNCED,
            "#c": counter,
        },
        "ExpressionAttributeValues": {
            ":t": {"B": topic_digest(topic)},
            ":none": number(0),
            ":one": number(1),
        },
    }


@dataclass(frozen=True, slots=True)
class _Cached:
    """A copy of a topic.

    Attributes:
        state: None: there is no such topic.
        stamp: of a dispatcher, the topic's `stamp` before it was read.
        at: of a producer, when it was read.
        compared: of a producer, whether changes since then are known.
    """

    state: TopicState | None
    stamp: int = 0
    at: float = 0.0
    compared: bool = False


class _Cache:
    """Copies by name, at most `MAX_TOPICS`, and the changes up to which they are right.

    Changes of other topics keep a copy. A change of the copies makes a new dictionary: a row that
    another thread is just reading goes into the old one, and never outlives its change.
    """

    def __init__(self, near: Near) -> None:
        self._near = near
        self._lock = threading.Lock()
        self.by_name: dict[str, _Cached] = {}
        self.changes: TopicChanges | None = None

    def follow(self, changes: TopicChanges) -> frozenset[bytes] | None:
        """Drop the copies of topics that changed; return their digests, None: any may have."""
        changed = None if self.changes is None else changes.since(self.changes)

        with self._lock:
            if changed is None:
                self.by_name = {}
            elif changed:
                self.by_name = {
                    name: cached
                    for name, cached in self.by_name.items()
                    if topic_digest(name) not in changed
                }
            self.changes = changes
        return changed

    def keep(self, by_name: dict[str, _Cached], topics: Mapping[str, _Cached]) -> None:
        """Put copies into the dictionary that was there before they were read."""
        with self._lock:
            by_name |= topics
            while len(by_name) > MAX_TOPICS:
                # a dictionary keeps the order in which copies came
                del by_name[next(iter(by_name))]

    def drop(self, name: str) -> None:
        """Drop one copy."""
        with self._lock:
            self.by_name = {n: cached for n, cached in self.by_name.items() if n != name}

    def read(self, name: str) -> dict[str, TopicState | None]:
        """Read a topic, and those behind it that cost nothing more; None: there is no such."""
        return {name: None} | {state.topic.name: state for state in self._near(name)}


class DispatcherTopics:
    """A dispatcher's copies: good while the version row does not name them.

    A refresh costs 1 RRU when the last one is over 1 s ago. A copy that a change drops is read
    again (1 RRU) when a message of its topic comes.
    """

    def __init__(self, changes: ChangesRow, near: Near, clock: Clock) -> None:
        self._changes = changes
        self._clock = clock
        self._cache = _Cache(near)
        self._checked = float("-inf")
        self._row: Mapping[str, Any] = {}
        self._stamps: dict[bytes, int] = {}
        self._floor = 0

    @property
    def busiest(self) -> BusiestTopics:
        """The topics whose figures are metrics by topic, at the last refresh."""
        return read_busiest(self._row)

    @property
    def version(self) -> int:
        """The number of changes of topics and subscriptions, at the last refresh."""
        return -1 if self._cache.changes is None else self._cache.changes.version

    @property
    def announced(self) -> int:
        """The number of opened circuits and changed pauses, at the last refresh."""
        return 0 if self._cache.changes is None else self._cache.changes.announced

    def refresh(self) -> None:
        """Compare the version row when the last time is over 1 s ago; drop old copies."""
        now = self._clock.now()
        # a negative time: the clock was set back, so the row is read now
        if 0 <= now - self._checked <= DISPATCHER_COPY_SECONDS:
            return

        self._row = self._changes.item()
        changes = read_changes(self._row)
        changed = self._cache.follow(changes)

        # nobody knows which changed, or the stamps are too many: all topics count as changed
        if changed is None or len(self._stamps) > MAX_TOPICS:
            self._floor, self._stamps = changes.total, {}
        elif changed:
            self._stamps = self._stamps | dict.fromkeys(changed, changes.total)

        self._checked = now

    def stamp(self, name: str) -> int:
        """Return a number that differs once the topic may have changed, at the last refresh."""
        return max(self._floor, self._stamps.get(topic_digest(name), 0))

    def get(self, name: str) -> TopicState | None:
        """Return the topic as of the last refresh; None when there is none."""
        return self.with_stamp(name)[0]

    def with_stamp(self, name: str) -> tuple[TopicState | None, int]:
        """Return the topic, and its `stamp` as it was before the topic was read."""
        by_name = self._cache.by_name
        cached = by_name.get(name)
        if cached is None:
            # before the read: a change meanwhile makes the copy look old, never new
            stamps, floor = self._stamps, self._floor
            topics = {
                found: _Cached(state, max(floor, stamps.get(topic_digest(found), 0)))
                for found, state in self._cache.read(name).items()
            }
            cached = topics[name]
            self._cache.keep(by_name, topics)
        return cached.state, cached.stamp


class ProducerTopics:
    """A producer's copies: each read or compared at most 30 s ago when it is used.

    One row says which topics changed, so that a producer of many topics pays 1 RRU in 30 s, not one
    for each topic.
    """

    def __init__(self, changes: ChangesRow, near: Near, clock: Clock) -> None:
        self._changes = changes
        self._clock = clock
        self._cache = _Cache(near)
        self._compared = float("-inf")

    def get(self, name: str) -> TopicState:
        """Return the topic.

        Raises:
            UnknownTopic: there is none of this name.
        """
        now = self._clock.now()
        cached = self._cache.by_name.get(name)
        if cached is None or not self._fresh(cached, now):
            cached = self._renewed(name, now)
        if cached.state is None:
            raise UnknownTopic(name)
        return cached.state

    def forget(self, name: str) -> None:
        """Drop the copy, after a change made here."""
        self._cache.drop(name)

    def _fresh(self, cached: _Cached, now: float) -> bool:
        at = max(cached.at, self._compared) if cached.compared else cached.at
        return 0 <= now - at < PRODUCER_COPY_SECONDS

    def _renewed(self, name: str, now: float) -> _Cached:
        """Compare the version row, unless that was done lately; read the topic if need be."""
        if self._cache.by_name and not 0 <= now - self._compared < PRODUCER_COPY_SECONDS:
            self._compare(now)
            cached = self._cache.by_name.get(name)
            if cached is not None and self._fresh(cached, now):
                return cached

        # before the read: a change meanwhile replaces this dictionary, and the copy goes with it
        by_name = self._cache.by_name
        compared = self._cache.changes is not None
        topics = {
            found: _Cached(state, at=now, compared=compared)
            for found, state in self._cache.read(name).items()
        }

        cached = topics[name]
        if cached.state is None:
            del topics[name]  # whoever creates the topic may use it at once
            self._cache.drop(name)

        self._cache.keep(by_name, topics)
        return cached

    def _compare(self, now: float) -> None:
        """Drop the copies that changed; the first time all stay: changes are not yet known."""
        first = self._cache.changes is None
        changes = self._changes.read()
        kept = self._cache.by_name
        self._cache.follow(changes)
        if first:
            self._cache.by_name = kept
        self._compared = now
