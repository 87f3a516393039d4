"""The latest changes of topics, by which processes drop the copies that are out of date."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SLOTS: Final = 24
"""Changes that are kept: with the longest list of busiest topics their row stays under 4 KB."""
_DIGEST_BYTES: Final = 6


@lru_cache(maxsize=10_000)
def topic_digest(name: str) -> bytes:
    """Return the six bytes that stand for a topic; two that share them drop one copy too many."""
    return hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """Counts of changes, and which topics the latest concerned.

    Attributes:
        version: changes of topics and subscriptions so far.
        announced: circuits opened and pauses changed so far.
        latest: the digest of a change's topic by the number of the change: `total` before it.
    """

    version: int = 0
    announced: int = 0
    latest: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Changes of either kind so far."""
        return self.version + self.announced

    def since(self, earlier: TopicChanges) -> frozenset[bytes] | None:
        """Return the digests of the topics that changed after `earlier`; None: nobody knows.

        Nobody knows where more changes came than are kept, where two writers took one slot, or
        where a release that keeps none made a change.
        """
        if not 0 <= self.total - earlier.total <= SLOTS:
            return None
        try:
            return frozenset(self.latest[n] for n in range(earlier.total, self.total))
        except KeyError:
            return None
