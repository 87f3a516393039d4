"""What a consumer counts."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, fields
from typing import Literal

Kind = Literal[
    "received", "acked", "failed", "retried", "dead", "released", "abandoned", "lost", "hung",
    "errors",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerCounts:
    """What became of the messages that a consumer received.

    Attributes:
        received: were claimed.
        acked: were handled and taken out.
        failed: their handlers raised, and they were given back with the reason.
        retried: were given back as `Retry` asked.
        dead: went to the dead letters, by `Dead` or after `max_attempts`.
        released: were given back unhandled, uncounted, when the consumer stopped.
        abandoned: were given back while their handlers still ran, at the end of a stop.
        lost: their receipts were stale: others may have received them meanwhile.
        hung: were worked on for longer than `processing_limit`, and no more extended.
        errors: calls of the queue that failed; they are repeated, or left to the visibility.
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


class Tally:
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
