"""`GET /stats`: what lies in the outbox, by topic and in all, at a bounded cost."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

from fairbox.api.models import FiguresOut, Stats, TopicFiguresOut
from fairbox.dispatch.maintenance.minute_figures import TopicFigures, count_outstanding
from fairbox.model.clock import milliseconds

if TYPE_CHECKING:
    from fairbox.client.outbox import Outbox
    from fairbox.model.clock import Clock


RATE_FROM_MS: Final = 90_000
RATE_UNTIL_MS: Final = 30_000  # the stream's readers trail by no more while they keep up
MAX_DELIVERIES: Final = 20_000


def rates(outbox: Outbox, now: int) -> dict[str, float]:
    """Return deliveries a second by topic, over the minute that ended half a minute ago.

    It reads `MAX_DELIVERIES` at most, some 130 read units; above that rate the part of the minute
    that these cover stands for the whole.
    """
    since, until = now - RATE_FROM_MS, now - RATE_UNTIL_MS
    counts: Counter[str] = Counter()
    last = since
    # the ledger gives the oldest first, so the covered part ends at the last one read
    for delivery in islice(outbox.tables.ledger.all(since, until), MAX_DELIVERIES):
        counts[delivery.topic] += 1
        last = delivery.at
    full = counts.total() >= MAX_DELIVERIES
    # a burst may fill the limit within a moment: no rate over less than a second
    seconds = max(1.0, ((last if full else until) - since) / 1000)
    return {topic: round(count / seconds, 3) for topic, count in counts.items()}


def stats(outbox: Outbox, clock: Clock) -> Stats:
    """Return the figures: counts of the index, ages of the lanes' heads, rates of the ledger."""
    outbox.tables.topic_cache.refresh()
    # topics that hold nothing are shown too
    figures = {state.topic.name: TopicFigures() for state in outbox.topics()}
    figures |= count_outstanding(outbox.tables, outbox.listed(), clock)
    delivered = rates(outbox, milliseconds(clock))

    return Stats(
        as_of=milliseconds(clock),
        total=FiguresOut(
            outstanding=sum(f.outstanding for f in figures.values()),
            waiting=sum(f.later for f in figures.values()),
            dead=sum(f.dead for f in figures.values()),
            oldest_age_seconds=max((f.oldest_age for f in figures.values()), default=0.0),
            delivered_per_second=round(sum(delivered.values()), 3),
        ),
        topics=[
            TopicFiguresOut(
                topic=name,
                outstanding=f.outstanding,
                waiting=f.later,
                dead=f.dead,
                oldest_age_seconds=f.oldest_age,
                delivered_per_second=delivered.get(name, 0.0),
            )
            for name, f in sorted(figures.items())
        ],
    )
