"""The reader of the ack queue: all messages of a window become one coalesced ack."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from fairbox.batches.ack_messages import parse
from fairbox.errors import NewerVersion, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairbox.batches.coalesced_acks import Drained

SAMPLE: Final = 10
_SHOWN: Final = 100


class Drain(Protocol):
    """Acks as many items as it can, and names the others."""

    def drain(self, item_ids: Iterable[str], *, deadline: float) -> Drained:
        """Ack until the deadline; raises nothing of Fairbox's."""
        ...


@dataclass(slots=True)
class AckReport:
    """The result of a window of messages.

    Attributes:
        failed: names of the messages that are to come again.
        acked: items that were pending and are acked.
        dropped: ids that cannot be acked, and messages that name no ids.
        sample: the first of these, cut to 100 characters.
        completed: ids of the batches that this completed.
        errors: the reasons why messages failed.
    """

    failed: list[str] = field(default_factory=list)
    acked: int = 0
    dropped: int = 0
    sample: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def drop(self, text: str) -> None:
        """Count a text that cannot be acked."""
        self.dropped += 1
        if len(self.sample) < SAMPLE:
            self.sample.append(text[:_SHOWN])


def ack_messages(
    messages: Iterable[tuple[str, str]], batches: Drain, *, deadline: float
) -> AckReport:
    """Ack the items that these messages name; their order and repetition do not matter.

    Args:
        messages: (name, body) of each.
        batches: acks them.
        deadline: in seconds since 1970; messages with ids not done by then are to come again.
    """
    report = AckReport()
    ids: dict[str, list[str]] = {}
    newer: list[str] = []
    for name, body in messages:
        try:
            ids[name] = parse(body)
        except NewerVersion as error:
            # not dropped: a newer release has written it, and reads it after the upgrade
            newer.append(name)
            report.errors.append(str(error))
        except Unreadable:
            report.drop(body)

    drained = batches.drain((i for own in ids.values() for i in own), deadline=deadline)
    for text in dict.fromkeys(drained.dropped):
        report.drop(text)

    # a message comes again whole: acks of what is acked already change nothing
    left = set(drained.left)
    report.failed = newer + [name for name, own in ids.items() if not left.isdisjoint(own)]
    report.acked, report.completed = drained.changed, drained.completed
    report.errors += drained.errors
    return report
