"""Items of lane `dead` to dead letters and back; what was buried as unreadable stays raw."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairbox.codec import attributes as attr
from fairbox.codec.keys import key_text, message_key, parse_lane_pk
from fairbox.codec.messages import message_item, number, pending_value, read_message
from fairbox.codec.subscription_status import NOT_OURS
from fairbox.errors import NewerVersion, Unreadable
from fairbox.model.stored_messages import DeadLetter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.codec.keys import Item
    from fairbox.model.stored_messages import StoredMessage


def read_dead(item: Mapping[str, Any]) -> DeadLetter:
    """Return the dead letter that an item of lane `dead` holds, raw where it is no message.

    Raises:
        Unreadable: its key is not that of a lane, or the attributes of its death cannot be read.
    """
    try:
        return _read_dead(item)
    except NOT_OURS as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error


def _read_dead(item: Mapping[str, Any]) -> DeadLetter:
    _, topic, epoch, shard = parse_lane_pk(item[attr.PK]["S"])
    reason = item.get(attr.REASON, {"S": ""})["S"]
    raw = item.get(attr.RAW, {"S": ""})["S"]
    stored, newer = None, False
    if not raw:
        try:
            stored = read_message(item)
        except NewerVersion as error:
            newer, reason = True, reason or error.reason
        except Unreadable as error:
            reason = reason or error.reason
    return DeadLetter(
        topic=topic,
        epoch=epoch,
        shard=shard,
        id=item[attr.SK]["S"],
        reason=reason,
        died_at=int(item[attr.DIED_AT]["N"]) if attr.DIED_AT in item else 0,
        stored=stored,
        raw=raw,
        newer=newer,
    )


def published_item(stored: StoredMessage) -> Item:
    """Return the item of a message as it was published, its body where it lies: without state."""
    item, _ = message_item(stored.message, stored.ref, bucket=None)
    item = dict(stored.unknown) | item
    if stored.offloaded is not None:
        item.pop(attr.BODY, None)
        item[attr.OFFLOADED] = {"S": f"{stored.offloaded.bucket}/{stored.offloaded.key}"}
        item[attr.SIZE] = number(stored.size)
    return item


def returning_item(letter: StoredMessage) -> Item:
    """Return the item of a dead letter that comes back into its own lane, under its own key.

    It is pending for the subscriptions that it died for and no other, without earlier failures.
    """
    item = published_item(letter) | message_key(letter.ref)
    if letter.pending is not None:
        item[attr.PENDING] = pending_value(letter.pending)
    if letter.edits:
        item[attr.EDITS] = number(letter.edits)
    return item | {attr.REDRIVEN: number(letter.redriven + 1)}


def purged_item(letter: StoredMessage, reason: str) -> Item:
    """Return the mark that a purged dead letter leaves in its own lane: no body, and gone already.

    Its insert is counted as a redrive's is, and its removal reaches the archive and the body store.
    """
    message = letter.message.with_content(body=b"", headers={})
    emptied = replace(letter, unknown=(), message=message)
    return returning_item(emptied) | {
        attr.GONE: {"S": "purged"},
        attr.REASON: {"S": reason},
    }
