"""The busiest topics, whose figures are written as metrics by topic (row `!` of `config`).

CloudWatch bills a metric for each hour in which it is written. So the list is made once an hour,
and within the hour it only grows, up to a bound: that bounds the metrics of an hour.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.tables.stored_messages import number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from fairbox.tables.keys import Item

BUSIEST: Final = "bt"  # SS, topics whose figures are metrics by topic (row `!`)
RANKED_HOUR: Final = "bh"  # N, hours since 1970 UTC, when these were ranked (row `!`)
RANKED_VERSION: Final = "bv"  # N, the `n` that was seen then, or when some joined (row `!`)

MAX_BUSIEST: Final = 20
"""Topics that an hour begins with, at most."""
TROUBLED: Final = 10
"""Places of them for topics in trouble; and as many more may join within the hour."""
INCUMBENT: Final = 2
"""Factor for a topic that is listed: another must be more than twice as busy to replace it."""


@dataclass(frozen=True, slots=True)
class BusiestTopics:
    """The list, as one row keeps it for all processes.

    Attributes:
        names: the topics, at most `MAX_BUSIEST` + `TROUBLED`.
        hour: hours since 1970 UTC, when they were ranked; -1: never.
        version: the version of the topics that was seen then, or when some joined.
    """

    names: frozenset[str] = frozenset()
    hour: int = -1
    version: int = -1

    @property
    def has_room(self) -> bool:
        """Whether any topic may join, because there were fewer topics than places."""
        return len(self.names) < MAX_BUSIEST

    def joined(self, names: Iterable[str], *, limit: int) -> BusiestTopics:
        """Return the list with these topics too, the first ones first, up to a limit."""
        new = [name for name in names if name not in self.names]
        return replace(self, names=self.names | set(new[: max(0, limit - len(self.names))]))


def ranked(
    listed: Collection[str],
    topics: Collection[str],
    deliveries: Mapping[str, int],
    troubled: Sequence[str],
) -> frozenset[str]:
    """Return the topics to list: those in trouble, then the busiest, then any.

    Args:
        listed: topics that are listed now; they are replaced only by much busier ones.
        topics: names of all topics that are there.
        deliveries: a sample of recent deliveries, by topic.
        troubled: topics in trouble, the worst first.
    """
    there = set(topics)
    # of those in trouble too, the listed ones stay
    first = sorted((t for t in troubled if t in there), key=lambda t: t not in listed)[:TROUBLED]

    def rank(name: str) -> tuple[float, bool, str]:
        weight = deliveries.get(name, 0) * (INCUMBENT if name in listed else 1)
        return -weight, name not in listed, name

    rest = sorted(there - set(first), key=rank)
    return frozenset([*first, *rest][:MAX_BUSIEST])


def busiest_attributes(busiest: BusiestTopics) -> Item:
    """Return the list as attributes; a set that is empty cannot be written and is left out."""
    named = {BUSIEST: {"SS": sorted(busiest.names)}} if busiest.names else {}
    return named | {
        RANKED_HOUR: number(busiest.hour),
        RANKED_VERSION: number(busiest.version),
    }


def read_busiest(item: Mapping[str, Any]) -> BusiestTopics:
    """Return the list of the row; the empty one if topics were never ranked."""
    if RANKED_HOUR not in item:
        return BusiestTopics()
    return BusiestTopics(
        frozenset(item.get(BUSIEST, {"SS": ()})["SS"]),
        int(item[RANKED_HOUR]["N"]),
        int(item[RANKED_VERSION]["N"]),
    )
