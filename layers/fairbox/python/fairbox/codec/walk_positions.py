"""Walk positions as items: one for each shard, beside the hint rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox.codec.attributes import WALK_APART, WALK_SHARED
from fairbox.model.walk_positions import Places, WalkPosition

if TYPE_CHECKING:
    from collections.abc import Mapping

_BETWEEN: Final = "|"


def apart_name(subscription: str) -> str:
    """Return the attribute that holds a subscription's places."""
    return f"{WALK_APART}{subscription}"


def apart_text(places: Places) -> str:
    """Return a subscription's places as an attribute's text."""
    return _BETWEEN.join((places.ready, places.later, str(places.written)))


def shared_text(places: Places, audience: str) -> str:
    """Return the places that subscriptions share, as an attribute's text."""
    return _BETWEEN.join((places.ready, places.later, audience))


def read_walk_position(item: Mapping[str, Any]) -> WalkPosition:
    """Return a shard's position; from the head where there is none, or none that can be read."""
    texts = {
        name: str(value["S"])
        for name, value in item.items()
        if (name == WALK_SHARED or name.startswith(WALK_APART)) and "S" in value
    }
    shared, audience = _parts(texts.get(WALK_SHARED, ""))
    apart = {}
    for name, text in texts.items():
        if name.startswith(WALK_APART):
            places, written = _parts(text)
            time = int(written) if written.isdecimal() else 0
            apart[name.removeprefix(WALK_APART)] = Places(places.ready, places.later, time)
    return WalkPosition(shared, audience, apart, texts)


def _parts(text: str) -> tuple[Places, str]:
    parts = text.split(_BETWEEN)
    return (Places(parts[0], parts[1]), parts[2]) if len(parts) == 3 else (Places(), "")
