"""The heads of a shard's lanes: whether it is empty, or when something in it may be received."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.model.clock import milliseconds

if TYPE_CHECKING:
    from fairbox.dispatch.ports import ShardPage
    from fairbox.model.clock import Clock
    from fairbox.model.stored_messages import StoredMessage
    from fairbox.model.topics import TopicState
    from fairbox.queue.ports import ClaimStore
    from fairbox.queue.shard_rotation import Place

LONGEST_MS: Final = 60_000
"""Time after which a held message is looked at again."""
_ITEMS: Final = 5  # read of a lane: the shard's row, and a few messages


class LaneHeads:
    """Reads the heads of lanes; claims nothing, and writes nothing.

    Args:
        store: the tables.
        clock: the time.
    """

    def __init__(self, store: ClaimStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def look(self, topic: TopicState, place: Place, *, consistent: bool) -> int | None:
        """Return when a message of a shard may be received (ms): now, or later; None: it is empty.

        It costs 0.5 RRU a lane, twice that if consistent. An ordered topic has one lane.
        """
        now = milliseconds(self._clock)
        shard = topic.topic.name, *place
        ready = self._store.read_lane("ready", *shard, limit=_ITEMS, consistent=consistent)
        if topic.topic.ordering == "key":
            return _ordered(ready, now)
        later = self._store.read_lane("later", *shard, limit=_ITEMS, consistent=consistent)
        # lane `later` is in the order of due times: behind held messages others may be due
        behind = later.messages[-1].held_until(now) if later.messages else now
        if _more(ready) or (_more(later) and behind):
            return now
        times = [_time(m, now) for m in (*ready.messages, *later.messages)]
        return min(times, default=None)


def _time(stored: StoredMessage, now: int) -> int:
    """Return when to look at a message again: its holder may give it back before."""
    until = stored.held_until(now)
    return max(stored.ref.due or 0, now) if until is None else min(until, now + LONGEST_MS)


def _more(page: ShardPage) -> bool:
    return page.last is not None or bool(page.unreadable or page.newer)


def _ordered(page: ShardPage, now: int) -> int | None:
    messages = page.before_newer().messages
    if not messages and not _more(page):
        return None
    entries = () if page.held is None else page.held.entries
    held = {
        message_id: entry.until
        for entry in entries
        if entry.state != "acked" and entry.until > now
        for message_id in entry.claimed or (entry.id,)
    }
    if _more(page) or any(m.ref.id not in held for m in messages):
        return now  # free, or behind a held one of its key
    return min([now + LONGEST_MS, *(held[m.ref.id] for m in messages)])
