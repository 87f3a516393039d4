"""Which circuits are open and which subscriptions paused, for the metrics of each minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fairbox.model.subscription_status import Standing
    from fairbox.model.topics import TopicState


class CircuitWatch:
    """Knows which subscriptions are not ready.

    The topics are read (0.5 RRU a KB or so) only where a circuit opened or a pause changed since
    the last look, or something was not ready then: nothing while all is well.

    Args:
        load: reads all topics.
    """

    def __init__(self, load: Callable[[], Iterable[TopicState]]) -> None:
        self._load = load
        self._announced = 0
        self._known: dict[tuple[str, str], Standing] = {}

    def look(self, announced: int) -> dict[tuple[str, str], Standing]:
        """Return by (topic, subscription) how those stand that are not ready.

        Args:
            announced: how many circuits had opened, and pauses changed, by now.
        """
        if announced != self._announced or self._known:
            self._known = {
                (state.topic.name, name): standing
                for state in self._load()
                for name, standing in state.standings.items()
                if not standing.ready
            }
            self._announced = announced
        return self._known
