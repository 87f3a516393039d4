"""Copies of topics in a process: one row says which of them are out of date."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import UnknownTopic
from fairbox.tables.topic_rows import PRODUCER_COPY_SECONDS
from fairbox.tables.version_row import TopicChanges, read_busiest, read_changes, topic_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.model.clock import Clock
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.topic_rows import TopicTable
    from fairbox.tables.version_row import BusiestTopics

DISPATCHER_COPY_SECONDS: Final = 1.0
MAX_TOPICS: Final = 5_000
"""Topics that a process keeps: some 1.3 KB each. The oldest copy makes room for another."""


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

    def __init__(self, table: TopicTable) -> None:
        self._table = table
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
        return {name: None} | {state.topic.name: state for state in self._table.near(name)}


class DispatcherTopics:
    """A dispatcher's copies: good while the version row does not name them.

    A refresh costs 1 RRU when the last one is over 1 s ago. A copy that a change drops is read
    again (1 RRU) when a message of its topic comes.
    """

    def __init__(self, table: TopicTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._cache = _Cache(table)
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

        self._row = self._table.changes.item()
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

    def __init__(self, table: TopicTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._cache = _Cache(table)
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
        changes = self._table.changes.read()
        kept = self._cache.by_name
        self._cache.follow(changes)
        if first:
            self._cache.by_name = kept
        self._compared = now
