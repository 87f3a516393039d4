"""Waiting rows: what consumers that wait for messages tell the relay, and hear from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SLOTS: Final = 64


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A topic's waiting row.

    Attributes:
        until: until when consumers may wait, in milliseconds since 1970 UTC; 0: nobody waits.
        asked: when a consumer asked whether a relay answers (ms); None: no question is open.
        answered: the question that a relay answered last; None: it never did.
        news: counts of news by slot; a count that differs from the last one says that messages came
            to shards of the slot, or came back.
    """

    until: int = 0
    asked: int | None = None
    answered: int | None = None
    news: Mapping[int, int] = field(default_factory=dict)

    @property
    def trusted(self) -> bool:
        """Whether a relay tells of inserts: it has answered the last question."""
        return self.answered is not None and self.asked is None


def slot_of(shard: int) -> int:
    """Return the slot in which news of a shard are counted."""
    return shard % SLOTS
