"""News for consumers that wait: the relay tells them which shards of pulled topics got messages.

It reads a topic's waiting row at most once a second (0.5 RRU), and counts news up (1 WRU an
invocation and topic) only while somebody waits.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec.waiting import read_question
from fairbox.errors import FairboxError
from fairbox.model.clock import milliseconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.dispatch.ports import Store
    from fairbox.model.clock import Clock
    from fairbox.model.messages import MessageRef

COPY_MS: Final = 1_000
"""Time in which a relay may not know that somebody waits."""
_MAX_COPIES: Final = 5_000


class WaitingNews:
    """The news of one relay's process.

    Args:
        store: the tables.
        clock: the time.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._until: dict[str, tuple[int, int]] = {}  # by topic: read at, until (ms)
        self._untold: defaultdict[str, set[int]] = defaultdict(set)

    def inserted(self, ref: MessageRef) -> None:
        """Note a message that came to a pulled topic, for `tell`."""
        self._untold[ref.topic].add(ref.shard)

    def tell(self) -> None:
        """Tell those who wait; what could not be told is told with the next invocation's."""
        for topic, shards in list(self._untold.items()):
            with suppress(FairboxError):
                if self._somebody_waits(topic):
                    self._store.tell_waiting(topic, shards)
                del self._untold[topic]

    def answer(self, record: Mapping[str, Any]) -> None:
        """Answer a consumer's question, if a stream record is one.

        If that fails, the consumer does without the relay.
        """
        question = read_question(record)
        if question is not None:
            self._until.pop(question[0], None)
            with suppress(FairboxError):
                self._store.answer_waiting(*question)

    def _somebody_waits(self, topic: str) -> bool:
        now = milliseconds(self._clock)
        at, until = self._until.get(topic, (0, 0))
        if not 0 <= now - at < COPY_MS:
            if len(self._until) >= _MAX_COPIES:
                self._until.clear()
            until = self._store.waiting_until(topic)
            self._until[topic] = now, until
        return until > now
