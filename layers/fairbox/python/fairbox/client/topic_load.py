"""The load of a topic as its ledger shows it: its busiest minute, and the size of its messages."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairbox.client.outbox import Outbox


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a topic.

    Attributes:
        messages: number of messages, each counted once for all its subscriptions.
        rate: messages a second in the busiest minute, by the times of their ids.
        size: mean bytes of a body.
        kilobytes: mean size in KB, each rounded up to whole KB, as billed.
    """

    messages: int
    rate: float
    size: float
    kilobytes: float


def measured_load(outbox: Outbox, topic: str, minutes: int) -> Load:
    """Return the load of a topic by its deliveries of the last minutes (some 0.01 RRU each).

    Raises:
        UnknownTopic: there is no such topic.
    """
    now = datetime.fromtimestamp(outbox.tables.calls.clock.now(), UTC)
    seen: dict[str, int] = {}
    by_minute: Counter[int] = Counter()

    for delivery in outbox.delivered(topic, since=now - timedelta(minutes=minutes)):
        # a message counts once, however many subscriptions have taken it
        if delivery.id not in seen:
            seen[delivery.id] = delivery.size
            by_minute[delivery.added_at // 60_000] += 1

    if not seen:
        return Load(0, 0.0, 0.0, 0.0)
    whole = sum(max(1, math.ceil(size / 1024)) for size in seen.values())
    return Load(
        len(seen),
        max(by_minute.values()) / 60,
        sum(seen.values()) / len(seen),
        whole / len(seen),
    )
