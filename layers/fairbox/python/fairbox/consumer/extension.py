"""Extension of messages in hand: 25 a call, by several threads; no error of the queue is fatal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.consumer.options import CALL_SIZE
from fairbox.errors import FAILED, StaleReceipt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.consumer.counts import EventLog
    from fairbox.consumer.in_flight import InFlight
    from fairbox.consumer.in_flight_message import InFlightMessage
    from fairbox.consumer.options import Limits
    from fairbox.consumer.ports import Source

AGAIN_SECONDS: Final = 1.0
_AHEAD: Final = 20


class Extension:
    """Extends messages whose heartbeat is due.

    Args:
        queue: extends; many in a call if it has `extend_many`.
        in_flight: the messages in hand.
        events: counts and logs.
        limits: bounds.
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
