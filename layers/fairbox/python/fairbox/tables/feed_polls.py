"""The row of the polls of feeds that are held: one set, which bounds how many there are."""

from __future__ import annotations

from typing import Any, Final

from fairbox.tables.calls import ConditionFailed, Rows
from fairbox.tables.keys import key
from fairbox.tables.stored_messages import number

# held polls (table Feeds)
HELD: Final = "h"  # SS, each poll: until when, in s since 1970 UTC, a space, its id

HELD_KEY: Final = key("polls", "held")


class FeedPolls(Rows):
    """Reads and writes the row of held polls."""

    def hold(self, poll: str, most: int) -> bool:
        """Count a poll as held, unless `most` are (1 WRU a KB; 3 where killed ones leave room).

        Args:
            poll: `<until> <id>`; it counts until then, even if nobody releases it.
            most: polls that may be held.
        """
        room = "attribute_not_exists(#h) OR size(#h) < :most"
        # with a bound of 0 even the first poll, which finds no row, is refused
        for _ in range(2 if most else 0):
            try:
                self._update("ADD", {poll}, ConditionExpression=room, most=most)
            except ConditionFailed as failed:
                polls = failed.old.get(HELD, {}).get("SS", ())
                # the holders of polls past their time were killed: nobody else releases these
                ended = {one for one in polls if float(one.split()[0]) < self._calls.clock.now()}
                if not ended:
                    return False
                self._update("DELETE", ended)
            else:
                return True

        return False

    def release(self, poll: str) -> None:
        """Let another poll be held (1 WRU a KB)."""
        self._update("DELETE", {poll})

    def _update(self, verb: str, polls: set[str], most: int | None = None, **more: Any) -> None:
        values: dict[str, Any] = {} if most is None else {":most": number(most)}
        self._calls.call(
            "update_item",
            TableName=self._table,
            Key=HELD_KEY,
            UpdateExpression=f"{verb} #h :polls",
            ExpressionAttributeNames={"#h": HELD},
            ExpressionAttributeValues={":polls": {"SS": sorted(polls)}} | values,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **more,
        )
