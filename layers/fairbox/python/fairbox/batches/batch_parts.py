"""The context that the use cases of batches share: store, announcer, time, chance and ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from fairbox.batches.ports import Announcer, Ids
    from fairbox.model.clock import Clock
    from fairbox.tables.batch_table import BatchTable

TRIES: Final = 8
CASCADE_TRIES: Final = 3
DAY_HOURS: Final = 24
WEEK_HOURS: Final = 7 * DAY_HOURS
_BASE_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of a deployment that every use case needs.

    Attributes:
        announcer: makes messages part of a transaction.
        ids: makes ids of batches and messages.
    """

    store: BatchTable
    announcer: Announcer
    clock: Clock
    rng: Random
    ids: Ids

    def tries(self, count: int = TRIES) -> Iterator[None]:
        """Allow so many tries: full jitter before each but the first, from 5 ms, doubling."""
        for attempt in range(count):
            if attempt:
                self.clock.sleep(self.rng.random() * _BASE_SECONDS * 2.0**attempt)
            yield
