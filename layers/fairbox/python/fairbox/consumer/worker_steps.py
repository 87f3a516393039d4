"""The non-blocking steps of a consumer: receive, handle, extend and settle."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from fairbox.consumer.options import MAX_RECEIVE
from fairbox.consumer.outcomes import Outcome
from fairbox.consumer.settlement import AGAIN_SECONDS, Settlement
from fairbox.errors import StaleReceipt, Throttled, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.consumer.counts import EventLog
    from fairbox.consumer.in_flight import InFlight, InFlightMessage
    from fairbox.consumer.options import Limits
    from fairbox.consumer.ports import Poll, Received, Source
    from fairbox.model.topics import TopicState

_EXPIRED: Final = Outcome("release", reason="its visibility ran out before a worker was free")


class WorkerSteps:
    """The steps of one consumer's work.

    Args:
        queue: where messages come from.
        topic: its topic.
        handle: handles a message, and returns its outcome.
        late: returns the outcome of a message whose handler took longer than the time limit.
        limits: bounds.
        grace: seconds that a handler has beyond its time limit, to clean up.
        in_flight: the messages in hand.
        events: counts and logs.
        now: seconds that never go back.
        name: shown with the messages that it holds; empty: none.
    """

    def __init__(
        self,
        queue: Source,
        topic: str,
        handle: Callable[[Received], Outcome],
        *,
        late: Callable[[Received], Outcome],
        limits: Limits,
        grace: float = 0.0,
        in_flight: InFlight,
        events: EventLog,
        now: Callable[[], float],
        name: str = "",
    ) -> None:
        self._queue = queue
        self._named = {"consumer": name} if name else {}
        self._topic = topic
        self._handle = handle
        self._late = late
        self._limits = limits
        self._time_limit = math.inf if limits.time_limit is None else limits.time_limit + grace
        self._in_flight = in_flight
        self._events = events
        self._now = now
        self._settlement = Settlement(queue, in_flight, events, now)
        self._topic_state: TopicState | None = None
        self._poll: Poll | None = getattr(queue, "poll", None)
        self.quiet: float | None = None

    @property
    def freed(self) -> int:
        """The number of settled messages that others may have waited for: those with a key."""
        state = self._topic_state
        return self._settlement.keyed if state is not None and state.topic.ordering == "key" else 0

    @property
    def receives_to_see_all(self) -> int:
        """The number of empty receives after which the topic counts as empty.

        One of Fairbox's own queue reads all shards; another source's may read only one.
        """
        state = self._topic_state
        return 1 if state is None or self._poll is not None else len(state.shards())

    def receive(self, limit: int = MAX_RECEIVE, *, waiting: bool = False) -> int:
        """Receive as many messages as there is room for, at most ten; return their number.

        Args:
            limit: maximum number.
            waiting: the caller asks until there are messages; `quiet` has the seconds until the
                next time, and None if the caller is to choose them.

        Raises:
            FairboxError: the topic cannot be received from.
        """
        room = min(self._in_flight.room(), limit, MAX_RECEIVE)
        if room <= 0:
            return 0
        asked = self._now()
        self.quiet = None
        try:
            if self._topic_state is None:
                self._topic_state = self._queue.topic(self._topic)
            found = self._found(room, waiting=waiting)
        except (Throttled, Unavailable) as error:
            self._events.failed("receive", error)
            return 0
        self._events.received(len(found))
        for received in found:
            self._in_flight.put(
                received,
                asked + self._limits.visibility_timeout,
                asked + self._limits.heartbeat,
            )
        return len(found)

    def _found(self, room: int, *, waiting: bool) -> Sequence[Received]:
        visibility = self._limits.visibility_timeout
        if waiting and self._poll is not None:
            found, self.quiet = self._poll(
                self._topic, max_messages=room, visibility_timeout=visibility, **self._named
            )
            return found
        return self._queue.receive(
            self._topic, max_messages=room, visibility_timeout=visibility, wait=0, **self._named
        )

    def work(self) -> bool:
        """Handle one waiting message; return whether there was one."""
        held = self._in_flight.take()
        if held is None:
            return False
        if self._now() >= held.until and not self._extend(held):
            self._in_flight.finish(held, _EXPIRED)
            return True
        self._in_flight.finish(held, self._handle(held.received))
        return True

    def keep(self, *, flush: bool = False) -> None:
        """Extend due messages, and settle done ones; `flush`: acks do not wait for others."""
        for held in self._in_flight.all():
            now = self._now()
            worked = now - held.since if held.state == "running" and not held.hangs else 0
            if worked >= self._limits.processing_limit:
                self._in_flight.give_up(held)
                self._events.hung(held, round(worked, 3))
            elif worked >= self._time_limit:
                self._in_flight.time_out(held, self._late(held.received))
            if now >= held.extend_at:
                self._extend(held)
        self._settlement.settle(linger=0.0 if flush else self._limits.linger)

    def next_step(self) -> float:
        """Return the next time for `keep`, in seconds of the clock; infinity: after a change."""
        due = math.inf
        for held in self._in_flight.all():
            due = min(due, held.extend_at)
            if held.state == "running" and not held.hangs:
                limit = min(self._limits.processing_limit, self._time_limit)
                due = min(due, held.since + limit)
            elif held.state == "done":
                due = min(due, max(held.settle_at, held.since + self._limits.linger))
        return due

    def _extend(self, held: InFlightMessage) -> bool:
        """Extend a message; return whether this consumer holds it."""
        asked = self._now()
        try:
            self._queue.extend(held.receipt, self._limits.visibility_timeout)
        except StaleReceipt:
            self._events.lost(held)
            self._in_flight.lose(held)
            return False
        except (Throttled, Unavailable) as error:
            self._events.failed("extend", error)
            self._in_flight.extended(held, held.until, self._now() + AGAIN_SECONDS)
            return self._now() < held.until
        self._in_flight.extended(
            held, asked + self._limits.visibility_timeout, asked + self._limits.heartbeat
        )
        return True
