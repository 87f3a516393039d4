"""The result of a delivery: outcomes, and the work that is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairbox.observability.delivery_metrics import DeliveryMetrics

if TYPE_CHECKING:
    from fairbox.dispatch.ports import Outcomes
    from fairbox.model.messages import MessageRef
    from fairbox.tables.stored_messages import StoredMessage


@dataclass(slots=True)
class DeliveryResult:
    """The result of a delivery, for its caller.

    Attributes:
        metrics: the figures for CloudWatch.
        removed: messages that left the outbox: delivered, dead or purged.
        outcomes: the destinations' answers, by message and subscription.
        after: messages that stay or have just died, as they were written.
        unsettled: messages whose outcome could not be written.
        left: messages still owed to subscriptions that may not be called from the stream; set only
            when `from_stream` is true.
        paced: subscriptions whose rate put jobs off; the visit enqueues visits for their next
            turn.
        waits: by subscription that does not take all messages now: when to come back (ms).
        quiet: subscriptions of `waits` that are not ready: a probe or a resume enqueues visits
            before.
        apart: of a shared visit, the messages not sent to subscriptions that are slow, or have a
            limit in flight, by (topic, subscription): the visit enqueues visits apart.
    """

    metrics: DeliveryMetrics = field(default_factory=DeliveryMetrics)
    removed: int = 0
    outcomes: Outcomes = field(default_factory=dict)
    after: dict[MessageRef, StoredMessage] = field(default_factory=dict)
    unsettled: set[MessageRef] = field(default_factory=set)
    left: list[MessageRef] = field(default_factory=list)
    paced: set[str] = field(default_factory=set)
    waits: dict[str, int] = field(default_factory=dict)
    quiet: set[str] = field(default_factory=set)
    apart: dict[tuple[str, str], list[MessageRef]] = field(default_factory=dict)

    @property
    def served(self) -> set[str]:
        """The names of the subscriptions that were called."""
        return {name for _, name in self.outcomes}

    @property
    def progress(self) -> int:
        """The number of steps forward: messages taken, died and removed."""
        return self.metrics.sent.total() + self.metrics.dead.total() + self.removed
