"""Waiting rows as items, and the questions to the relay as stream records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox.codec.attributes import (
    PK,
    SK,
    WAITING_ANSWERED,
    WAITING_ASKED,
    WAITING_NEWS,
    WAITING_UNTIL,
)
from fairbox.codec.keys import waiting_key
from fairbox.model.waiting import SLOTS, WaitingRow

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX: Final = "hint#"


def news_name(slot: int) -> str:
    """Return the attribute that counts the news of a slot."""
    return f"{WAITING_NEWS}{slot}"


def read_waiting(item: Mapping[str, Any]) -> WaitingRow:
    """Return a waiting row; what cannot be read counts as absent."""
    news = {slot: count for slot in range(SLOTS) if (count := _number(item, news_name(slot)))}
    return WaitingRow(
        _number(item, WAITING_UNTIL) or 0,
        _number(item, WAITING_ASKED),
        _number(item, WAITING_ANSWERED),
        news,
    )


def read_question(record: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return the topic and time (ms) of a stream record that is a question; None: it is none."""
    if record["eventName"] != "MODIFY":
        return None
    keys, image = record["dynamodb"]["Keys"], record["dynamodb"].get("NewImage", {})
    topic = str(keys[PK].get("S", "")).removeprefix(_PREFIX)
    asked = _number(image, WAITING_ASKED)
    own = waiting_key(topic) == {PK: keys[PK], SK: keys.get(SK)}
    return (topic, asked) if own and asked is not None else None


def _number(item: Mapping[str, Any], name: str) -> int | None:
    try:
        return int(item[name]["N"])
    except (KeyError, TypeError, ValueError):
        return None
