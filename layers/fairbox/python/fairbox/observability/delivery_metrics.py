"""What deliveries came to, as metrics by topic and destination, and in the log."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
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

    from fairbox.dispatch.delivery_report import Report
    from fairbox.dispatch.sending.circuit_breakers import Event
    from fairbox.observability.metrics import Metrics

logger = logging.getLogger("fairbox")
_OURS: Final = ("cannot connect", "no answer")


def write_metrics(metrics: Metrics, reports: Sequence[Report]) -> None:
    """Write what was sent, failed, tried again and died, the delay, and circuits that opened."""
    figures: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for report in reports:
        opened = Counter((e.topic, e.subscription) for e in report.circuits if e.kind == "opened")
        gone = Counter((e.topic, e.subscription) for e in report.circuits if e.kind == "gone")
        for name, counted in (
            (SENT, report.sent),
            (FAILED, report.failed),
            (RETRIED, report.retried),
            (DEAD, report.dead),
            (CIRCUITS_OPENED, opened),
            (RECEIVERS_GONE, gone),
        ):
            for key, count in counted.items():
                if count:
                    figures[key][name] = figures[key].get(name, 0) + count
        for key, delay in report.delay.items():
            figures[key][DELAY] = max(figures[key].get(DELAY, 0), delay)
    metrics.emit_by_destination(figures)


def log_circuits(events: Iterable[Event]) -> None:
    """Log what became of circuits: a warning where nothing more is sent."""
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
    """Return the status or code, without what the receiver said beside it.

    That may repeat the message, and logs have other readers than messages. It is kept whole with
    the message and with the subscription, where who may read messages finds it.
    """
    return reason if reason.startswith(_OURS) else reason.partition(": ")[0]
