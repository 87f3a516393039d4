"""The steps of a consumer: receive, handle, extend and settle; no failed call is fatal."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Final

from fairbox.consumer.handler_outcomes import Outcome
from fairbox.consumer.options import CALL_SIZE, ORDERED_CALL_SIZE, Limits
from fairbox.errors import FAILED, StaleReceipt, Throttled, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.consumer.counts import EventLog
    from fairbox.consumer.in_flight import InFlight, InFlightMessage
    from fairbox.consumer.ports import Poll, Source
    from fairbox.consumer.turnstile import RateLimit
    from fairbox.model.receipts import Received
    from fairbox.model.topic_states import TopicState

_AHEAD: Final = 20
AGAIN_SECONDS: Final = 1.0
"""Seconds after which a failed call is repeated."""
_EXPIRED: Final = Outcome("release", reason="its visibility ran out before a worker was free")


class Extension:
    """Extends messages whose heartbeat is due.

    Args:
        queue: extends; many in a call if it has `extend_many`.

    Attributes:
        size: messages of a call.
    """

    def __init__(
        self,
        queue: Source,
        in_flight: InFlight,
        events: EventLog,
        limits: Limits,
    ) -> None:
        self._queue = queue
        self._many: Callable[[Sequence[str], float], None] | None = getattr(
            queue, "extend_many", None
        )
        self._in_flight = in_flight
        self._events = events
        self._limits = limits
        self.size = CALL_SIZE

    def extend_due(self) -> bool:
        """Extend the messages that end first, in one call; return whether one was due."""
        heartbeat = self._limits.heartbeat
        count = 1 if self._many is None else self.size
        messages = self._in_flight.heartbeats.take(count, heartbeat / _AHEAD, again=heartbeat)
        if messages:
            self.extend(messages)
        return bool(messages)

    def extend(self, messages: Sequence[InFlightMessage]) -> None:
        """Extend messages in one call; stale ones are lost, a failed call is repeated soon."""
        # noted from before the call: the claims last at least as long as noted
        asked, visibility = self._in_flight.now(), self._limits.visibility_timeout

        stale: frozenset[str] = frozenset()
        try:
            if len(messages) == 1 or self._many is None:
                self._queue.extend(messages[0].receipt, visibility)
            else:
                self._many([one.receipt for one in messages], visibility)
        except StaleReceipt as error:
            stale = frozenset([messages[0].receipt] if len(messages) == 1 else error.receipts)
        except FAILED as error:
            # nothing was extended: again soon, while the claims still last
            self._events.failed("extend", error)
            again = self._in_flight.now() + min(AGAIN_SECONDS, self._limits.heartbeat / 3)
            for one in messages:
                self._in_flight.extended(one, one.until, again)
            return

        for one in messages:
            if one.receipt not in stale:
                self._in_flight.extended(one, asked + visibility, asked + self._limits.heartbeat)
            elif self._in_flight.lose(one):
                self._events.lost(one)


class Settlement:
    """Settles the messages in hand that are done.

    Attributes:
        keyed: number of settled messages with a partition key.
    """

    def __init__(self, queue: Source, in_flight: InFlight, events: EventLog) -> None:
        self._queue = queue
        self._in_flight = in_flight
        self._events = events
        self._lock = threading.Lock()
        self.keyed = 0

    def settle(self, *, linger: float) -> bool:
        """Settle done messages in one call; return whether there were any.

        Acks wait `linger` seconds for others, if others may come.
        """
        messages = self._in_flight.unsettled.take(linger if self._in_flight.busy else 0.0)
        # outside of the lock of the unsettled: other threads settle meanwhile
        if messages:
            self._try(messages)
            self._in_flight.unsettled.called(messages)
        return bool(messages)

    def _call(self, messages: Sequence[InFlightMessage]) -> None:
        outcome, receipts = messages[0].outcome, [one.receipt for one in messages]
        if outcome is None:
            return
        # acks and releases go together; the others have a reason each
        if outcome.kind == "ack":
            self._queue.ack(receipts)
        elif outcome.kind == "release":
            self._queue.release(receipts)
        elif outcome.kind == "dead":
            self._queue.bury(messages[0].receipt, outcome.reason)
        else:
            self._queue.nack(messages[0].receipt, outcome.delay, outcome.reason)

    def _try(self, messages: Sequence[InFlightMessage]) -> None:
        """Make one call; stale messages are lost, throttled calls are repeated later."""
        stale: frozenset[str] = frozenset()

        try:
            self._call(messages)
        except StaleReceipt as error:
            stale = frozenset(error.receipts)
        except (Throttled, Unavailable) as error:
            self._events.failed("settle", error)
            for one in messages:
                self._in_flight.unsettled.put_back(one, self._in_flight.now() + AGAIN_SECONDS)
            return
        except Exception as error:  # noqa: BLE001 - the settler outlives every answer
            # not repeated: others receive the messages when their claims end
            self._events.left(messages, error)
            for one in messages:
                self._in_flight.settled(one)
            return

        for one in messages:
            if one.receipt in stale:
                self._events.lost(one)
            elif one.outcome is not None:
                self._events.settled(one, one.outcome)
                # several threads settle
                with self._lock:
                    self.keyed += one.received.message.partition_key is not None
            self._in_flight.settled(one)


class WorkerSteps:
    """The steps of one consumer's work.

    Args:
        queue: where messages come from.
        handle: handles a message, and returns its outcome.
        late: returns the outcome of a message whose handler took longer than the time limit.
        grace: seconds that a handler has beyond its time limit, to clean up.
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
        self._rate = rate

        self._extension = Extension(queue, in_flight, events, limits)
        self._settlement = Settlement(queue, in_flight, events)
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
        asked = self._in_flight.now()
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
        if self._in_flight.now() >= message.until:
            self._extension.extend([message])
            if message.lost or self._in_flight.now() >= message.until:
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
                self._events.hung(message, round(self._in_flight.now() - message.since, 3))
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
