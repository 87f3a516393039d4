"""The steps of a consumer: receive, handle, extend and settle."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from fairbox.consumer.handler_outcomes import Outcome
from fairbox.consumer.options import ORDERED_CALL_SIZE
from fairbox.consumer.settlement import Extension, Settlement
from fairbox.errors import Throttled, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.consumer.counts import EventLog
    from fairbox.consumer.in_flight import InFlight, InFlightMessage
    from fairbox.consumer.options import Limits
    from fairbox.consumer.ports import Poll, Source
    from fairbox.consumer.rate_limit import RateLimit
    from fairbox.model.receipts import Received
    from fairbox.model.topic_states import TopicState

_EXPIRED: Final = Outcome("release", reason="its visibility ran out before a worker was free")


class WorkerSteps:
    """The steps of one consumer's work.

    Args:
        queue: where messages come from.
        handle: handles a message, and returns its outcome.
        late: returns the outcome of a message whose handler took longer than the time limit.
        grace: seconds that a handler has beyond its time limit, to clean up.
        now: seconds that never go back.
        name: shown with the messages that it holds; empty: none.
        rate: a limit on the messages begun a second; None: none.
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
        rate: RateLimit | None = None,
    ) -> None:
        self._queue = queue
        self._named = {"consumer": name} if name else {}
        self._topic = topic
        self._handle = handle
        self._late = late
        self._limits = limits

        time_limit = math.inf if limits.time_limit is None else limits.time_limit + grace
        # one watch serves both limits: the shorter one decides what follows
        self._hangs = limits.processing_limit <= time_limit
        self._handler_limit = min(limits.processing_limit, time_limit)

        self._in_flight = in_flight
        self._events = events
        self._now = now
        self._rate = rate

        self._extension = Extension(queue, in_flight, events, limits, now)
        self._settlement = Settlement(queue, in_flight, events, now)
        self._topic_state: TopicState | None = None
        # a queue of others may lack it: then every receive is a plain one
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

    def room(self) -> int:
        """Return the number of messages wanted; at a rate, those whose turn comes soon."""
        if self._rate is None:
            return self._in_flight.room()
        return self._in_flight.room(self._rate.slots(self._limits.turn))

    def receive(self, limit: float = math.inf, *, waiting: bool = False) -> int:
        """Receive as many messages as there is room for, in one call; return their number.

        Args:
            limit: maximum number.
            waiting: the caller asks until there are messages; `quiet` has the seconds until the
                next time, and None if the caller is to choose them.

        Raises:
            FairboxError: the topic cannot be received from.
        """
        room = int(min(self.room(), limit, self._limits.receive_size))
        if room <= 0:
            return 0

        # from before the call: the claims last at least as long as noted
        asked = self._now()
        self.quiet = None

        try:
            # within the try: a throttled table does not end the consumer
            if self._topic_state is None:
                self._topic_state = self._queue.topic(self._topic)
                if self._topic_state.topic.ordering == "key":
                    # a call for an ordered topic writes a shard's row once: it takes more receipts
                    self._extension.size = ORDERED_CALL_SIZE
                    self._in_flight.unsettled.ordered = True
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
        message = self._in_flight.take()
        if message is None:
            return False
        if self._rate is not None:
            self._rate.begin()
        self.handle(message)
        return True

    def handle(self, message: InFlightMessage) -> None:
        """Handle a message that was taken."""
        # it waited longer than its claim lasts: another consumer may hold it by now
        if self._now() >= message.until:
            self._extension.extend([message])
            if message.lost or self._now() >= message.until:
                self._in_flight.finish(message, _EXPIRED)
                return
        self._in_flight.finish(message, self._handle(message.received))

    def keep(self, *, flush: bool = False) -> None:
        """Extend due messages, and settle done ones; `flush`: acks do not wait for others."""
        # claims first: settling may take long
        while self.extend():
            pass
        while self.settle(flush=flush):
            pass

    def extend(self) -> bool:
        """Extend due messages in one call, and watch handlers; return whether any was due."""
        for message in self._in_flight.take_overdue(self._handler_limit):
            if self._hangs:
                self._events.hung(message, round(self._now() - message.since, 3))
                self._in_flight.give_up(message)
            else:
                self._in_flight.time_out(message, self._late(message.received))
        return self._extension.extend_due()

    def settle(self, *, flush: bool = False) -> bool:
        """Settle done messages in one call; return whether there were any."""
        return self._settlement.settle(linger=0.0 if flush else self._limits.linger)

    def wait_to_extend(self, seconds: float) -> None:
        """Wait until a message is due or a handler is overdue, so many seconds at most."""
        overdue = self._in_flight.next_overdue(self._handler_limit)
        self._in_flight.heartbeats.wait(overdue, seconds)

    def wait_to_settle(self, seconds: float) -> None:
        """Wait until a message can be settled, so many seconds at most."""
        linger = self._limits.linger if self._in_flight.busy else 0.0
        self._in_flight.unsettled.wait(linger, seconds)
