"""Acks of a window of the ack queue, coalesced: one read and one write a leaf."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairbox.batches.ack_messages import parse
from fairbox.batches.item_settlement import Outcome, Settlement, item_texts, split_items
from fairbox.errors import FairboxError, NewerVersion, Unreadable
from fairbox.tables.batch_values import LeafKey, ones

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairbox.batches.batch_parts import Context
    from fairbox.batches.cascade import Cascade

PAGE: Final = 100
"""Leaves read at a time: one call, and no leaf waits long between its read and its write."""
SAMPLE: Final = 10
_SHOWN: Final = 100


@dataclass(slots=True)
class Drained:
    """The result of a window's acks.

    Attributes:
        changed: items that were pending and are acked.
        completed: ids of the batches that this completed.
        dropped: texts that are no ids, ids never issued, and ids of batches cancelled or reaped.
        left: ids that are not done, to be acked again.
        errors: the reasons, one text for each call that failed.
    """

    changed: int = 0
    completed: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


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


class CoalescedAcks:
    """Acks the items that can be acked, and names the others: no call here is all or nothing."""

    def __init__(self, context: Context, settlement: Settlement, cascade: Cascade) -> None:
        self._clock = context.clock
        self._settlement = settlement
        self._cascade = cascade

    def drain(self, items: Iterable[str], *, deadline: float) -> Drained:
        """Ack these items until the deadline (seconds since 1970); raises no `FairboxError`.

        1 RRU and 1 WRU a leaf, for any number of acks; emptied leaves cost as in `ack`.
        """
        wanted, malformed = split_items(items)
        found = Drained(dropped=malformed)
        outcome = Outcome()

        keys = list(wanted)
        for start in range(0, len(keys), PAGE):
            page = {key: wanted[key] for key in keys[start : start + PAGE]}
            self._drain_page(page, deadline, outcome, found)

        found.changed = outcome.changed
        found.left += outcome.left

        if outcome.emptied and self._clock.now() < deadline:
            try:
                found.completed += self._cascade.cascade(outcome.emptied)
            except FairboxError as error:  # the acks stand, and the stream repeats the cascade
                found.errors.append(str(error))
        return found

    def _drain_page(
        self, page: Mapping[LeafKey, int], deadline: float, outcome: Outcome, found: Drained
    ) -> None:
        if self._clock.now() >= deadline:
            found.left += [i for key, hit in page.items() for i in item_texts(key, hit)]
            return

        try:
            divided = self._settlement.divide(page)
        except FairboxError as error:
            # only the messages of this page come again
            found.errors.append(str(error))
            found.left += [i for key, hit in page.items() for i in item_texts(key, hit)]
            return

        found.dropped += divided.unknown
        for _, gone in divided.ended:
            found.dropped += gone

        for key, leaf in divided.leaves.items():
            # indexes behind the group's last one are among the unknown ids
            hit = page[key] & ones(0, leaf.size)
            if self._clock.now() >= deadline:
                found.left += item_texts(key, hit)
                continue
            try:
                self._settlement.settle_leaf("ack", leaf, hit, outcome)
            except FairboxError as error:
                found.errors.append(str(error))
                found.left += item_texts(key, hit)

            # not raised: leaves of other batches are acked all the same
            if outcome.ended is not None:
                found.dropped += outcome.ended.items
                outcome.ended = None


def ack_messages(
    messages: Iterable[tuple[str, str]], acks: CoalescedAcks, *, deadline: float
) -> AckReport:
    """Ack the items that these messages name; their order and repetition do not matter.

    Args:
        messages: (name, body) of each.
        acks: acks them.
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

    drained = acks.drain((i for own in ids.values() for i in own), deadline=deadline)
    for text in dict.fromkeys(drained.dropped):
        report.drop(text)

    # a message comes again whole: acks of what is acked already change nothing
    left = set(drained.left)
    report.failed = newer + [name for name, own in ids.items() if not left.isdisjoint(own)]
    report.acked, report.completed = drained.changed, drained.completed
    report.errors += drained.errors
    return report
