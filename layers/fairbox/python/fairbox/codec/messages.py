"""Messages to items and back. Items that the codec did not write raise `Unreadable`."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from fairbox.codec import attributes as attr
from fairbox.codec.attributes import PK, SK
from fairbox.codec.item_versions import check_version, unknown_of
from fairbox.codec.keys import Item, key_text, message_key, parse_lane_pk
from fairbox.errors import BodyTooLarge, FairboxError, NewerVersion, Unreadable
from fairbox.model import bodies
from fairbox.model.ids import time_of
from fairbox.model.messages import Message, MessageRef
from fairbox.model.stored_messages import (
    Claim,
    Failure,
    Gone,
    Offloaded,
    StoredMessage,
    SubscriptionState,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

WRITTEN: Final = 1
"""The version that a message asks of its reader; raised one minor release after readers know it."""
_FIRST_VERSION: Final = {"N": "1"}
_CONTENT: Final = (
    attr.BODY,
    attr.CODING,
    attr.OFFLOADED,
    attr.SIZE,
    attr.CONTENT_TYPE,
    attr.HEADERS,
    attr.EDITS,
)

_KNOWN: Final = frozenset(
    {
        PK, SK, attr.VERSION, attr.BODY, attr.CODING, attr.OFFLOADED, attr.SIZE,
        attr.CONTENT_TYPE, attr.HEADERS, attr.PARTITION_KEY, attr.DEDUP_KEY,
        attr.FAIRNESS_KEY, attr.BATCH_ITEM, attr.DIRECT, attr.PENDING, attr.STATES,
        attr.GONE, attr.REASON, attr.DUE, attr.REDRIVEN, attr.DIED_AT, attr.RAW,
        attr.HOLDER, attr.CLAIM_UNTIL, attr.CLAIM_COUNT, attr.CONSUMER, attr.EDITS, attr.MOVED,
        attr.SKIPPED, attr.EXPIRES_AT,
    }
)  # fmt: skip


def number(value: float) -> dict[str, str]:
    """Return a number attribute."""
    return {"N": str(value)}


def _s(item: Mapping[str, Any], name: str) -> str | None:
    value = item.get(name)
    return None if value is None else cast("str", value["S"])


def message_item(
    message: Message, ref: MessageRef, *, bucket: str | None, offload: bool = False
) -> tuple[Item, tuple[str, bytes] | None]:
    """Return a new message's item, and the object (key, body) to store first if offloaded.

    Args:
        message: what is published.
        ref: its ref.
        bucket: where bodies lie that do not fit an item or, unpacked, a line of the archive; None:
            there is none, and what does not fit the item is refused.
        offload: with a bucket, the body is to lie there even if it fits.

    Raises:
        BodyTooLarge: the body does not fit the item and there is no bucket.
    """
    item: Item = message_key(ref) | {
        attr.VERSION: number(WRITTEN),
        attr.SIZE: number(len(message.body)),
        attr.CONTENT_TYPE: {"S": message.content_type},
    }
    for name, value in (
        (attr.PARTITION_KEY, message.partition_key),
        (attr.DEDUP_KEY, message.dedup_key),
        (attr.FAIRNESS_KEY, message.fairness_key),
        (attr.BATCH_ITEM, message.batch_item),
    ):
        if value is not None:
            item[name] = {"S": value}
    if message.direct:
        item[attr.DIRECT] = {"BOOL": True}
    if message.headers:
        item[attr.HEADERS] = {"M": {k: {"S": v} for k, v in message.headers.items()}}
    packed, compressed = message.body, False
    if len(message.body) > bodies.COMPRESS_OVER:
        packed, compressed = bodies.compress(message.body)
    fits = len(packed) <= bodies.OFFLOAD_OVER
    if not fits and bucket is None:
        raise BodyTooLarge(len(message.body), bodies.OFFLOAD_OVER)
    large = offload or len(message.body) > bodies.ARCHIVED_UP_TO
    if not fits or (bucket is not None and large):
        # an id that is added again must not overwrite the body that is there
        digest = hashlib.sha256(message.body).hexdigest()[:16]
        object_key = f"{_object_key(message.topic, message.id)}-{digest}"
        item[attr.OFFLOADED] = {"S": f"{bucket}/{object_key}"}
        return item, (object_key, message.body)
    item[attr.BODY] = {"B": packed}
    if compressed:
        item[attr.CODING] = {"S": "z"}
    return item, None


def _object_key(topic: str, id_: str) -> str:
    return f"bodies/{topic}/{id_}"


def _offloaded(item: Mapping[str, Any], topic: str, id_: str) -> Offloaded:
    """Return the place of the body: the message's own key, or that, a dash and what tells bodies.

    The right to write items does not open the bucket: an item that named another message's body
    would have that body delivered to its own topic's receivers, and then expired.
    """
    bucket, _, object_key = item[attr.OFFLOADED]["S"].partition("/")
    own = _object_key(topic, id_)
    if object_key != own and not object_key.startswith(f"{own}-"):
        raise Unreadable(key_text(item), "its offloaded body is another message's")
    return Offloaded(bucket, object_key)


def with_content(item: Mapping[str, Any], content: Mapping[str, Any]) -> Item:
    """Return an item with its content, and the count of its edits, from another one."""
    edited = {name: value for name, value in item.items() if name not in _CONTENT}
    return edited | {name: content[name] for name in _CONTENT if name in content}


def read_message(item: Mapping[str, Any]) -> StoredMessage:
    """Return the message that an item of a lane holds.

    Raises:
        Unreadable: the item is not what `message_item` and the updates write; NewerVersion: it is
            what a newer release writes.
    """
    try:
        return _read_message(item)
    except NewerVersion:
        raise
    except Unreadable as unreadable:
        raise Unreadable(key_text(item), unreadable.reason) from unreadable
    except (
        FairboxError,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
    ) as error:
        reason = f"{type(error).__name__}: {error}"
        raise Unreadable(key_text(item), reason) from error


def _read_message(item: Mapping[str, Any]) -> StoredMessage:
    lane, topic, epoch, shard = parse_lane_pk(item[PK]["S"])
    if item.get(attr.VERSION) != _FIRST_VERSION:
        check_version(item, attr.VERSION)
    sk = item[SK]["S"]
    due: int | None = None
    if lane == "later":
        due_text, _, sk = sk.partition("#")
        due = int(due_text)
    elif attr.DUE in item:
        due = int(item[attr.DUE]["N"])
    if message_key(MessageRef(topic, epoch, shard, sk, due), lane) != {PK: item[PK], SK: item[SK]}:
        # deleting by its ref would miss it
        raise Unreadable(key_text(item), "its key is not written as keys are")
    size = int(item[attr.SIZE]["N"])
    offloaded = None
    body = b""
    if attr.OFFLOADED in item:
        offloaded = _offloaded(item, topic, sk)
    else:
        body = _body(item, size)
    message = Message(
        topic=topic,
        body=body,
        partition_key=_s(item, attr.PARTITION_KEY),
        content_type=item[attr.CONTENT_TYPE]["S"],
        headers={k: v["S"] for k, v in item.get(attr.HEADERS, {"M": {}})["M"].items()},
        dedup_key=_s(item, attr.DEDUP_KEY),
        fairness_key=_s(item, attr.FAIRNESS_KEY),
        batch_item=_s(item, attr.BATCH_ITEM),
        direct=attr.DIRECT in item,
        id=sk,
    )
    if due is not None:
        message = replace(message, delay=max(0, due - time_of(sk)) / 1000)
    return StoredMessage(
        message=message,
        ref=MessageRef(topic, epoch, shard, sk, due),
        lane=lane,
        size=size,
        pending=frozenset(item[attr.PENDING]["SS"]) if attr.PENDING in item else None,
        states=_read_states(item),
        gone=_gone(item),
        reason=_s(item, attr.REASON) or "",
        offloaded=offloaded,
        redriven=int(item[attr.REDRIVEN]["N"]) if attr.REDRIVEN in item else 0,
        claim=_claim(item),
        edits=int(item[attr.EDITS]["N"]) if attr.EDITS in item else 0,
        moved=attr.MOVED in item,
        skipped={n: v["S"] for n, v in item.get(attr.SKIPPED, {"M": {}})["M"].items()},
        packed=0 if offloaded is not None else len(item[attr.BODY]["B"]),
        unknown=() if item.keys() <= _KNOWN else unknown_of(item, _KNOWN),
    )


def _claim(item: Mapping[str, Any]) -> Claim | None:
    if attr.CLAIM_COUNT not in item:
        return None
    token = item.get(attr.HOLDER, {"B": b""})["B"]
    if not isinstance(token, bytes):
        raise TypeError("the token is not binary")
    token = bytes(token)
    return Claim(
        int(item[attr.CLAIM_COUNT]["N"]),
        int(item[attr.CLAIM_UNTIL]["N"]),
        token,
        _consumer(item, token),
    )


def _consumer(item: Mapping[str, Any], token: bytes) -> str:
    """Return the name that the holder gave; a name that another claim left does not count."""
    named = bytes(item.get(attr.CONSUMER, {"B": b""})["B"])
    return named.removeprefix(token).decode() if token and named.startswith(token) else ""


def _body(item: Mapping[str, Any], size: int) -> bytes:
    packed = item[attr.BODY]["B"]
    if not isinstance(packed, bytes):
        raise TypeError("the body is not binary")
    body = bodies.decompress(packed, size) if attr.CODING in item else packed
    if len(body) != size:
        raise ValueError(f"the body has {len(body)} bytes, not {size}")
    return body


def _gone(item: Mapping[str, Any]) -> Gone | None:
    gone = _s(item, attr.GONE)
    if gone is not None and gone not in get_args(Gone):
        raise ValueError(f"nothing leaves as {gone!r}")
    return cast("Gone | None", gone)


def _read_states(item: Mapping[str, Any]) -> dict[str, SubscriptionState]:
    return {
        name: SubscriptionState(
            attempts=int(value["M"][attr.STATE_ATTEMPTS]["N"]),
            due=int(value["M"][attr.STATE_DUE]["N"]),
            history=tuple(
                Failure(int(f["L"][0]["N"]), int(f["L"][1]["N"]), f["L"][2]["S"])
                for f in value["M"][attr.STATE_HISTORY]["L"]
            ),
            dead=attr.STATE_DEAD in value["M"],
        )
        for name, value in item.get(attr.STATES, {"M": {}})["M"].items()
    }


def states_value(states: Mapping[str, SubscriptionState]) -> dict[str, Any]:
    """Return the attribute that holds the states by subscription."""
    return {
        "M": {
            name: {
                "M": {
                    attr.STATE_ATTEMPTS: number(state.attempts),
                    attr.STATE_DUE: number(state.due),
                    attr.STATE_HISTORY: {
                        "L": [
                            {"L": [number(f.attempt), number(f.at), {"S": f.error}]}
                            for f in state.history
                        ]
                    },
                    **({attr.STATE_DEAD: {"BOOL": True}} if state.dead else {}),
                }
            }
            for name, state in states.items()
        }
    }


def skipped_value(skipped: Mapping[str, str]) -> dict[str, Any]:
    """Return the attribute that holds the reasons of skips by subscription."""
    return {"M": {name: {"S": reason} for name, reason in skipped.items()}}


def pending_value(pending: frozenset[str]) -> dict[str, Any]:
    """Return the attribute that names the subscriptions that still lack a message."""
    return {"SS": sorted(pending)}


def stored_item(stored: StoredMessage, original: Mapping[str, Any]) -> Item:
    """Return the original item with the state of `stored` in it, under `stored`'s own key."""
    item = dict(original) | message_key(stored.ref, stored.lane)
    for name in (
        attr.PENDING,
        attr.STATES,
        attr.GONE,
        attr.REASON,
        attr.REDRIVEN,
        attr.SKIPPED,
    ):
        item.pop(name, None)
    if stored.pending is not None:
        item[attr.PENDING] = pending_value(stored.pending)
    if stored.states:
        item[attr.STATES] = states_value(stored.states)
    if stored.gone:
        item[attr.GONE] = {"S": stored.gone}
    if stored.reason:
        item[attr.REASON] = {"S": stored.reason}
    if stored.redriven:
        item[attr.REDRIVEN] = number(stored.redriven)
    if stored.skipped:
        item[attr.SKIPPED] = skipped_value(stored.skipped)
    if stored.lane != "later" and stored.ref.due is not None:
        item[attr.DUE] = number(stored.ref.due)
    return item
