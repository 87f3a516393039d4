"""Settles what handlers are done with: acks together, the rest one by one, nothing fatal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from fairbox.errors import StaleReceipt, Throttled, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.consumer.event_log import Journal
    from fairbox.consumer.in_flight import Held, Hold
    from fairbox.consumer.outcomes import Outcome
    from fairbox.consumer.ports import Source

MAX_ACK: Final = 25
"""Receipts of one call: what one call of DynamoDB takes."""
ENOUGH: Final = 10
"""Acks that wait for no others."""
AGAIN_SECONDS: Final = 1.0
"""After which a call that failed is made again."""


class Settling:
    """Settles the messages of a hold that are done.

    Args:
        queue: takes acks and the rest.
        hold: the messages in hand.
        journal: counts and tells.
        now: seconds that never go back.

    Attributes:
        keyed: how many messages with a partition key were settled.
    """

    def __init__(
        self, queue: Source, hold: Hold, journal: Journal, now: Callable[[], float]
    ) -> None:
        self._queue = queue
        self._hold = hold
        self._journal = journal
        self._now = now
        self.keyed = 0

    def settle(self, *, linger: float) -> None:
        """Settle what is done; acks wait `linger` seconds for others, where others may come."""
        now = self._now()
        held = self._hold.all()
        done: list[tuple[Held, Outcome]] = []
        for one in held:
            if one.state == "done" and one.settle_at <= now:
                if one.lost or one.outcome is None:
                    self._hold.settled(one)
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

    def _together(self, held: Sequence[Held], call: Callable[[Sequence[str]], None]) -> None:
        for start in range(0, len(held), MAX_ACK):
            part = held[start : start + MAX_ACK]
            self._try(part, partial(call, [one.receipt for one in part]))

    def _alone(self, held: Held, outcome: Outcome) -> None:
        if outcome.kind == "dead":
            self._queue.bury(held.receipt, outcome.reason)
        else:
            self._queue.nack(held.receipt, outcome.delay, outcome.reason)

    def _try(self, held: Sequence[Held], call: Callable[[], None]) -> None:
        """Make one call; what is stale is lost, what is throttled is tried again."""
        stale: frozenset[str] = frozenset()
        try:
            call()
        except StaleReceipt as error:
            stale = frozenset(error.receipts)
        except (Throttled, Unavailable) as error:
            self._journal.failed("settle", error)
            for one in held:
                one.settle_at = self._now() + AGAIN_SECONDS
            return
        except Exception as error:  # noqa: BLE001 - the keeper outlives every answer
            self._journal.left(held, error)
            for one in held:
                self._hold.settled(one)
            return
        for one in held:
            if one.receipt in stale:
                self._journal.lost(one)
            elif one.outcome is not None:
                self._journal.settled(one, one.outcome)
                self.keyed += one.received.message.partition_key is not None
            self._hold.settled(one)
