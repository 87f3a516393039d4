"""The ack queue in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox.batches.ack_messages import parse

if TYPE_CHECKING:
    from collections.abc import Sequence


class MemoryAcks:
    """The ack queue in memory: the messages that nobody has taken, in order.

    Attributes:
        calls: how often somebody put messages there.
    """

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.calls = 0

    def put(self, bodies: Sequence[str]) -> None:
        """Put messages into the queue."""
        self.calls += 1
        self.bodies += bodies

    def take(self) -> list[str]:
        """Take everything out of the queue; return the item ids, with repetitions."""
        taken, self.bodies = self.bodies, []
        return [item for body in taken for item in parse(body)]
