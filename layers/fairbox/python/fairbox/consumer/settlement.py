"""Calls for messages in hand: extension, and settlement of handled ones; no error is fatal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from fairbox.consumer.options import CALL_SIZE
from fairbox.errors import FAILED, StaleReceipt, Throttled, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.consumer.counts import EventLog
    from fairbox.consumer.in_flight import InFlight, InFlightMessage
    from fairbox.consumer.options import Limits
    from fairbox.consumer.ports import Source

_AHEAD: Final = 20
AGAIN_SECONDS: Final = 1.0
"""Seconds after which a failed call is repeated."""


class Extension:
    """Extends messages whose heartbeat is due.

    Args:
        queue: extends; many in a call if it has `extend_many`.
        now: seconds that never go back.

    Attributes:
        size: messages of a call.
    """

    def __init__(
        self,
        queue: Source,
        in_flight: InFlight,
        events: EventLog,
        limits: Limits,
        now: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._many: Callable[[Sequence[str], float], None] | None = getattr(
            queue, "extend_many", None
        )
        self._in_flight = in_flight
        self._events = events
        self._limits = limits
        self._now = now
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
        asked, visibility = self._now(), self._limits.visibility_timeout

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
            again = self._now() + min(AGAIN_SECONDS, self._limits.heartbeat / 3)
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

    Args:
        now: seconds that never go back.

    Attributes:
        keyed: number of settled messages with a partition key.
    """

    def __init__(
        self, queue: Source, in_flight: InFlight, events: EventLog, now: Callable[[], float]
    ) -> None:
        self._queue = queue
        self._in_flight = in_flight
        self._events = events
        self._now = now
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
                self._in_flight.unsettled.put_back(one, self._now() + AGAIN_SECONDS)
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
