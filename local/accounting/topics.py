"""The topics of chaos runs, their subscriptions, and the consumers of the pulled ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox import RetryPolicy, Topic
from fairbox.tables.batch_values import COMPLETED_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

PULL: Final = "pull"
"""The subscription's name in accounts of pulled topics."""
QUICK: Final = RetryPolicy(max_attempts=8, base=0.2, cap=4)
PATIENT: Final = RetryPolicy(max_attempts=100, base=0.2, cap=4)
WORKED: Final = RetryPolicy(max_attempts=10, base=0.1, cap=1)
"""A consumer's crash counts as an attempt: few enough that poison dies in a short run."""
HOUR: Final = 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """A topic of the run.

    Attributes:
        topic: as it is declared.
        subscriptions: kind of destination by name: `queue`, `bus`, `hook`, `topic`; empty: pulled.
        consumers: number of processes that consume it, if it is pulled.
        share: its weight among the producers' messages.
        copies: the topic whose subscription `copy` feeds this one; None: producers feed it.
    """

    topic: Topic
    subscriptions: Mapping[str, str]
    consumers: int = 0
    share: int = 0
    copies: str | None = None

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.topic.name

    @property
    def ordered(self) -> bool:
        """Whether it keeps order by key."""
        return self.topic.ordering == "key"

    @property
    def takers(self) -> tuple[str, ...]:
        """Takers of its messages, as accounts name them."""
        return tuple(self.subscriptions) or (PULL,)


QUEUED: Final = Route(
    topic=Topic("chaos.queued", shards=4, retry=PATIENT), subscriptions={"queue": "queue"}, share=4
)
HOOKED: Final = Route(
    topic=Topic("chaos.hooked", shards=4, retry=QUICK),
    subscriptions={"hook": "hook", "queue": "queue"},
    share=3,
)
ORDERED: Final = Route(
    topic=Topic("chaos.ordered", shards=2, ordering="key", retry=PATIENT),
    subscriptions={"hook": "hook"},
    share=3,
)
EVENTS: Final = Route(
    topic=Topic("chaos.events", shards=2, retry=PATIENT, dedup_window=HOUR),
    subscriptions={"bus": "bus"},
    share=2,
)
COPIED: Final = Route(
    topic=Topic("chaos.copied", shards=2, retry=PATIENT), subscriptions={"copy": "topic"}, share=1
)
COPIES: Final = Route(
    topic=Topic("chaos.copies", shards=2, retry=WORKED),
    subscriptions={},
    consumers=1,
    copies="chaos.copied",
)
JOBS: Final = Route(
    topic=Topic("chaos.jobs", shards=4, retry=WORKED), subscriptions={}, consumers=2, share=4
)
LINES: Final = Route(
    topic=Topic("chaos.lines", shards=2, ordering="key", retry=WORKED),
    subscriptions={},
    consumers=2,
    share=3,
)
ITEMS: Final = Route(
    topic=Topic("chaos.items", shards=2, retry=WORKED), subscriptions={}, consumers=1
)
COMPLETED: Final = Route(topic=Topic(COMPLETED_TOPIC), subscriptions={"queue": "queue"})

ROUTES: Final = (QUEUED, HOOKED, ORDERED, EVENTS, COPIED, COPIES, JOBS, LINES, ITEMS, COMPLETED)
BY_TOPIC: Final[Mapping[str, Route]] = {route.name: route for route in ROUTES}
ACCOUNTED: Final = tuple(r for r in ROUTES if r.copies is None and r is not COMPLETED)
"""The topics that producers publish to: each message is in exactly one class at the end."""


def place_of(topic: str, taker: str) -> tuple[str, str]:
    """Return the topic and taker to which an arrival or a stored copy belongs."""
    source = BY_TOPIC[topic].copies
    return (topic, taker) if source is None else (source, "copy")
