"""What every use case of batches has at hand, and how it tries again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from fairbox.batches.models import COMPLETED_TOPIC, Announcement, Change

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from fairbox.batches.models import FailedItems, Leaf, Root
    from fairbox.batches.ports import Announcer, BatchStore
    from fairbox.model.clock import Clock

TRIES: Final = 8
CASCADE_TRIES: Final = 3
DAY_HOURS: Final = 24
WEEK_HOURS: Final = 7 * DAY_HOURS
REASONS: Final = 8
REASON_BYTES: Final = 120
_BASE_SECONDS: Final = 0.005


class Ids(Protocol):
    """Makes UUIDv7 texts."""

    def next(self) -> str:
        """Return the next one."""
        ...


Parts = tuple["BatchStore", "Announcer", "Clock", "Random", Ids]
"""What `Work` is made of."""


class Work:
    """The parts that use cases share.

    Args:
        store: the batches table.
        announcer: makes messages part of a transaction.
        clock, rng, ids: time, chance, and ids of batches and messages.
    """

    def __init__(
        self, store: BatchStore, announcer: Announcer, clock: Clock, rng: Random, ids: Ids
    ) -> None:
        self.store = store
        self.announcer = announcer
        self.clock = clock
        self.rng = rng
        self.ids = ids

    @property
    def milliseconds(self) -> int:
        """The time in milliseconds since 1970 UTC."""
        return int(self.clock.now() * 1000)

    @property
    def hour(self) -> int:
        """The time in whole hours since 1970 UTC."""
        return int(self.clock.now() // 3600)

    def tries(self, count: int = TRIES) -> Iterator[int]:
        """Yield each try, with full jitter from 5 ms before all but the first."""
        for attempt in range(count):
            if attempt:
                self.clock.sleep(self.rng.random() * _BASE_SECONDS * 2.0**attempt)
            yield attempt

    def decide(self, old: Root, new: Root, message: str) -> Root | None:
        """Write the root; when it is sealed and has no bit, complete it with its announcement.

        This is the one place where a batch completes.

        Args:
            old: the root as read.
            new: the root as it shall be, its version not yet counted up.
            message: id of the announcement, should there be one.

        Returns:
            The root as written; None when the race was lost.
        """
        new = replace(new, version=old.version + 1)
        if new.state != "sealed" or new.bits:
            return new if self.store.write([Change(new, old)]) is None else None
        new = replace(new, state="complete", message=message, look=self.hour + WEEK_HOURS)
        actions = self.announcer.actions(
            Announcement(
                COMPLETED_TOPIC,
                message,
                new,
                self.store.metadata(new.batch),
                acked=new.total - new.failed,
                at=self.milliseconds,
            )
        )
        return new if self.store.write([Change(new, old)], actions) is None else None


def acked(leaf: Leaf, hit: int, hour: int) -> Leaf:
    """Return the leaf without these pending items."""
    return replace(
        leaf,
        pending=leaf.pending & ~hit,
        count=leaf.count - hit.bit_count(),
        version=leaf.version + 1,
        hour=hour,
        request=None,
    )


def failed(leaf: Leaf, hit: int, hour: int) -> Leaf:
    """Return the leaf with these pending items failed."""
    return replace(acked(leaf, hit, hour), failed=leaf.failed + hit.bit_count())


def retried(leaf: Leaf, hit: int, hour: int) -> Leaf:
    """Return the leaf with these failed items pending again."""
    return replace(
        leaf,
        pending=leaf.pending | hit,
        count=leaf.count + hit.bit_count(),
        failed=leaf.failed - hit.bit_count(),
        version=leaf.version + 1,
        hour=hour,
        request=None,
    )


def with_failures(there: FailedItems | None, new: FailedItems) -> FailedItems:
    """Return the failed items with more of them, and the newest reasons of both."""
    if there is None:
        return replace(new, reasons=new.reasons[-REASONS:])
    return replace(
        there,
        bits=there.bits | new.bits,
        reasons=(there.reasons + new.reasons)[-REASONS:],
        version=there.version + 1,
    )


def without_failures(there: FailedItems, hit: int) -> FailedItems:
    """Return the failed items without these, and without their reasons."""
    return replace(
        there,
        bits=there.bits & ~hit,
        reasons=tuple(r for r in there.reasons if not hit >> r[0] & 1),
        version=there.version + 1,
    )


def short(reason: str) -> str:
    """Return the first 120 bytes of a reason, cut between characters."""
    return reason.encode(errors="replace")[:REASON_BYTES].decode(errors="ignore")
