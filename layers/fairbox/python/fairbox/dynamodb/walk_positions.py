"""Walk positions: read, and moved where they are as they were read; one item for each shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.codec.attributes import WALK_SHARED
from fairbox.codec.keys import walk_key
from fairbox.codec.walk_positions import apart_name, apart_text, read_walk_position, shared_text
from fairbox.dynamodb.calls import ConditionFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.dynamodb.calls import Calls
    from fairbox.model.walk_positions import Places, WalkPosition


class WalkPositions:
    """Reads and moves walk positions."""

    def __init__(self, calls: Calls, table: str) -> None:
        self._calls = calls
        self._table = table

    def read(self, shard: tuple[str, int, int]) -> WalkPosition:
        """Return a shard's position, eventually consistent (0.5 RRU)."""
        answer = self._calls.call(
            "get_item", TableName=self._table, Key=walk_key(*shard), ConsistentRead=False
        )
        return read_walk_position(answer.get("Item", {}))

    def move(
        self,
        shard: tuple[str, int, int],
        before: WalkPosition,
        *,
        shared: tuple[Places, str] | None = None,
        apart: Mapping[str, Places | None] | None = None,
    ) -> WalkPosition | None:
        """Write places that are as in `before` (1 WRU).

        Args:
            shard: topic, epoch and number.
            before: the position as it was read.
            shared: the shared places and their audience; None: they stay.
            apart: places by subscription; None removes them.

        Returns:
            None if they were written; else the position that others wrote.
        """
        after: dict[str, str | None] = {}
        if shared is not None:
            after[WALK_SHARED] = shared_text(*shared)
        for name, places in (apart or {}).items():
            after[apart_name(name)] = None if places is None else apart_text(places)
        names = {f"#n{n}": name for n, name in enumerate(after)}
        sets, removes, conditions = [], [], []
        values: dict[str, Any] = {}
        for place, name in names.items():
            old, new = before.texts.get(name), after[name]
            if old is None:
                conditions.append(f"attribute_not_exists({place})")
            else:
                conditions.append(f"{place} = :o{place[2:]}")
                values[f":o{place[2:]}"] = {"S": old}
            if new is None:
                removes.append(place)
            else:
                sets.append(f"{place} = :n{place[2:]}")
                values[f":n{place[2:]}"] = {"S": new}
        update = f"SET {', '.join(sets)} " if sets else ""
        update += f"REMOVE {', '.join(removes)}" if removes else ""
        try:
            self._calls.call(
                "update_item",
                TableName=self._table,
                Key=walk_key(*shard),
                UpdateExpression=update.strip(),
                ConditionExpression=" AND ".join(conditions),
                ExpressionAttributeNames=names,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **({"ExpressionAttributeValues": values} if values else {}),
            )
        except ConditionFailed as failed:
            there = read_walk_position(failed.old)
            # ours, when the answer to an earlier try was lost
            return None if all(there.texts.get(n) == text for n, text in after.items()) else there
        return None
