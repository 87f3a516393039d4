"""One message in flight of a consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fairbox.consumer.handler_outcomes import Outcome
    from fairbox.model.received_messages import Received


@dataclass(slots=True, eq=False)
class InFlightMessage:
    """One message in hand; times are seconds of the consumer's clock.

    Attributes:
        received: the message and its receipt.
        until: the earliest end of its visibility.
        since: the time of its last change of state.
        state: it waits for a worker, is being handled, or is to be settled.
        outcome: the outcome of its handler.
        lost: its receipt is stale: another consumer may hold it.
        hangs: its handler took too long, and it is no longer extended.
    """

    received: Received
    until: float
    since: float
    state: Literal["waiting", "running", "done"] = "waiting"
    outcome: Outcome | None = None
    lost: bool = False
    hangs: bool = False

    @property
    def receipt(self) -> str:
        """Its receipt."""
        return self.received.receipt
