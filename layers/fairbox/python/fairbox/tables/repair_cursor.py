"""Repair's scan of the outbox and its cursor."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fairbox.tables.keys import PK, cursor_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.tables.tables import Tables

CURSOR: Final = "cu"  # S, of `repair`: where the scan goes on, as JSON (outbox table)

_NAME = "repair"
_PAGE_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class LanePart:
    """A lane of which the scan has read a part.

    Attributes:
        key: the lane's partition key.
        count: messages that were read of it.
        sequences: of the counts `ready` and `later`, as the shard row had them at its head; of lane
            `later` None.
    """

    key: str = ""
    count: int = 0
    sequences: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place where the next run goes on.

    Attributes:
        position: of the scan; None: at the beginning.
        suspects: lane -> by how much its count was off when it was last read, if it was.
        lane: the lane in whose middle the scan stopped.
        tried: name of the given-up batch that was tried last, where the time was over; empty: all
            were tried.
    """

    position: Mapping[str, Any] | None = None
    suspects: Mapping[str, int] = field(default_factory=dict)
    lane: LanePart = field(default_factory=LanePart)
    tried: str = ""


class RepairTable:
    """Reads the outbox page by page, and keeps where the next run goes on."""

    def __init__(self, tables: Tables) -> None:
        self._calls = tables.calls
        self._table = tables.outbox

    def scan_page(
        self, position: Mapping[str, Any] | None
    ) -> tuple[list[dict[str, Any]], Mapping[str, Any] | None, float]:
        """Return messages and shard rows, where to go on, and the read units it took."""
        # not consistent, at half the price: a count that the scan disproves is only put in doubt
        arguments: dict[str, Any] = {
            "TableName": self._table,
            "Limit": _PAGE_LIMIT,
            "ReturnConsumedCapacity": "TOTAL",
        }
        if position is not None:
            arguments["ExclusiveStartKey"] = dict(position)

        answer = self._calls.call("scan", **arguments)
        lanes = [item for item in answer["Items"] if item[PK]["S"].startswith(("ready#", "later#"))]
        units = float(answer.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0))
        return lanes, answer.get("LastEvaluatedKey"), units

    def load_cursor(self) -> Cursor:
        """Return the cursor; the empty one at first."""
        answer = self._calls.call("get_item", TableName=self._table, Key=cursor_key(_NAME))
        text = answer.get("Item", {}).get(CURSOR, {}).get("S")
        if text is None:
            return Cursor()

        saved = json.loads(text)
        key, count, sequences = saved["lane"]
        lane = LanePart(key, count, None if sequences is None else tuple(sequences))
        return Cursor(saved["position"], saved["suspects"], lane, saved["tried"])

    def save_cursor(self, cursor: Cursor) -> None:
        """Keep the cursor for the next run."""
        text = json.dumps(
            {
                "position": cursor.position,
                "suspects": dict(cursor.suspects),
                "lane": [cursor.lane.key, cursor.lane.count, cursor.lane.sequences],
                "tried": cursor.tried,
            }
        )
        item = cursor_key(_NAME) | {CURSOR: {"S": text}}
        self._calls.call("put_item", TableName=self._table, Item=item)
