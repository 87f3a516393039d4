"""Waiting rows: read and renewed by consumers that wait, counted up by those who tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox.codec.attributes import PK, WAITING_ANSWERED, WAITING_ASKED, WAITING_UNTIL
from fairbox.codec.keys import waiting_key
from fairbox.codec.messages import number
from fairbox.codec.waiting import news_name, read_waiting
from fairbox.dynamodb.calls import ConditionFailed, tries_until
from fairbox.model.clock import milliseconds
from fairbox.model.waiting import slot_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairbox.dynamodb.calls import Calls
    from fairbox.model.waiting import WaitingRow

_PATIENCE_SECONDS: Final = 1.0  # for a row that is only a hint


class WaitingRows:
    """Reads and changes waiting rows.

    No message depends on a row. Its counts are only ever counted up, so writers need not read it.
    """

    def __init__(self, calls: Calls, table: str) -> None:
        self._calls = calls
        self._table = table

    def read(self, topic: str) -> WaitingRow:
        """Return a topic's row, eventually consistent (0.5 RRU); one try.

        Raises:
            FairboxError: it could not be read.
        """
        answer = self._calls.call_once(
            "get_item", TableName=self._table, Key=waiting_key(topic), ConsistentRead=False
        )
        return read_waiting(answer.get("Item", {}))

    def ask(self, topic: str, until: int) -> None:
        """Write that consumers wait until then (ms), and ask for a relay (1 WRU, at first 3).

        The question is a change of a row that is there: relays of older releases pass over it.

        Raises:
            FairboxError: it could not be written.
        """
        sets = {WAITING_UNTIL: until, WAITING_ASKED: milliseconds(self._calls.clock)}
        try:
            self._set(topic, sets, "attribute_exists(#pk)")
        except ConditionFailed:
            self._set(topic, {WAITING_UNTIL: until}, "attribute_not_exists(#pk)")
            self._set(topic, sets, "attribute_exists(#pk)")

    def answer(self, topic: str, asked: int) -> None:
        """Answer the question of that time (ms), unless it was answered (1 WRU)."""
        try:
            self._calls.call(
                "update_item",
                TableName=self._table,
                Key=waiting_key(topic),
                UpdateExpression="SET #r = :asked REMOVE #q",
                ConditionExpression="#q = :asked",
                ExpressionAttributeNames={"#r": WAITING_ANSWERED, "#q": WAITING_ASKED},
                ExpressionAttributeValues={":asked": number(asked)},
            )
        except ConditionFailed:
            return

    def tell(self, topic: str, shards: Iterable[int]) -> None:
        """Count up the news of these shards, if somebody waits (1 WRU).

        Raises:
            FairboxError: it may not be written.
        """
        slots = sorted({slot_of(shard) for shard in shards})
        now = milliseconds(self._calls.clock)
        try:
            with tries_until(self._calls.clock.now() + _PATIENCE_SECONDS):
                self._calls.call(
                    "update_item",
                    TableName=self._table,
                    Key=waiting_key(topic),
                    UpdateExpression="ADD " + ", ".join(f"#n{slot} :one" for slot in slots),
                    ConditionExpression="#u > :now",
                    ExpressionAttributeNames={f"#n{slot}": news_name(slot) for slot in slots}
                    | {"#u": WAITING_UNTIL},
                    ExpressionAttributeValues={":one": number(1), ":now": number(now)},
                )
        except ConditionFailed:
            return

    def _set(self, topic: str, values: dict[str, int], condition: str) -> None:
        names: dict[str, Any] = {f"#s{n}": name for n, name in enumerate(values)}
        self._calls.call_once(
            "update_item",
            TableName=self._table,
            Key=waiting_key(topic),
            UpdateExpression="SET " + ", ".join(f"#s{n} = :s{n}" for n in range(len(values))),
            ConditionExpression=condition,
            ExpressionAttributeNames=names | {"#pk": PK},
            ExpressionAttributeValues={
                f":s{n}": number(value) for n, value in enumerate(values.values())
            },
        )
