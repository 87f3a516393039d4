"""Settlement of handled messages: acks in bulk, others one by one; no error is fatal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from fairbox.errors import StaleReceipt, Throttled, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.consumer.counts import EventLog
    from fairbox.consumer.in_flight import InFlight
    from fairbox.consumer.in_flight_message import InFlightMessage
    from fairbox.consumer.ports import Source

AGAIN_SECONDS: Final = 1.0
"""Seconds after which a failed call is repeated."""


class Settlement:
    """Settles the messages in hand that are done.

    Args:
        queue: takes acks and the rest.
        in_flight: the messages in hand.
        events: counts and logs.
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
        if messages:
            self._try(messages)
            self._in_flight.unsettled.called(messages)
        return bool(messages)

    def _call(self, messages: Sequence[InFlightMessage]) -> None:
        outcome, receipts = messages[0].outcome, [one.receipt for one in messages]
        if outcome is None:
            return
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
