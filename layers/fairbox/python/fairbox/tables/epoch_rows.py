"""Old epochs in the tables: whether they hold anything, and their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.tables.hints import hint_keys
from fairbox.tables.keys import shard_key

if TYPE_CHECKING:
    from fairbox.model.epochs import Epoch
    from fairbox.model.messages import OpenLane
    from fairbox.tables.tables import Tables

_LANES: Final[tuple[OpenLane, ...]] = ("ready", "later")


class EpochTable:
    """Reads and deletes the remains of an old epoch in the tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def counted(self, topic: str, epoch: Epoch) -> bool:
        """Whether the rows of an epoch's shards count anything, dead letters included."""
        shards = [(topic, epoch.number, shard) for shard in range(epoch.shards)]
        return any(r.outstanding > 0 or r.dead > 0 for r in self._tables.rows.get_many(shards))

    def occupied(self, topic: str, epoch: int, shard: int) -> bool:
        """Whether anything lies in a lane of a shard, `dead` included (consistent, 4 RRU).

        Lane `dead` is read first and last: a message that dies or is redriven meanwhile is seen in
        one place.
        """
        return (
            self._tables.dead.any(topic, epoch, shard)
            or any(self._tables.lanes.count(lane, topic, epoch, shard, limit=1) for lane in _LANES)
            or self._tables.dead.any(topic, epoch, shard)
        )

    def forget(self, topic: str, epoch: Epoch) -> None:
        """Delete the rows of an epoch's shards, and their hints (1 WRU each that is there).

        Raises:
            Unavailable: some are left; they hold nothing.
        """
        shards = range(epoch.shards)
        keys = [shard_key(topic, epoch.number, shard) for shard in shards]
        keys += hint_keys(topic, epoch.number, epoch.shards)
        self._tables.lanes.delete_keys(keys)
