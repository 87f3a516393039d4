"""Recounts to items and back: their state, and what they gather about the keys of a shard."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.keys import Item, Key, key, key_text, message_sk
from fairbox.codec.messages import message_item
from fairbox.codec.stream_records import sequence_order
from fairbox.errors import Unreadable
from fairbox.model.messages import Message, MessageRef
from fairbox.model.recounts import LaneMarks, Recount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairbox.model.recounts import Part

RECOUNTS: Final = "recount"
_DIGEST_BYTES: Final = 8
_CELL: Final = 1 + _DIGEST_BYTES
_KINDS: Final = {("present", True): b"+", ("present", False): b"-"} | {
    ("dead", True): b"d",
    ("dead", False): b"a",
}
_MEANINGS: Final = {kind: meaning for meaning, kind in _KINDS.items()}


def digest(text: str) -> bytes:
    """Return the eight bytes that stand for a sort key or an id.

    Two keys of which one changes while a million are read share theirs once in 10^13 times.
    """
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


def recount_key(topic: str, epoch: int, shard: int) -> Key:
    """Return the key of a shard's recount."""
    return key(RECOUNTS, f"{topic}#{epoch}#{shard}")


def recount_place(item: Mapping[str, Any]) -> tuple[str, int, int]:
    """Return topic, epoch and shard of a recount's item."""
    topic, epoch, shard = item[attr.SK]["S"].split("#")
    return topic, int(epoch), int(shard)


def recount_item(recount: Recount) -> Item:
    """Return the item of a recount."""
    state = asdict(recount)
    place = recount_key(*(state.pop(name) for name in ("topic", "epoch", "shard")))
    return place | {attr.RECOUNT_STATE: {"S": json.dumps(state, separators=(",", ":"))}}


def read_recount(item: Mapping[str, Any]) -> Recount:
    """Return the recount that an item holds; one that was only asked for has no state.

    Raises:
        Unreadable: it is none.
    """
    try:
        topic, epoch, shard = item[attr.SK]["S"].split("#")
        state = json.loads(item.get(attr.RECOUNT_STATE, {"S": "{}"})["S"])
        return Recount(topic, int(epoch), int(shard), **state)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error


def marks_pk(place: tuple[str, int, int]) -> str:
    """Return the partition key of what the recounts of a shard gather."""
    return f"{RECOUNTS}#{'#'.join(map(str, place))}"


def read_sk(since: int, part: Part, page: int | None = None) -> str:
    """Return the sort key of a page of keys that were read, or the beginning of all of a lane."""
    return f"{since}#read#{part}#" + ("" if page is None else f"{page:08d}")


def changes_sk(since: int, lane: str, last: str = "", first: str = "") -> str:
    """Return the sort key of changes between two sequence numbers, or the beginning of all.

    They sort by the last.
    """
    beginning = f"{since}#changed#{lane}#"
    return f"{beginning}{sequence_order(last)}#{first}" if last else beginning


def marks_value(marks: LaneMarks) -> dict[str, Any]:
    """Return the attribute that holds marks."""
    cells = [_KINDS["present", there] + at for at, there in marks.present.items()]
    cells += [_KINDS["dead", there] + at for at, there in marks.dead.items()]
    return {"B": b"".join(cells)}


def read_marks(items: Iterable[Mapping[str, Any]]) -> LaneMarks:
    """Return the marks of items together; the later item is right about a key."""
    found: dict[str, dict[bytes, bool]] = {"present": {}, "dead": {}}
    for item in items:
        packed = bytes(item[attr.RECOUNT_MARKS]["B"])
        for at in range(0, len(packed), _CELL):
            about, there = _MEANINGS[packed[at : at + 1]]
            found[about][packed[at + 1 : at + _CELL]] = there
    return LaneMarks(found["present"], found["dead"])


def keys_of(part: Part, items: Iterable[Mapping[str, Any]]) -> LaneMarks:
    """Return marks of a lane's items, of which only key and states are needed."""
    present: dict[bytes, bool] = {}
    dead: dict[bytes, bool] = {}
    for item in items:
        sk = item[attr.SK]["S"]
        if sk == attr.HEAD:
            continue
        if part != "dead":
            present[digest(sk)] = True
        if part == "dead" or _died(item):
            dead[digest(id_of(sk))] = True
    return LaneMarks(present, dead)


def id_of(sk: str) -> str:
    """Return the id in which the sort key of a lane ends."""
    return sk.rpartition("#")[2]


def _died(item: Mapping[str, Any]) -> bool:
    states = item.get(attr.STATES, {})
    values = states.get("M", {}).values() if isinstance(states, dict) else ()
    return any(attr.STATE_DEAD in value.get("M", {}) for value in values)


def fence_item(place: tuple[str, int, int], lane: Part, message_id: str, now: int) -> Item:
    """Return an item that enters a lane to leave it at once, so that the stream names the place.

    It is the mark of a message that was moved away: whoever reads it deletes it, in any release,
    and neither its coming nor its going is an event.
    """
    topic, epoch, shard = place
    due = now if lane == "later" else None
    message = Message(topic=topic, body=b"", id=message_id)
    item, _ = message_item(message, MessageRef(topic, epoch, shard, message_id, due), bucket=None)
    return item | {attr.GONE: {"S": "moved"}, attr.MOVED: {"BOOL": True}}


def fence_sk(lane: Part, message_id: str, now: int) -> str:
    """Return the sort key of that item."""
    return message_sk(message_id, now if lane == "later" else None, lane)
