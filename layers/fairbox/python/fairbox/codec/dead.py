"""Items of lane `dead` to dead letters; what was buried as unreadable stays raw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.codec import names
from fairbox.codec.keys import parse_lane_pk
from fairbox.codec.messages import read_message
from fairbox.errors import Unreadable
from fairbox.stored import DeadLetter

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_dead(item: Mapping[str, Any]) -> DeadLetter:
    """Return the dead letter that an item of lane `dead` holds, raw where it is no message.

    Raises:
        Unreadable: its key is not that of a lane.
    """
    _, topic, epoch, shard = parse_lane_pk(item[names.PK]["S"])
    reason = item.get(names.REASON, {"S": ""})["S"]
    raw = item.get(names.RAW, {"S": ""})["S"]
    stored = None
    if not raw:
        try:
            stored = read_message(item)
        except Unreadable as error:
            reason = reason or error.reason
    return DeadLetter(
        topic=topic,
        epoch=epoch,
        shard=shard,
        id=item[names.SK]["S"],
        reason=reason,
        died_at=int(item[names.DIED_AT]["N"]) if names.DIED_AT in item else 0,
        stored=stored,
        raw=raw,
    )
