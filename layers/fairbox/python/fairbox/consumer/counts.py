"""The figures of a consumer: counted, logged with each event, and written as metrics."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal

from fairbox.errors import FairboxError
from fairbox.observability.metrics import ACKED, DEAD, GIVEN_BACK, LOST_RECEIPTS, RECEIVED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.consumer.handler_outcomes import Outcome
    from fairbox.consumer.in_flight import InFlightMessage
    from fairbox.consumer.ports import Figures, Log, Source
    from fairbox.model.topics import Partition

Kind = Literal[
    "received", "acked", "failed", "retried", "dead", "released", "abandoned", "lost", "hung",
    "errors",
]  # fmt: skip
_COUNTED: Final[Mapping[str, Kind]] = {
    "ack": "acked",
    "fail": "failed",
    "retry": "retried",
    "dead": "dead",
    "release": "released",
    "abandon": "abandoned",
}
_SILENT: Final = ("ack", "release")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerCounts:
    """The counts of a consumer's messages, by their fate.

    Attributes:
        received: claimed.
        acked: handled and deleted.
        failed: given back with the reason, because their handlers raised.
        retried: given back by `Retry`.
        dead: made dead letters, by `Dead` or after `max_attempts`.
        released: given back unhandled when the consumer stopped, without counting an attempt.
        abandoned: given back at the end of a stop while their handlers still ran.
        lost: with stale receipts: others may have received them in the meantime.
        hung: handled for longer than `processing_limit`, and no longer extended.
        errors: failed calls of the queue; they are repeated, or the visibility ends.
    """

    received: int = 0
    acked: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    released: int = 0
    abandoned: int = 0
    lost: int = 0
    hung: int = 0
    errors: int = 0

    def __add__(self, other: ConsumerCounts) -> ConsumerCounts:
        return ConsumerCounts(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in _FIELDS}
        )

    def as_fields(self) -> dict[str, int]:
        """Return the counts by name, as log lines carry them."""
        return {f.name: getattr(self, f.name) for f in _FIELDS}


_FIELDS = fields(ConsumerCounts)


class Counts:
    """ConsumerCounts from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, kind: Kind, count: int = 1) -> None:
        """Count."""
        with self._lock:
            self._counts[kind] += count

    @property
    def counts(self) -> ConsumerCounts:
        """The counts by now."""
        with self._lock:
            return ConsumerCounts(**self._counts)


class EventLog:
    """The counts and the log of one consumer.

    Args:
        log: takes a line for each message that is not simply acked, and for each call that fails.
        fields: of every line.
    """

    def __init__(self, counts: Counts, log: Log, fields: Mapping[str, Any]) -> None:
        self._counts = counts
        self._log = log
        self._fields = fields

    def write(self, sentence: str, more: Mapping[str, Any] | None = None) -> None:
        """Write a line with the counts."""
        counts = self._counts.counts.as_fields()
        self._log.info(sentence, extra={**self._fields, **counts, **(more or {})})

    def progress(self, in_flight: int) -> None:
        """Write a line with the counts, in its text too; so many messages are in flight."""
        counts = self._counts.counts.as_fields() | {"held": in_flight}
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        text = f"A consumer's progress: {told or 'nothing received'}."
        self._log.info(text, extra={**self._fields, **counts})

    def received(self, count: int) -> None:
        """Count received messages."""
        self._counts.add("received", count)

    def settled(self, message: InFlightMessage, outcome: Outcome) -> None:
        """Count a settled message."""
        self._counts.add(_COUNTED[outcome.kind])
        if outcome.kind not in _SILENT:
            died = outcome.kind == "dead"
            sentence = "A message is dead." if died else "A message was given back."
            fields = {"reason": outcome.reason, "delay": outcome.delay}
            self._log.warning(sentence, extra=self._about(message) | fields)

    def lost(self, message: InFlightMessage) -> None:
        """Count a receipt that was stale."""
        self._counts.add("lost")
        self._log.warning("A receipt was lost.", extra=self._about(message))

    def hung(self, message: InFlightMessage, seconds: float) -> None:
        """Count a handler that does not return."""
        self._counts.add("hung")
        self._log.error("A handler hangs.", extra=self._about(message) | {"seconds": seconds})

    def failed(self, operation: str, error: Exception) -> None:
        """Count a failed call that will be repeated."""
        self._counts.add("errors")
        fields = {"operation": operation, "error": str(error)}
        self._log.warning("A call of the queue failed.", extra={**self._fields, **fields})

    def left(self, messages: Sequence[InFlightMessage], error: Exception) -> None:
        """Count a failed call that will not be repeated: its messages become visible again."""
        self._counts.add("errors")
        fields = {"error": f"{type(error).__name__}: {error}"}
        for one in messages:
            self._log.error(
                "A message was left to its visibility.", extra=self._about(one) | fields
            )

    def _about(self, message: InFlightMessage) -> dict[str, Any]:
        received = message.received
        return {
            **self._fields,
            "id": received.message.id,
            "receive_count": received.receive_count,
        }


class ConsumerMetrics:
    """Writes the counts since the last write.

    Args:
        queue: knows the logical name and the partition that the topic was registered with.
        figures: takes them; None: nothing is written.
    """

    def __init__(self, queue: Source, topic: str, counts: Counts, figures: Figures | None) -> None:
        self._queue = queue
        self._topic = topic
        self._counts = counts
        self._figures = figures
        self._written = ConsumerCounts()
        self._partition: Partition | None = None
        self._known = False

    def write(self, *, last: bool = False) -> None:
        """Write the new counts, by topic, by partition, and in total.

        Args:
            last: nothing is written later: if the partition cannot be read, omit it.
        """
        counts = self._counts.counts
        if self._figures is None or counts == self._written:
            return
        if not self._registered() and not last:
            return  # goes with the next
        before = _figures(self._written)
        changed = {name: count - before[name] for name, count in _figures(counts).items()}
        self._written = counts
        if any(changed.values()):
            self._figures.emit(changed, topic=self._topic, partition=self._partition)
            self._figures.emit(changed)

    def _registered(self) -> bool:
        """Read the topic's partition once; return whether it is known."""
        if not self._known:
            try:
                self._partition = self._queue.topic(self._topic).topic.partition
            except FairboxError:
                return False
            self._known = True
        return True


def _figures(counts: ConsumerCounts) -> dict[str, int]:
    """Return the counts by metric."""
    given_back = counts.failed + counts.retried + counts.released + counts.abandoned
    return {
        RECEIVED: counts.received,
        ACKED: counts.acked,
        GIVEN_BACK: given_back,
        DEAD: counts.dead,
        LOST_RECEIPTS: counts.lost,
    }
