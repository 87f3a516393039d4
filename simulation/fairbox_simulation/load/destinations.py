"""Destinations whose calls take simulated time, and bodies that may not be fetched."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.ports import TAKEN, Limits, Outcome
from fairbox.errors import Unavailable
from fairbox.testing.application import MemoryBodies
from greenlet import getcurrent

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from fairbox.tables.stored_messages import StoredMessage

    from fairbox_simulation.load.timeline import Timeline

DOWN: Final = Outcome("refused", "HTTP 500", fault="destination")
GONE: Final = Outcome("gone", "HTTP 410")
REFUSED: Final = Outcome("refused", "not this one" + " of all" * 25, fault="message")


@dataclass
class TimedDestination:
    """A webhook in simulated time, or a queue.

    Attributes:
        timeline: the time.
        seconds: duration of a call.
        limits: of a call; a webhook takes one message.
        quick: whether the relay may call it.
        failure: its answer to all; None: it takes everything.
        taken: when it took each message first, by id (seconds since 1970).
        tries: how often it was offered each, by id.
        times: how many messages it took, by second.
        in_flight, most_in_flight: messages in calls that run, now and at most.
    """

    timeline: Timeline
    seconds: float = 0.05
    limits: Limits = field(default_factory=lambda: Limits(1, 1 << 30))
    quick: bool = False
    failure: Outcome | None = None
    taken: dict[str, float] = field(default_factory=dict)
    tries: Counter[str] = field(default_factory=Counter)
    times: Counter[int] = field(default_factory=Counter)
    in_flight: int = 0
    most_in_flight: int = 0

    def size(self, message: StoredMessage) -> int:
        """Return the bytes of the body."""
        return message.size

    def send(self, messages: Sequence[StoredMessage], timeout: float) -> list[Outcome]:
        """Take the messages, after a while."""
        self.in_flight += len(messages)
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        ids = [m.ref.id for m in messages]
        self.tries.update(ids)
        try:
            self.timeline.sleep(min(self.seconds, timeout))
        finally:
            self.in_flight -= len(messages)
        if self.failure is not None:
            return [self.failure for _ in messages]
        now = self.timeline.clock.now()
        for message_id in ids:
            self.taken.setdefault(message_id, now)
        self.times[int(now)] += len(messages)
        return [TAKEN for _ in messages]


class _Body(bytes):
    """A body that was fetched; it is in hand until nothing refers to it."""

    held: Counter[object]
    by: object

    def __del__(self) -> None:
        self.held[self.by] -= len(self)


class BodiesInS3(MemoryBodies):
    """Offloaded bodies, of which some fetches fail.

    Args:
        rng: chooses them.
        failing: their share.

    Attributes:
        in_hand: bytes of bodies that were fetched and not let go, by invocation.
        most_in_hand: of any, at most.
        fetched: how often each body was fetched, by invocation.
        failed: how many fetches failed.
    """

    def __init__(self, rng: random.Random, failing: float) -> None:
        super().__init__()
        self._rng = rng
        self._failing = failing
        self.in_hand: Counter[object] = Counter()
        self.most_in_hand = self.failed = 0
        self.fetched: dict[str, Counter[object]] = defaultdict(Counter)

    def get(self, bucket: str, key: str) -> bytes:
        """Return a body.

        Raises:
            Unavailable: the fetch failed.
        """
        if self._rng.random() < self._failing:
            self.failed += 1
            raise Unavailable("get_object", "slow down")
        body = _Body(super().get(bucket, key))
        body.held, body.by = self.in_hand, invocation()
        self.in_hand[body.by] += len(body)
        self.most_in_hand = max(self.most_in_hand, self.in_hand[body.by])
        self.fetched[key][body.by] += 1
        return body


def invocation() -> object:
    """Return what stands for the invocation that runs."""
    return getattr(getcurrent(), "invocation", None)
