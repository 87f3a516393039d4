"""Receives of processes that wait: they hear where messages came, and read only those shards.

A process that waits first reads all shards in turn, in rounds. It writes into the topic's waiting
row that somebody waits, and asks for the relay. Once a relay has answered, the relay counts up
there in which shards messages are inserted. Then the process looks at every shard once more, and
after that it reads only the row: 0.5 RRU each time, whatever the number of shards.

Nothing depends on the row. Without an answer, and when the relay stops answering, receives go on in
rounds. Shards that are not empty are looked at when a claim or a delay in them ends, and at least
once a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from fairbox.errors import FairboxError
from fairbox.model.clock import milliseconds
from fairbox.model.deadline import out_of_time
from fairbox.model.waiting import slot_of
from fairbox.queue.lane_heads import LaneHeads
from fairbox.queue.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fairbox.model.clock import Clock
    from fairbox.model.topics import TopicState
    from fairbox.model.waiting import WaitingRow
    from fairbox.queue.ports import WaitingStore
    from fairbox.queue.shard_rotation import Place

VALID_MS: Final = 600_000
RENEW_MS: Final = 300_000
START_MS: Final = 3_000
"""Time until every relay knows that somebody waits, and all messages inserted before are seen."""
ANSWER_MS: Final = 10_000
SKEW_MS: Final = 5_000
TOPICS_MS: Final = 180_000
FALLBACK_MS: Final = 180_000
DISTRUST_MS: Final = 600_000
OLD_MS: Final = 10_000  # of a message whose news should have come
_UNANSWERED_MS: Final = 60_000
_ASKING_MS: Final = 1_000
_FAILURES: Final = 5
_LOOKS_A_STEP: Final = 50
_LONGEST_MS: Final = {"none": 16_000, "key": 2_000}  # between two receives in vain
_AGAIN: Final = 8  # visits of shards that had more in flight than one visit may read
_WIDE: Final = 32  # shards that may be read each second though nothing comes
_QUIET_MS: Final = 60_000

T = TypeVar("T")


class WaitingReceive:
    """Receives for processes that wait.

    Args:
        store: the tables.
        clock: the time.
        pulled: returns a topic as it stood at most a second ago, or raises.
    """

    def __init__(
        self, store: WaitingStore, clock: Clock, pulled: Callable[[str], TopicState]
    ) -> None:
        self._store = store
        self._clock = clock
        self._pulled = pulled
        self._heads = LaneHeads(store, clock)
        self._watches: dict[str, Watch] = {}

    def round(
        self,
        name: str,
        take: Callable[[TopicState, set[Place]], list[T]],
        *,
        again: int = _AGAIN,
    ) -> tuple[TopicState, list[T]]:
        """Read all shards in turn, until one yields messages; return the topic and these.

        Args:
            name: the topic's name.
            take: claims messages of the shards of a set, and takes off it those that it read.
            again: how often a shard is read on if more of it is in flight than one visit may read.
        """
        topic = self._pulled(name)
        left = set(topic.shards())
        visits = len(left) + again
        while left and not topic.paused and visits > 0:
            before = len(left)
            found = take(topic, left)
            if found or out_of_time():
                return topic, found
            visits -= max(1, before - len(left))
            topic = self._pulled(name)
            left &= set(topic.shards())
        return topic, []

    def step(
        self, name: str, take: Callable[[TopicState, set[Place]], list[T]]
    ) -> tuple[list[T], float | None]:
        """Do what is to be done now; return messages, and seconds until the next step.

        Returns:
            The seconds are None if the caller is to choose: all shards were read in vain. A wide
            topic where nothing came for a minute is read more seldom.

        Raises:
            FairboxError: as a receive does.
        """
        watch = self._watches.setdefault(name, Watch())
        if watch.on and not watch.busy:
            return self._watched(name, watch, take), self._pause(watch)
        topic, found = self.round(name, take, again=0)
        watch.began_at = watch.began_at or self._now
        if found:
            watch.took(self._now)
            return found, 0.0
        if watch.on:
            watch.busy, watch.read_at = False, 0
            return [], 0.0
        if not topic.paused:
            self._enter(name, watch, topic)
        if watch.on:
            return [], 0.0
        quiet = self._now - max(watch.took_at, watch.began_at)
        wide = len(topic.shards()) / _WIDE
        return [], wide if wide > 1 and quiet > _QUIET_MS else None

    def touched(self, places: Iterable[tuple[str, int, int]]) -> None:
        """Let this process look at shards in which it put messages, or freed some."""
        for name, *place in places:
            watch = self._watches.get(name)
            if watch is not None and watch.on:
                watch.name((place[0], place[1]), self._now)

    def returned(self, places: Iterable[tuple[str, int, int]]) -> None:
        """Tell others, too, of messages that came back (1 WRU a topic, if somebody waits)."""
        by_topic: dict[str, set[int]] = {}
        for name, epoch, shard in places:
            self.touched([(name, epoch, shard)])
            watch = self._watches.get(name)
            if watch is not None and watch.row.until > self._now:
                by_topic.setdefault(name, set()).add(shard)
        for name, shards in by_topic.items():
            try:
                self._store.tell_waiting(name, shards)
            except FairboxError:
                continue  # they look at shards that are not empty once a minute

    @property
    def _now(self) -> int:
        return milliseconds(self._clock)

    def _pause(self, watch: Watch) -> float:
        return max(0.0, (watch.next() - self._now) / 1000) if watch.on else 0.0

    def _enter(self, name: str, watch: Watch, topic: TopicState) -> None:
        """Begin to rely on news if a relay answers, and has known for a while that we wait."""
        now = self._now
        if now < watch.read_at:
            return
        watch.read_at = now + _ASKING_MS
        row = self._read(name, watch)
        if row is None:
            watch.read_at = now + _UNANSWERED_MS
            return
        watch.row = row
        if row.until <= now:
            watch.standing_since = None
        if row.until < now + RENEW_MS or (row.answered is None and row.asked is None):
            self._ask(name, watch)
        if watch.standing_since is None:
            watch.standing_since = watch.asked_since = now
        if row.asked is not None and now - watch.asked_since > ANSWER_MS:
            watch.read_at = now + _UNANSWERED_MS
        if watch.distrusted_until > now:
            watch.read_at = watch.distrusted_until
        elif row.trusted and now - watch.standing_since >= START_MS:
            watch.begin(row, topic.shards())
            watch.topics_at, watch.fallback_at = now + TOPICS_MS, now + FALLBACK_MS

    def _watched(
        self, name: str, watch: Watch, take: Callable[[TopicState, set[Place]], list[T]]
    ) -> list[T]:
        now = self._now
        if now >= watch.read_at:
            self._hear(name, watch)
        if watch.on and now >= watch.topics_at:
            watch.topics_at = now + TOPICS_MS
            watch.follow(self._pulled(name).shards(), set(), now)
        if watch.on and now >= watch.fallback_at:
            self._fall_back(name, watch)
        if not watch.on or not watch.due(now):
            return []
        topic = self._pulled(name)
        if topic.paused:
            for place in watch.due(now):
                watch.later(place, now + watch.interval(now))
            return []
        return self._look(topic, watch, take)

    def _hear(self, name: str, watch: Watch) -> None:
        """Read the row; stop relying on it if it lapsed, or if no relay answers."""
        now = self._now
        if now + SKEW_MS > watch.row.until:
            watch.stop()  # for a moment nobody may have been told of anything
            return
        watch.read_at = now + watch.interval(now)
        row = self._read(name, watch)
        if row is None:
            if watch.failures >= _FAILURES:
                watch.stop()
            return
        if row.asked is not None and row.asked != watch.row.asked:
            watch.asked_since = now
        unanswered = row.asked is not None and now - watch.asked_since > ANSWER_MS
        if row.answered is None or row.until <= now or unanswered:
            watch.stop()
            return
        if row.until < now + RENEW_MS:
            self._ask(name, watch)
        # the topic first: if it cannot be read, the news are still news at the next step
        topic = self._pulled(name) if row.news != watch.row.news else None
        slots = watch.changed(row)
        if topic is not None:
            watch.follow(topic.shards(), slots, now)

    def _fall_back(self, name: str, watch: Watch) -> None:
        """Look at a shard without news, in turn; if news were lost, rely on them no more."""
        now = self._now
        watch.fallback_at = now + FALLBACK_MS
        if watch.suspect is not None:
            slot, count = watch.suspect
            watch.suspect = None
            if watch.row.news.get(slot, 0) == count:
                watch.distrusted_until = now + DISTRUST_MS
                watch.stop()
                return
        place = watch.unwatched()
        if place is None:
            return
        topic = self._store.topic(name)
        if topic is not None and self._heads.look(topic, place, consistent=False) is not None:
            slot = slot_of(place[1])
            watch.suspect = slot, watch.row.news.get(slot, 0)
            watch.fallback_at = now + OLD_MS
            watch.name(place, now)

    def _look(
        self, topic: TopicState, watch: Watch, take: Callable[[TopicState, set[Place]], list[T]]
    ) -> list[T]:
        """Look at shards, and receive from the first that has something."""
        # of an ordered topic, others' acknowledgements free what is behind
        longest = _LONGEST_MS[topic.topic.ordering]
        for place in watch.due(self._now)[:_LOOKS_A_STEP]:
            if out_of_time():
                return []
            named = place in watch.named
            watch.named.discard(place)
            try:
                time = self._heads.look(topic, place, consistent=named)
            except FairboxError:
                if named:
                    watch.named.add(place)
                raise
            now = self._now
            if place in watch.named:
                continue  # another thread heard news meanwhile
            if time is None:
                watch.empty(place)
            elif time > now:
                watch.later(place, time)
            elif found := take(topic, {place}):
                watch.took(self._now)
                return found
            else:
                watch.in_vain(place, now, longest)
        return []

    def _read(self, name: str, watch: Watch) -> WaitingRow | None:
        try:
            row = self._store.waiting(name)
        except FairboxError:
            watch.failures += 1
            return None
        watch.failures = 0
        return row

    def _ask(self, name: str, watch: Watch) -> None:
        """Write that somebody waits, and ask for the relay."""
        watch.asked_since = self._now
        try:
            self._store.ask_waiting(name, self._now + VALID_MS)
        except FairboxError:
            watch.failures += 1
