"""The figures of each minute, by topic and of circuits, and the hourly ranking of topics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from fairbox.model.clock import Clock, milliseconds
from fairbox.model.ids import time_of
from fairbox.tables.batch_values import NOTICE_TOPICS
from fairbox.tables.topic_cache import MAX_BUSIEST, TROUBLED, BusiestTopics, ranked

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from fairbox.model.topic_states import SubscriptionStatus, TopicState
    from fairbox.tables.shard_rows import ShardRow
    from fairbox.tables.tables import Tables

MAX_HEADS: Final = 200
OVERDUE_SECONDS: Final = 600.0
"""Age of its oldest message from which a topic is in trouble."""
_HOUR: Final = 3600


@dataclass(slots=True)
class TopicFigures:
    """The figures of one topic.

    Attributes:
        ready, later, dead: messages in each lane, as counted from the stream.
        oldest_age: seconds since the oldest message that was read was due; 0 without any.
    """

    ready: int = 0
    later: int = 0
    dead: int = 0
    oldest_age: float = 0.0

    @property
    def outstanding(self) -> int:
        """Messages in `ready` and `later`."""
        return self.ready + self.later


class CircuitWatch:
    """The subscriptions that are not ready: circuits are open, or they are paused.

    The topics are read (about 0.5 RRU a KB) only if a circuit opened or a pause changed since the
    last time, or a subscription was not ready then: nothing while all is well.

    Args:
        load: reads all topics.
    """

    def __init__(self, load: Callable[[], Iterable[TopicState]]) -> None:
        self._load = load
        self._announced = 0
        self._known: dict[tuple[str, str], SubscriptionStatus] = {}

    def not_ready(self, announced: int) -> dict[tuple[str, str], SubscriptionStatus]:
        """Return the status of subscriptions that are not ready, by (topic, subscription).

        Args:
            announced: the number of circuits opened and pauses changed, up to now.
        """
        if announced != self._announced or self._known:
            self._known = {
                (state.topic.name, name): status
                for state in self._load()
                for name, status in state.statuses.items()
                if not status.ready
            }
            self._announced = announced
        return self._known


def count_outstanding(
    tables: Tables, rows: Iterable[ShardRow], clock: Clock
) -> dict[str, TopicFigures]:
    """Return figures by topic: counts from the rows given, ages from the heads of their lanes.

    It reads `MAX_HEADS` lanes at most, half a unit each: at least one shard of every topic, and
    within a topic the shards whose next check comes first. Notices that nobody has subscribed to
    count for nothing but their dead letters: nobody waits for them.
    """
    figures: dict[str, TopicFigures] = {}
    listed = sorted(rows, key=lambda row: row.next_check or 0)
    notices = {name: tables.topic_cache.get(name) for name in NOTICE_TOPICS}
    unread = {name for name, state in notices.items() if state is not None and not state.pushed}

    for row in listed:
        topic = figures.setdefault(row.topic, TopicFigures())
        topic.dead += max(0, row.dead)
        if row.topic in unread:
            continue
        topic.ready += max(0, row.ready)
        topic.later += max(0, row.later)

    heads = 0
    fair = _in_turns(row for row in listed if row.topic not in unread)
    now = milliseconds(clock)

    for row in fair:
        lanes: tuple[tuple[Literal["ready", "later"], int], ...] = (
            ("ready", row.ready),
            ("later", row.later),
        )
        # a count that may be wrong must hide no message: then both lanes are read
        doubtful = row.odd
        for lane, count in lanes:
            if (count <= 0 and not doubtful) or heads >= MAX_HEADS:
                continue
            heads += 1
            until = now if lane == "later" else None
            page = tables.lanes.page(lane, *row.place, limit=2, until_due=until, consistent=False)
            doubtful |= page.row is not None and page.row.recount is not None
            # the head is the oldest; of a delayed one, the wait begins when it is due
            for stored in page.messages[:1]:
                since = max(time_of(stored.ref.id), stored.ref.due or 0)
                topic = figures[row.topic]
                topic.oldest_age = max(topic.oldest_age, (now - since) / 1000)

    return figures


def rank_topics(
    tables: Tables, clock: Clock, figures: Mapping[str, TopicFigures], failing: Collection[str]
) -> None:
    """Rank the topics if an hour began; otherwise let new and troubled ones join the list.

    It reads and writes nothing while the hour goes on and no topic comes or gets into trouble.

    Args:
        tables: the list and the topics, refreshed.
        clock: tells the hour.
        figures: outstanding and dead messages by topic, and their age.
        failing: topics with an open circuit.
    """
    now = tables.topic_cache.busiest
    hour = int(clock.now() // _HOUR)
    version = tables.topic_cache.version
    troubled = _troubled(figures, failing)

    if hour > now.hour:
        ms = milliseconds(clock)
        delivered = tables.ledger.sample(ms - _HOUR * 1000, ms)
        names = ranked(now.names, tables.topics.names(), delivered, troubled)
        after = BusiestTopics(names, hour, version)
    else:
        after = now
        if now.has_room and version != now.version:
            after = replace(now, version=version).joined(
                sorted(tables.topics.names()), limit=MAX_BUSIEST
            )
        after = after.joined(troubled, limit=MAX_BUSIEST + TROUBLED)

    if after != now:
        tables.topics.write_busiest(after)


def _in_turns(rows: Iterable[ShardRow]) -> list[ShardRow]:
    """Return rows so that topics take turns: the first of each, then the second of each."""
    seen: dict[str, int] = {}
    ranks = []
    for row in rows:
        rank = seen[row.topic] = seen.get(row.topic, 0) + 1
        ranks.append((rank, row))
    return [row for _, row in sorted(ranks, key=lambda pair: pair[0])]


def _troubled(figures: Mapping[str, TopicFigures], failing: Collection[str]) -> list[str]:
    """Return topics whose messages died, are late or cannot be sent; the fullest first."""
    found = {
        topic: counted.outstanding + counted.dead
        for topic, counted in figures.items()
        if topic in failing or counted.dead or counted.oldest_age >= OVERDUE_SECONDS
    }
    found |= {topic: 0 for topic in failing if topic not in found}
    return sorted(found, key=lambda topic: (-found[topic], topic))
