"""Figures of deliveries, as metrics by topic and destination, and in the log."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairbox.observability.metrics import (
    CIRCUITS_OPENED,
    DEAD,
    DELAY,
    FAILED,
    RECEIVERS_GONE,
    RETRIED,
    SENT,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairbox.model.topic_states import CircuitEvent
    from fairbox.observability.metrics import Metrics

Name = tuple[str, str]

logger = logging.getLogger("fairbox")
_OURS: Final = ("cannot connect", "no answer")


@dataclass(slots=True)
class DeliveryMetrics:
    """Figures of one delivery, by (topic, subscription), and lines for the log.

    Attributes:
        sent: messages taken.
        failed: attempts counted.
        dead: messages that died.
        retried: messages tried again.
        bytes: bytes of the bodies of messages taken.
        delay: the longest time that a message taken had been due (s).
        circuits: changes of circuits.
        errors: failures of the tables or queues; the sweep takes up the messages that they left.
    """

    sent: Counter[Name] = field(default_factory=Counter)
    failed: Counter[Name] = field(default_factory=Counter)
    dead: Counter[Name] = field(default_factory=Counter)
    retried: Counter[Name] = field(default_factory=Counter)
    bytes: Counter[Name] = field(default_factory=Counter)
    delay: dict[Name, float] = field(default_factory=dict)
    circuits: list[CircuitEvent] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def write_metrics(metrics: Metrics, deliveries: Sequence[DeliveryMetrics]) -> None:
    """Write sent, failed, retried and dead messages, the delay, and circuits that opened."""
    figures: dict[Name, dict[str, float]] = defaultdict(dict)
    for delivery in deliveries:
        opened = Counter((e.topic, e.subscription) for e in delivery.circuits if e.kind == "opened")
        gone = Counter((e.topic, e.subscription) for e in delivery.circuits if e.kind == "gone")
        for name, counted in (
            (SENT, delivery.sent),
            (FAILED, delivery.failed),
            (RETRIED, delivery.retried),
            (DEAD, delivery.dead),
            (CIRCUITS_OPENED, opened),
            (RECEIVERS_GONE, gone),
        ):
            for key, count in counted.items():
                # a Counter keeps names whose count is 0, and each name is a metric that costs
                if count:
                    figures[key][name] = figures[key].get(name, 0) + count
        for key, delay in delivery.delay.items():
            # several visits of one invocation: the longest wait counts
            figures[key][DELAY] = max(figures[key].get(DELAY, 0), delay)
    metrics.emit_by_destination(figures)


def log_circuits(events: Iterable[CircuitEvent]) -> None:
    """Log changes of circuits: a warning where nothing more is sent."""
    for event in events:
        level = logging.WARNING if event.kind in ("opened", "gone") else logging.INFO
        logger.log(
            level,
            "a circuit changed",
            extra={
                "topic_name": event.topic,
                "subscription": event.subscription,
                "change": event.kind,
                "error": _own_words(event.reason),
            },
        )


def _own_words(reason: str) -> str:
    """Return the status or code, without the receiver's words beside it.

    Such words may repeat the message, and readers of logs need not be readers of messages. For the
    latter, the whole answer is kept with the message and with the subscription.
    """
    # reasons of the library's own have no receiver's words in them
    return reason if reason.startswith(_OURS) else reason.partition(": ")[0]
