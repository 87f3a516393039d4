"""`GET /stats`: what lies in the outbox, by topic and in all, at a bounded cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox.api.models import FiguresOut, Stats, TopicFiguresOut
from fairbox.clock import milliseconds
from fairbox.dispatch.outstanding import TopicFigures, count_outstanding
from fairbox.dynamodb.store import DynamoStore

if TYPE_CHECKING:
    from fairbox.clock import Clock
    from fairbox.outbox import Outbox


def stats(outbox: Outbox, clock: Clock) -> Stats:
    """Return the figures: counts from the index, ages from the heads of at most 200 lanes."""
    store = DynamoStore(outbox.tables)
    figures = {state.topic.name: TopicFigures() for state in outbox.topics()}
    figures |= count_outstanding(store, outbox.listed(), clock)
    return Stats(
        as_of=milliseconds(clock),
        total=FiguresOut(
            outstanding=sum(f.outstanding for f in figures.values()),
            waiting=sum(f.later for f in figures.values()),
            dead=sum(f.dead for f in figures.values()),
            oldest_age_seconds=max((f.oldest_age for f in figures.values()), default=0.0),
        ),
        topics=[
            TopicFiguresOut(
                topic=name,
                outstanding=f.outstanding,
                waiting=f.later,
                dead=f.dead,
                oldest_age_seconds=f.oldest_age,
            )
            for name, f in sorted(figures.items())
        ],
    )
