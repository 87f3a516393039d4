"""The result of a delivery: outcomes, and the work that is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairbox.observability.delivery_metrics import DeliveryMetrics

if TYPE_CHECKING:
    from fairbox.dispatch.ports import Outcomes
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import StoredMessage


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
        resume: when the jobs that a rate put off may go on (ms); the visit enqueues a visit for
            that time. None: no rate put anything off.
        waits: by subscription that does not take everything now: when to come back (ms).
        quiet: those of them that are not ready: whoever probes or resumes them enqueues visits
            before.
    """

    metrics: DeliveryMetrics = field(default_factory=DeliveryMetrics)
    removed: int = 0
    outcomes: Outcomes = field(default_factory=dict)
    after: dict[MessageRef, StoredMessage] = field(default_factory=dict)
    unsettled: set[MessageRef] = field(default_factory=set)
    left: list[MessageRef] = field(default_factory=list)
    resume: int | None = None
    waits: dict[str, int] = field(default_factory=dict)
    quiet: set[str] = field(default_factory=set)

    @property
    def progress(self) -> int:
        """The number of steps forward: messages taken, died and removed."""
        return self.metrics.sent.total() + self.metrics.dead.total() + self.removed
