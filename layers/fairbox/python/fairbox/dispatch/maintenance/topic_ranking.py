"""The hourly ranking of topics, by which functions and consumers write metrics by topic."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.model.clock import milliseconds
from fairbox.tables.topic_cache import MAX_BUSIEST, TROUBLED, BusiestTopics, ranked

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from fairbox.dispatch.maintenance.outstanding_count import TopicFigures
    from fairbox.model.clock import Clock
    from fairbox.tables.tables import Tables

OVERDUE_SECONDS: Final = 600.0
"""Age of its oldest message from which a topic is in trouble."""
_HOUR: Final = 3600


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


def _troubled(figures: Mapping[str, TopicFigures], failing: Collection[str]) -> list[str]:
    """Return topics whose messages died, are late or cannot be sent; the fullest first."""
    found = {
        topic: counted.outstanding + counted.dead
        for topic, counted in figures.items()
        if topic in failing or counted.dead or counted.oldest_age >= OVERDUE_SECONDS
    }
    found |= {topic: 0 for topic in failing if topic not in found}
    return sorted(found, key=lambda topic: (-found[topic], topic))
