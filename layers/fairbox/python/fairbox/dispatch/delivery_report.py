"""What came of a delivery, counted by topic and subscription."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairbox.model.ids import time_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.dispatch.ports import Outcome
    from fairbox.dispatch.sending.circuit_breakers import Event
    from fairbox.dispatch.sending.sender import Outcomes
    from fairbox.model.messages import MessageRef
    from fairbox.model.stored_messages import StoredMessage


@dataclass(slots=True)
class Report:
    """What came of a delivery.

    Attributes:
        sent: (topic, subscription) -> messages taken.
        failed: (topic, subscription) -> attempts counted.
        dead: (topic, subscription) -> messages that died.
        bytes: (topic, subscription) -> bytes of the bodies of what was taken.
        delivered: messages that left the outbox.
        retried: (topic, subscription) -> messages tried again.
        delay: (topic, subscription) -> the longest that a message taken had been due (s).
        circuits: what became of circuits.
        left: of a delivery to quick ones only, what others still lack who were not tried.
        errors: what went wrong with the tables; the sweep takes these messages up.
        resume: when what had no token of its rate may go on (ms), for the visit to ring; None: all
            had one.
        outcomes: what the destinations answered, by message and subscription.
        after: messages that stay or have just died, as they were written.
        unsettled: messages of which it could not be written what came of them.
        waits: by subscription that does not take everything now: when to come back (ms).
        quiet: those of them that are not ready: who probes or resumes them rings before.
    """

    sent: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    failed: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    dead: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    retried: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    delay: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    circuits: list[Event] = field(default_factory=list)
    bytes: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    delivered: int = 0
    left: list[MessageRef] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    resume: int | None = None
    outcomes: Outcomes = field(default_factory=dict)
    after: dict[MessageRef, StoredMessage] = field(default_factory=dict)
    unsettled: set[MessageRef] = field(default_factory=set)
    waits: dict[str, int] = field(default_factory=dict)
    quiet: set[str] = field(default_factory=set)

    @property
    def progress(self) -> int:
        """How much moved: what was taken and what died."""
        return sum(self.sent.values()) + sum(self.dead.values())


def count_sent(
    stored: StoredMessage, outcomes: Mapping[str, Outcome], report: Report, now: int
) -> None:
    """Count what was taken of a message at `now` (ms), and what was tried again."""
    for name, outcome in outcomes.items():
        key = (stored.ref.topic, name)
        report.sent[key] += outcome.taken
        report.retried[key] += stored.state(name).attempts > 0
        if outcome.taken:
            report.bytes[key] += stored.size
            since = max(time_of(stored.ref.id), stored.ref.due or 0)
            report.delay[key] = max(report.delay[key], (now - since) / 1000)


def count_failed(
    stored: StoredMessage, outcomes: Mapping[str, Outcome], died: frozenset[str], report: Report
) -> None:
    """Count what a message was refused by, and died for."""
    for name, outcome in outcomes.items():
        report.failed[stored.ref.topic, name] += outcome.verdict == "refused"
    for name in died:
        report.dead[stored.ref.topic, name] += 1
