"""Open circuits and paused subscriptions, for the metrics of each minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fairbox.model.topic_states import SubscriptionStatus, TopicState


class CircuitWatch:
    """The subscriptions that are not ready.

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
