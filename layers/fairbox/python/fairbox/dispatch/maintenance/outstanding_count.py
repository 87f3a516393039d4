"""The outstanding count and oldest age by topic, from the index and the heads of its lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from fairbox.model.clock import milliseconds
from fairbox.model.ids import time_of
from fairbox.tables.batch_values import NOTICE_TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairbox.model.clock import Clock
    from fairbox.tables.shard_rows import ShardRow
    from fairbox.tables.tables import Tables

MAX_HEADS: Final = 200


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
    unread = {name for name in NOTICE_TOPICS if _unread(tables, name)}

    for row in listed:
        topic = figures.setdefault(row.topic, TopicFigures())
        topic.dead += max(0, row.dead)
        if row.topic in unread:
            continue
        topic.ready += max(0, row.ready)
        topic.later += max(0, row.later)

    heads = 0
    fair = sorted(
        _ranked(row for row in listed if row.topic not in unread), key=lambda pair: pair[0]
    )
    now = milliseconds(clock)

    for _, row in fair:
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


def _unread(tables: Tables, name: str) -> bool:
    """Whether a topic has no subscription."""
    state = tables.topic_cache.get(name)
    return state is not None and not state.pushed


def _ranked(rows: Iterable[ShardRow]) -> list[tuple[int, ShardRow]]:
    """Pair each row with its rank within its topic, so that topics take turns."""
    seen: dict[str, int] = {}
    ranked = []
    for row in rows:
        rank = seen[row.topic] = seen.get(row.topic, 0) + 1
        ranked.append((rank, row))
    return ranked
