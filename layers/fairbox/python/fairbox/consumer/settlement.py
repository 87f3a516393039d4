"""Settlement of handled messages: acks in bulk, others one by one; no error is fatal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from fairbox.errors import StaleReceipt, Throttled, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.consumer.counts import EventLog
    from fairbox.consumer.in_flight import InFlight, InFlightMessage
    from fairbox.consumer.outcomes import Outcome
    from fairbox.consumer.ports import Source

MAX_ACK: Final = 25
"""Receipts of one call: as many as one call of DynamoDB takes."""
ENOUGH: Final = 10
"""Number of acks that do not wait for others."""
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
        self.keyed = 0

    def settle(self, *, linger: float) -> None:
        """Settle done messages; acks wait `linger` seconds for others, if others may come."""
        now = self._now()
        held = self._in_flight.all()
        done: list[tuple[InFlightMessage, Outcome]] = []
        for one in held:
            if one.state == "done" and one.settle_at <= now:
                if one.lost or one.outcome is None:
                    self._in_flight.settled(one)
                else:
                    done.append((one, one.outcome))
        acks = [one for one, outcome in done if outcome.kind == "ack"]
        busy = any(one.state != "done" for one in held)
        if acks and not (busy and len(acks) < ENOUGH and now - acks[0].since < linger):
            self._together(acks, self._queue.ack)
        released = [one for one, outcome in done if outcome.kind == "release"]
        self._together(released, self._queue.release)
        for one, outcome in done:
            if outcome.kind not in ("ack", "release"):
                self._try([one], partial(self._alone, one, outcome))

    def _together(
        self, held: Sequence[InFlightMessage], call: Callable[[Sequence[str]], None]
    ) -> None:
        for start in range(0, len(held), MAX_ACK):
            part = held[start : start + MAX_ACK]
            self._try(part, partial(call, [one.receipt for one in part]))

    def _alone(self, held: InFlightMessage, outcome: Outcome) -> None:
        if outcome.kind == "dead":
            self._queue.bury(held.receipt, outcome.reason)
        else:
            self._queue.nack(held.receipt, outcome.delay, outcome.reason)

    def _try(self, held: Sequence[InFlightMessage], call: Callable[[], None]) -> None:
        """Make one call; stale messages are lost, throttled calls are repeated later."""
        stale: frozenset[str] = frozenset()
        try:
            call()
        except StaleReceipt as error:
            stale = frozenset(error.receipts)
        except (Throttled, Unavailable) as error:
            self._events.failed("settle", error)
            for one in held:
                one.settle_at = self._now() + AGAIN_SECONDS
            return
        except Exception as error:  # noqa: BLE001 - the keeper outlives every answer
            self._events.left(held, error)
            for one in held:
                self._in_flight.settled(one)
            return
        for one in held:
            if one.receipt in stale:
                self._events.lost(one)
            elif one.outcome is not None:
                self._events.settled(one, one.outcome)
                self.keyed += one.received.message.partition_key is not None
            self._in_flight.settled(one)
