"""Steps that every visit takes, and its report."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.burials import Burials
from fairbox.dispatch.delivery_result import DeliveryResult
from fairbox.dispatch.ports import Doorbell
from fairbox.dispatch.tombstones import finish_marked
from fairbox.observability.delivery_metrics import DeliveryMetrics

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fairbox.dispatch.dispatcher import Dispatcher
    from fairbox.model.topics import Subscription, TopicState
    from fairbox.tables.shard_rows import ShardRow
    from fairbox.tables.stored_messages import StoredMessage
    from fairbox.tables.tables import Tables

_FIRST_BACKOFF_SECONDS: Final = 60
MAX_BACKOFF_SECONDS: Final = 600
FROM_HEAD: Final = "head:"
"""`Doorbell.after` of a walk that forgets the shard's position."""
PAGE: Final = 100
_LEAST_PAGE: Final = 5


@dataclass(slots=True)
class VisitReport:
    """The result of a visit.

    Attributes:
        deliveries: one for each page.
        finished: marked messages whose removal somebody else had begun.
        unreadable: items buried as they are.
        unfinished: the time limit came first; another visit of the shard was enqueued.
    """

    deliveries: list[DeliveryResult] = field(default_factory=list)
    finished: int = 0
    unreadable: int = 0
    unfinished: bool = False

    @property
    def progress(self) -> int:
        """The number of steps forward."""
        moved = sum(delivery.progress for delivery in self.deliveries)
        return moved + self.finished + self.unreadable


def readable(
    tables: Tables,
    messages: Sequence[StoredMessage],
    unreadable: Sequence[Mapping[str, object]],
    report: VisitReport,
) -> list[StoredMessage]:
    """Bury unreadable items, finish messages marked as leaving; return the outstanding ones."""
    for item in unreadable:
        Burials(tables).bury_raw(item, "unreadable")
        report.unreadable += 1
    errors: list[str] = []
    report.finished += finish_marked(tables, [m for m in messages if m.gone], errors)
    if errors:
        report.deliveries.append(DeliveryResult(DeliveryMetrics(errors=errors)))
    return [m for m in messages if not m.gone]


def postpone_check(tables: Tables, row: ShardRow, next_due: int, now: int) -> None:
    """Postpone the sweep's next check: to the next due time, or twice as far as before (3 WRU)."""
    backoff = min(MAX_BACKOFF_SECONDS, max(_FIRST_BACKOFF_SECONDS, row.backoff * 2))
    next_check_at = now + backoff * 1000
    if now < next_due:
        next_check_at = min(next_check_at, next_due)
    tables.rows.postpone(row, next_check_at, backoff)


def ring_at(dispatcher: Dispatcher, shard: tuple[str, int, int], seconds: set[int]) -> None:
    """Enqueue visits of a shard at these times, in seconds since 1970 UTC; 0: at once."""
    dispatcher.doorbells.ring(
        [Doorbell(*shard, not_before=second * 1000) for second in sorted(seconds)]
    )


def limited(audience: TopicState) -> Subscription | None:
    """Return the only subscription that a visit sends to, if it has a rate."""
    one = audience.subscriptions
    return one[0] if len(one) == 1 and one[0].rate is not None else None


def page_size(audience: TopicState) -> int:
    """Return the size of a page: at most the messages that may be sent in two seconds."""
    rates = [s.rate for s in audience.subscriptions]
    most = max((PAGE if rate is None else math.ceil(2 * rate) for rate in rates), default=PAGE)
    return min(PAGE, max(_LEAST_PAGE, most))


def paced(report: VisitReport) -> set[str]:
    """Return the subscriptions with messages that have no token of their rate."""
    return {name for delivery in report.deliveries for name in delivery.paced}


def next_turns(
    dispatcher: Dispatcher,
    doorbell: Doorbell,
    topic: TopicState,
    waiting: Collection[str],
    served: Collection[str],
) -> dict[str, int]:
    """Return by subscription with a rate when the shard's messages get their next turn (ms).

    Args:
        dispatcher: knows the rates.
        doorbell: names the shard.
        topic: its topic.
        waiting: the subscriptions whose messages have no token.
        served: those of them that were called, or for which a second later there may be room.
    """
    epoch = topic.epoch(doorbell.epoch)
    shards = doorbell.shard + 1 if epoch is None else epoch.shards
    return {
        s.name: dispatcher.gate.turn(s, doorbell.shard, shards, served=s.name in served)
        for s in topic.subscriptions
        if s.name in waiting and s.rate is not None
    }
