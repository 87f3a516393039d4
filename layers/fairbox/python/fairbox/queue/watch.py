"""A watch: what a process knows of a topic's shards while it waits for messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairbox.model.waiting import WaitingRow, slot_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairbox.queue.shard_rotation import Place

FAST_MS: Final = 300
SLOW_MS: Final = 2_130
FAST_SHARE: Final = 50  # when nothing came for 50 s, reads are a second apart
FIRST_BACK_OFF_MS: Final = 1_000
BUSY_MS: Final = 1_000


@dataclass(slots=True)
class Watch:
    """A watch of one topic; times are milliseconds since 1970 UTC.

    Attributes:
        on: whether news are relied on. If not, receives read all shards in turn.
        busy: messages come so fast that receives read all shards, although news are relied on.
        row: the waiting row as it was read last.
        standing_since: since when this process knows that consumers are said to wait.
        read_at: when to read the row again.
        topics_at: when to compare the topic again.
        asked_since: when this process first saw the question that is open.
        distrusted_until: until when news are not relied on, because a message came without.
        failures: failed reads of the row since the last good one.
        began_at: when this process began to wait.
        took_at: when messages were received last.
        fallback_at: when to look at a shard without news.
        suspect: a slot where a message was found without news, and its count of news then.
        looks: by shard when to look at it; a shard that is absent was empty, and had no news since.
        named: shards with news since they were looked at.
    """

    on: bool = False
    busy: bool = False
    row: WaitingRow = field(default_factory=WaitingRow)
    standing_since: int | None = None
    read_at: int = 0
    topics_at: int = 0
    fallback_at: int = 0
    asked_since: int = 0
    distrusted_until: int = 0
    failures: int = 0
    began_at: int = 0
    took_at: int = 0
    looks: dict[Place, int] = field(default_factory=dict)
    named: set[Place] = field(default_factory=set)
    _known: set[Place] = field(default_factory=set)
    suspect: tuple[int, int] | None = None
    _turn: int = 0
    _vain: Counter[Place] = field(default_factory=Counter)

    def begin(self, row: WaitingRow, places: Iterable[Place]) -> None:
        """Rely on news from this row on; every shard is to be looked at once."""
        self.on, self.busy, self.row, self.failures = True, False, row, 0
        self._known = set(places)
        self.looks = dict.fromkeys(self._known, 0)
        self.named.clear()
        self._vain.clear()

    def stop(self) -> None:
        """Rely on news no more."""
        self.on = self.busy = False
        self.standing_since = None
        self.read_at = 0

    def changed(self, row: WaitingRow) -> set[int]:
        """Take the row as it was read now; return the slots that have news."""
        before, self.row = self.row.news, row
        return {slot for slot in {*before, *row.news} if before.get(slot) != row.news.get(slot)}

    def follow(self, places: Iterable[Place], slots: set[int], now: int) -> None:
        """Look at shards with news, and at those that a resize added."""
        there = set(places)
        for place in there:
            if slot_of(place[1]) in slots or place not in self._known:
                self.name(place, now)
        for place in self._known - there:
            self.looks.pop(place, None)
        self._known = there

    def name(self, place: Place, now: int) -> None:
        """Look at a shard now: a message came there, or came back."""
        self.named.add(place)
        self._vain.pop(place, None)
        self.looks[place] = min(now, self.looks.get(place, now))

    def unwatched(self) -> Place | None:
        """Return the next of the shards that are not to be looked at, in turn; None: there is none.

        If it is not empty, news of it were lost.
        """
        found = sorted(self._known - set(self.looks))
        self._turn += 1
        return found[self._turn % len(found)] if found else None

    def due(self, now: int) -> list[Place]:
        """Return the shards to look at, those with news first."""
        found = [(p not in self.named, time, p) for p, time in list(self.looks.items())]
        return [place for _, time, place in sorted(found) if time <= now]

    def empty(self, place: Place) -> None:
        """Note that a shard is empty."""
        self.looks.pop(place, None)
        self._vain.pop(place, None)

    def later(self, place: Place, time: int) -> None:
        """Look at a shard again when something in it may be received."""
        self.looks[place] = time

    def in_vain(self, place: Place, now: int, longest: int) -> None:
        """Look at a shard again after a pause that doubles: nothing could be received."""
        self._vain[place] += 1
        pause = FIRST_BACK_OFF_MS * 2 ** min(10, self._vain[place] - 1)
        self.looks[place] = now + min(longest, pause)

    def took(self, now: int) -> None:
        """Note that messages were received; two times within a second make a process busy."""
        self.busy = self.on and now - self.took_at < BUSY_MS
        self.took_at = now

    def interval(self, now: int) -> int:
        """Return the time between two reads of the row: longer the longer nothing came (ms)."""
        return max(FAST_MS, min(SLOW_MS, (now - self.took_at) // FAST_SHARE))

    def next(self) -> int:
        """Return when something is to be done again."""
        return min([self.read_at, *list(self.looks.values())])
