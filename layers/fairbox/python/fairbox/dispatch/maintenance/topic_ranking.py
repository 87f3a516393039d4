"""The hourly ranking of topics, by which functions and consumers write metrics by topic."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from fairbox.model.busiest_topics import BUSIEST, TROUBLED, BusiestTopics, ranked

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from fairbox.dispatch.maintenance.outstanding_count import TopicFigures
    from fairbox.model.clock import Clock

OVERDUE_SECONDS: Final = 600.0
"""Age of its oldest message from which a topic is in trouble."""
_HOUR: Final = 3600


class RankingStore(Protocol):
    """The list of the busiest topics, and the reads that make it."""

    @property
    def busiest(self) -> BusiestTopics:
        """The list at the last refresh."""
        ...

    @property
    def topics_version(self) -> int:
        """The count of changes of topics at the last refresh."""
        ...

    def topic_names(self) -> list[str]:
        """Return the names of all topics."""
        ...

    def recent_deliveries(self) -> Mapping[str, int]:
        """Return a sample of the last hour's deliveries, by topic."""
        ...

    def write_busiest(self, busiest: BusiestTopics) -> None:
        """Write the list."""
        ...


def rank_topics(
    store: RankingStore, clock: Clock, figures: Mapping[str, TopicFigures], failing: Collection[str]
) -> None:
    """Rank the topics if an hour began; otherwise let new and troubled ones join the list.

    It reads and writes nothing while the hour goes on and no topic comes or gets into trouble.

    Args:
        store: the list and the topics, refreshed.
        clock: tells the hour.
        figures: outstanding and dead messages by topic, and their age.
        failing: topics with an open circuit.
    """
    now = store.busiest
    hour = int(clock.now() // _HOUR)
    version = store.topics_version
    troubled = _troubled(figures, failing)
    if hour > now.hour:
        names = ranked(now.names, store.topic_names(), store.recent_deliveries(), troubled)
        after = BusiestTopics(names, hour, version)
    else:
        after = now
        if now.has_room and version != now.version:
            after = replace(now, version=version).joined(sorted(store.topic_names()), limit=BUSIEST)
        after = after.joined(troubled, limit=BUSIEST + TROUBLED)
    if after != now:
        store.write_busiest(after)


def _troubled(figures: Mapping[str, TopicFigures], failing: Collection[str]) -> list[str]:
    """Return topics whose messages died, are late or cannot be sent; the fullest first."""
    found = {
        topic: counted.outstanding + counted.dead
        for topic, counted in figures.items()
        if topic in failing or counted.dead or counted.oldest_age >= OVERDUE_SECONDS
    }
    found |= {topic: 0 for topic in failing if topic not in found}
    return sorted(found, key=lambda topic: (-found[topic], topic))
