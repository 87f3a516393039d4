"""What every visit does with what it reads, and what it tells of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fairbox.dispatch.delivery_report import Report
from fairbox.dispatch.ports import Doorbell
from fairbox.dispatch.tombstones import finish_marked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.dispatch.dispatcher import Dispatcher
    from fairbox.dispatch.ports import Store
    from fairbox.model.stored_messages import ShardRow, StoredMessage

_FIRST_BACKOFF_SECONDS: Final = 60
MAX_BACKOFF_SECONDS: Final = 600


@dataclass(slots=True)
class VisitReport:
    """What a visit did: reports of its deliveries, marked messages finished, whether time ran out.

    Attributes:
        deliveries: one for each page.
        finished: marked messages whose leaving somebody else had begun.
        unreadable: items buried as they are.
        unfinished: the time limit came first; the shard was rung for again.
    """

    deliveries: list[Report] = field(default_factory=list)
    finished: int = 0
    unreadable: int = 0
    unfinished: bool = False

    @property
    def progress(self) -> int:
        """How much moved."""
        moved = sum(d.progress + d.delivered for d in self.deliveries)
        return moved + self.finished + self.unreadable


def readable(
    store: Store,
    messages: Sequence[StoredMessage],
    unreadable: Sequence[Mapping[str, object]],
    report: VisitReport,
) -> list[StoredMessage]:
    """Bury what cannot be read, finish what is marked as leaving; return what is outstanding."""
    for item in unreadable:
        store.bury_raw(item, "unreadable")
        report.unreadable += 1
    errors: list[str] = []
    report.finished += finish_marked(store, [m for m in messages if m.gone], errors)
    if errors:
        report.deliveries.append(Report(errors=errors))
    return [m for m in messages if not m.gone]


def look_again(store: Store, row: ShardRow, next_due: int, now: int) -> None:
    """Move the next look on: to what is due next, or twice as far as the last time (3 WRU)."""
    backoff = min(MAX_BACKOFF_SECONDS, max(_FIRST_BACKOFF_SECONDS, row.backoff * 2))
    look_at = now + backoff * 1000
    if now < next_due:
        look_at = min(look_at, next_due)
    store.look_again(row, look_at, backoff)


def ring_at(dispatcher: Dispatcher, shard: tuple[str, int, int], seconds: set[int]) -> None:
    """Ring for a shard at these times, in seconds since 1970 UTC; 0: at once."""
    dispatcher.doorbells.ring(
        [Doorbell(*shard, not_before=second * 1000) for second in sorted(seconds)]
    )
