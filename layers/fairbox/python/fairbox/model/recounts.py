"""Recounts of shards: how far one is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Part = Literal["ready", "later", "dead"]
PARTS: Final[tuple[Part, ...]] = ("ready", "later", "dead")


@dataclass(frozen=True, slots=True)
class Recount:
    """A recount of one shard that was asked for.

    Attributes:
        topic, epoch, shard: which shard.
        since: when it began, in milliseconds since 1970 UTC; 0: it has not.
        part: the lane that is read; None: all are.
        after: the sort key up to which that lane was read; empty: its reading has not begun.
        pages: pages that were read, of all lanes.
        purged: `purged_dead` of the shard's row when it began.
        fences: lane -> sort key of the item that was put there and deleted after all were read.
    """

    topic: str
    epoch: int
    shard: int
    since: int = 0
    part: Part | None = "ready"
    after: str = ""
    pages: int = 0
    purged: int = 0
    fences: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, int, int]:
        """The shard."""
        return self.topic, self.epoch, self.shard


@dataclass(frozen=True, slots=True)
class LaneMarks:
    """Keys of a lane, by digest: those that were read, or the newest state of those that changed.

    Attributes:
        present: digest of a sort key -> whether the item lies in the lane.
        dead: digest of an id -> whether a dead letter of that id counts.
    """

    present: Mapping[bytes, bool] = field(default_factory=dict)
    dead: Mapping[bytes, bool] = field(default_factory=dict)
