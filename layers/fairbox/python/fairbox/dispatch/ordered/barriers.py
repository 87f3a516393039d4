"""Barriers of ordered topics: dead letters, and older shards, for which a key must wait.

A resize is a barrier between two widths. A new shard's keys lay in other shards before, and their
order spans both. So a caller that takes messages from a new shard asks here which of its keys an
older shard still lists. From 2 s after the resize an empty older lane stays empty, except for
messages committed late; once all are empty, the new shard's row says so, and nobody asks again.

Cost: nothing on topics of one epoch. While older ones are listed, 1 RRU for each older shard that
may list the same keys and was not seen empty (with 8 shards before 32 that is one), then 1 WRU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fairbox.model.clock import Clock, milliseconds
from fairbox.model.epochs import SETTLED_MS, Epoch, partition_name, sharing
from fairbox.model.messages import MessageRef, Shard
from fairbox.tables.deferred_keys import DeferredKey, audience_of, name_digest
from fairbox.tables.stored_messages import StoredMessage, key_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.topic_states import TopicState
    from fairbox.tables.lanes import ShardPage
    from fairbox.tables.tables import Tables

_PAGE: Final = 100
_SHORTEST_MS: Final = 1_000
_LONGEST_MS: Final = 60_000
_KNOWN: Final = 10_000
_KEPT: Final = 100

Place = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Waits:
    """The keys of a shard that wait for older shards.

    Attributes:
        everything: all keys wait: it is too early, or older shards list more than a page.
        keys: digests of the keys that an older shard lists.
        places: the same by subscription: digest of its name, digest of the key.
        again: when to check again, in milliseconds since 1970 UTC; 0: nothing waits.
    """

    everything: bool = False
    keys: frozenset[bytes] = frozenset()
    places: frozenset[Place] = frozenset()
    again: int = 0

    def __bool__(self) -> bool:
        return self.everything or bool(self.keys)

    def hold(self, stored: StoredMessage) -> bool:
        """Whether a message of the shard has to wait, for one subscription at least."""
        return self.everything or (bool(self.keys) and key_digest(stored) in self.keys)

    def until(self, place: Place) -> int:
        """Return when to check a subscription's key again (ms); 0: it does not wait."""
        return self.again if self.everything or place in self.places else 0


NOTHING: Final = Waits()


class ResizeBarrier:
    """Finds the keys of a shard that have to wait."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._empty: set[Shard] = set()  # older shards that were seen empty after the resize
        self._settled: set[Shard] = set()
        self._lists: dict[Shard, tuple[int, Waits]] = {}  # with when they were read (ms)

    def waits(self, topic: TopicState, shard: Shard, *, settled: bool) -> Waits:
        """Return the keys of an ordered topic's shard that wait.

        Args:
            topic: the topic.
            shard: the shard: topic, epoch, number.
            settled: whether its row says that no older shard lists its keys.

        Raises:
            FairboxError: the tables failed; then everything has to wait.
        """
        if settled or shard in self._settled or topic.topic.ordering != "key":
            return NOTHING
        now = milliseconds(self._clock)
        if shard[1] > topic.epochs[-1].number:
            return Waits(everything=True, again=now + _SHORTEST_MS)  # this view is too old for it
        cut, olders = self._olders(topic, shard)
        if olders and now < cut + SETTLED_MS:
            return Waits(everything=True, again=cut + SETTLED_MS)
        return self._check(topic, shard, cut, olders) if olders else NOTHING

    def _check(self, topic: TopicState, shard: Shard, cut: int, olders: list[Shard]) -> Waits:
        """Read the older shards, and write down when all are empty."""
        now = milliseconds(self._clock)
        found = self._listed(topic, olders)
        if found:
            again = now + min(_LONGEST_MS, max(_SHORTEST_MS, (now - cut) // 10))
            return replace(found, again=again)
        if all(older in self._empty for older in olders):
            self._settle(shard)
        return NOTHING

    def _settle(self, shard: Shard) -> None:
        self._tables.rows.settle(*shard)
        if len(self._settled) >= _KNOWN:
            self._settled.clear()
        self._settled.add(shard)

    def _olders(self, topic: TopicState, shard: Shard) -> tuple[int, list[Shard]]:
        """Return the shard's epoch's beginning (ms), and the older shards that share its keys."""
        epoch = topic.epoch(shard[1])
        if epoch is None:
            return 0, []
        return epoch.since, [
            (topic.topic.name, older.number, number)
            for older in topic.epochs
            if older.number < epoch.number
            for number in sharing(shard[2], epoch.shards, older.shards)
        ] + self._partitions(topic, epoch, shard[2])

    def _partitions(self, topic: TopicState, epoch: Epoch, number: int) -> list[Shard]:
        """Return the older shards of other partitions of its queue that share a shard's keys.

        With another number of partitions each of them begins an epoch, so that the epochs before
        hold only messages that were routed by the older number.
        """
        part = topic.topic.partition
        logical = None if part is None else self._tables.topic_cache.get(part.queue)
        if part is None or logical is None or not logical.widths:
            return []

        here = logical.width_at(epoch.since)
        if part.number >= here.shards:
            return []

        others = {
            n
            for older in logical.widths
            if older.number < here.number
            for n in sharing(part.number, here.shards, older.shards)
        }

        states = [
            self._tables.topic_cache.get(partition_name(part.queue, n)) for n in sorted(others)
        ]

        return [
            (state.topic.name, older.number, n)
            for state in states
            if state is not None and state.topic.name != topic.topic.name
            for older in state.epochs
            if older.since < here.since
            for n in sharing(number, epoch.shards, older.shards)
        ]

    def _listed(self, topic: TopicState, olders: list[Shard]) -> Waits:
        """Return the keys that older shards list; everything: more than can be read."""
        found = NOTHING
        for older in olders:
            if older in self._empty:
                continue
            listing = self._known(topic, older)
            if listing.everything:
                return listing
            found = Waits(keys=found.keys | listing.keys, places=found.places | listing.places)
        return found

    def _known(self, topic: TopicState, older: Shard) -> Waits:
        """Return the keys that an older shard lists, at most a second old.

        A key that leaves never returns, so an old list can only hold a key for a second too long.
        """
        now = milliseconds(self._clock)
        at, listing = self._lists.get(older, (0, NOTHING))
        if at <= now < at + _SHORTEST_MS:
            return listing
        listing = self._read(topic, older)
        if len(self._lists) >= _KEPT:
            self._lists.clear()
        self._lists[older] = now, listing
        return listing

    def _read(self, topic: TopicState, older: Shard) -> Waits:
        """Read the keys of an older shard, from its messages and its row.

        A key that waits for its dead letter is only in the row.
        """
        pages = self._pages(topic, older)
        if not pages:
            return Waits(everything=True)

        names = topic.subscription_names
        keys: set[bytes] = set()
        places: set[Place] = set()
        for message in (m for page in pages for m in page.messages):
            key = key_digest(message)
            keys.add(key)
            places |= {(name_digest(name), key) for name in message.lacking(names)}

        head = pages[0]
        # messages between two pages were not read, but the row has their keys
        if len(pages) > 1 and head.claims is not None:
            keys |= {entry.key for entry in head.claims.entries}
        for entry in () if head.deferred is None else head.deferred.entries:
            if len(pages) > 1 or entry.state == "blocked":
                keys.add(entry.key)
                places.add(entry.place)

        if not keys and not any(page.messages or page.unreadable for page in pages):
            if len(self._empty) >= _KNOWN:
                self._empty.clear()
            self._empty.add(older)
        return Waits(keys=frozenset(keys), places=frozenset(places))

    def _pages(self, topic: TopicState, older: Shard) -> list[ShardPage]:
        """Return pages that together show all keys of a lane; none if two are not enough."""
        head = self._tables.lanes.page("ready", *older, limit=_PAGE)
        if head.newer:
            return []  # it may be of any key
        if head.last is None:
            return [head]

        after = _behind_waiting(topic, head)
        if after:
            # up to there each message is held or follows a held one, and the row has those keys
            rest = self._tables.lanes.page("ready", *older, limit=_PAGE, after=after)
            if rest.last is None and not rest.newer:
                return [head, rest]
        return []


def _behind_waiting(topic: TopicState, head: ShardPage) -> str:
    """Return the id up to which a lane's row has all keys; empty: it does not say."""
    if not topic.pushed:
        # keys that wait beside the row are not known
        return "" if head.claims is None or head.claims.aside.count else head.claims.after
    deferred = head.deferred
    if deferred is None or deferred.audience != audience_of(topic.subscription_names):
        return ""
    return "" if any(entry.whole for entry in deferred.entries) else deferred.start


class BlockingLetters:
    """Reads the dead letters of one shard.

    Args:
        topic: the shard's; keys wait for their dead letters only if it says `block`.
        shard: topic, epoch and shard.
    """

    def __init__(self, tables: Tables, topic: TopicState, shard: Shard) -> None:
        self._tables = tables
        self._topic = topic
        self._shard = shard

    def block(self, entry: DeferredKey, *, lying: bool = False) -> bool:
        """Whether a dead letter, or its message if it is `lying`, blocks its key (4 RRU)."""
        if self._topic.topic.on_dead != "block":
            return False
        stored, dead = self._tables.outstanding_or_dead(MessageRef(*self._shard, entry.id))
        if stored is not None and stored.gone == "dead":
            return True
        lacking = frozenset[str]()
        if lying and stored is not None and stored.gone is None:
            lacking = stored.lacking(self._topic.subscription_names)
        pending = frozenset[str]() if dead is None else dead.pending or frozenset()
        return entry.subscription in map(name_digest, lacking | pending)

    def stuck(
        self, entries: Sequence[DeferredKey], found: Sequence[StoredMessage]
    ) -> list[DeferredKey]:
        """Return the blocked entries that must stay although their letters were seen redriven.

        A redriven message may have died again before it was read, or come back after. In its place
        it looks like one that was delivered (4 RRU if it was not found).

        Args:
            entries: the due entries.
            found: their messages that were read, outstanding ones only.
        """
        names = self._topic.subscription_names
        there = {(name_digest(n), m.ref.id) for m in found for n in m.lacking(names)}
        blocked = [e for e in entries if e.state == "blocked"]
        missing = [e for e in blocked if (e.subscription, e.id) not in there]
        return [e for e in missing if self.block(e, lying=True)]
