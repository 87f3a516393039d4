"""The limits of outstanding messages, held by copies of the topics' counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.errors import TopicFull

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairbox.model.clock import Clock
    from fairbox.model.topic_states import TopicState
    from fairbox.tables.shard_rows import ShardRows

COPY_SECONDS: Final = 5.0
"""For how long a process counts on by itself before it reads a topic's counts again."""


class OutstandingLimits:
    """The messages of topics with a `max_outstanding`, as one process knows them.

    Shard rows are counted from the stream, half a minute late. Between two reads, a process adds
    the messages that it admits itself; it sees those of other processes with the next read.
    """

    def __init__(self, rows: ShardRows, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}

    def admit(self, wanted: Iterable[tuple[TopicState, int]]) -> None:
        """Let so many messages of topics through, those of all or of none.

        Costs nothing where no topic has a limit, else 0.5 RRU a shard in five seconds.

        Raises:
            TopicFull: a topic has no room for its messages.
        """
        after: dict[str, tuple[float, int]] = {}
        for state, new in wanted:
            name, limit = state.topic.name, state.topic.max_outstanding
            if limit is None:
                continue
            at, count = self._copy(state)
            if count + new > limit:
                raise TopicFull(name, count, limit)
            after[name] = at, count + new
        # only now: a call that is refused for one topic counts for none
        self._counts |= after

    def _copy(self, state: TopicState) -> tuple[float, int]:
        """Return when a topic was counted, and its messages."""
        name, now = state.topic.name, self._clock.now()
        copy = self._counts.get(name)
        if copy is None or not 0 <= now - copy[0] < COPY_SECONDS:
            shards = [(name, *shard) for shard in state.shards()]
            copy = self._counts[name] = now, self._rows.outstanding(shards)
        return copy
