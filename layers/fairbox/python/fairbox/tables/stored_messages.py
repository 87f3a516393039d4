"""Messages as they lie in a lane: the value, its item and back.

`read_message` raises `Unreadable` for items that these functions did not write.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from fairbox.errors import BodyTooLarge, FairboxError, NewerVersion, NotConfigured, Unreadable
from fairbox.model import bodies
from fairbox.model.ids import time_of
from fairbox.model.messages import Lane, Message, MessageRef
from fairbox.settings import BODIES_BUCKET
from fairbox.tables.keys import (
    EXPIRES_AT,
    PK,
    SK,
    Item,
    check_version,
    key_text,
    message_key,
    parse_lane_pk,
    unknown_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.model.bodies import BodyStore

# of a message (lanes `ready` and `later` of the outbox, lane `dead` of the deliveries table)
VERSION: Final = "v"  # N, codec version that a reader must know; absent: 1
SIZE: Final = "z"  # N, bytes of the body as published; on every message and on nothing else
BODY: Final = "b"  # B, the body, maybe compressed
CODING: Final = "e"  # S, "z": zlib
OFFLOADED: Final = "o"  # S, bucket/key of an offloaded body
CONTENT_TYPE: Final = "t"  # S
HEADERS: Final = "h"  # M of S
PARTITION_KEY: Final = "k"  # S
DEDUP_KEY: Final = "u"  # S
FAIRNESS_KEY: Final = "f"  # S
BATCH_ITEM: Final = "i"  # S
DIRECT: Final = "di"  # BOOL, it goes before other messages; only where it does
PENDING: Final = "p"  # SS, subscriptions that still lack it
STATES: Final = "s"  # M: subscription -> state
GONE: Final = "g"  # S
REASON: Final = "r"  # S
DUE: Final = "d"  # N, ms: of a delayed message, in lane `dead` only (else it is in the key)
REDRIVEN: Final = "n"  # N, how often it was put back from the dead letters
DIED_AT: Final = "a"  # N, ms: in lane `dead`
RAW: Final = "raw"  # S, an unreadable item as JSON, in lane `dead`
HOLDER: Final = "ct"  # B, of who holds a received message, or a dead letter
CLAIM_UNTIL: Final = "cl"  # N, ms, when it may be received again
CLAIM_COUNT: Final = "cn"  # N, how often it was received
CONSUMER: Final = "hn"  # B, the token of the claim and the name that its consumer gave
EDITS: Final = "ed"  # N, how often an operator changed it
SKIPPED: Final = "sn"  # M of S: reason by subscription for which an operator skipped it
MOVED: Final = "mv"  # BOOL, an operator put it here from another due time

# inside a subscription's state
STATE_ATTEMPTS: Final = "n"  # N, attempts counted
STATE_DUE: Final = "d"  # N, ms, when the next may be made
STATE_HISTORY: Final = "h"  # L of [attempt, at (ms), error], the newest ten, texts cut to fit
STATE_DEAD: Final = "g"  # BOOL, it died for this subscription

Gone = Literal["dead", "cancelled", "purged", "expired", "moved"]
MAX_HISTORY: Final = 10
"""Failures of a subscription that a message keeps."""
WRITTEN: Final = 1
"""The version that a message asks of its reader; raised one minor release after readers know it."""
_FIRST_VERSION: Final = {"N": "1"}
_CONTENT: Final = (BODY, CODING, OFFLOADED, SIZE, CONTENT_TYPE, HEADERS, EDITS)
_KNOWN: Final = frozenset(
    {
        PK, SK, VERSION, BODY, CODING, OFFLOADED, SIZE,
        CONTENT_TYPE, HEADERS, PARTITION_KEY, DEDUP_KEY,
        FAIRNESS_KEY, BATCH_ITEM, DIRECT, PENDING, STATES,
        GONE, REASON, DUE, REDRIVEN, DIED_AT, RAW,
        HOLDER, CLAIM_UNTIL, CLAIM_COUNT, CONSUMER, EDITS, MOVED,
        SKIPPED, EXPIRES_AT,
    }
)  # fmt: skip
KEY_BYTES: Final = 8
_KEY_DOMAIN: Final = b"fairbox/held\0"


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that failed: its number from 1, its time (ms), and the destination's answer.

    In an item, all but the last of a subscription have whole seconds and the part of the answer
    that fits.
    """

    attempt: int
    at: int
    error: str


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """The state of a message for one subscription that has not simply taken it.

    Attributes:
        attempts: how many were counted.
        due: when the next may be made, in milliseconds since 1970 UTC.
        history: the ten newest failures, oldest first.
        dead: it died for this subscription.
    """

    attempts: int = 0
    due: int = 0
    history: tuple[Failure, ...] = ()
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Offloaded:
    """The place of a body that does not fit an item: the claim check."""

    bucket: str
    key: str

    @property
    def uri(self) -> str:
        """The body's `s3://` address."""
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim that a receive left on a message of an unordered pulled topic.

    Attributes:
        count: how often it was received.
        until: when it may be received (again), in milliseconds since 1970 UTC.
        token: the holder's fencing token; empty: it was given back and has no holder.
        consumer: the name that the holder gave; empty: none.
    """

    count: int
    until: int
    token: bytes = b""
    consumer: str = ""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with its place and its state.

    Attributes:
        message: the published message; the body is empty until an offloaded one was fetched.
        size: bytes of the body as published.
        pending: the subscriptions that still lack it; None: all of the topic.
        states: state by subscription, for subscriptions that failed.
        gone: why it leaves undelivered; None while it is outstanding.
        reason: given by `cancel`, `purge` or a reader.
        offloaded: where the body lies when it does not lie in the item, fetched or not.
        redriven: how often it was put back from the dead letters.
        claim: who holds it, on unordered pulled topics; None: it was never received.
        edits: how often an operator changed it.
        moved: an operator put it here from another due time.
        skipped: the subscriptions for which an operator skipped it, each with the reason.
        packed: bytes that the body takes in the item; 0: not known, or it lies elsewhere.
        unknown: attributes that this release does not know, by name: they go where it goes.
    """

    message: Message
    ref: MessageRef
    lane: Lane
    size: int
    pending: frozenset[str] | None = None
    states: Mapping[str, SubscriptionState] = field(default_factory=dict)
    gone: Gone | None = None
    reason: str = ""
    offloaded: Offloaded | None = None
    redriven: int = 0
    claim: Claim | None = None
    edits: int = 0
    moved: bool = False
    skipped: Mapping[str, str] = field(default_factory=dict)
    packed: int = field(default=0, compare=False)
    unknown: tuple[tuple[str, Any], ...] = field(default=(), hash=False)

    def claimed_until(self, now: int) -> int | None:
        """Return the time until which it is held (ms); None: it may be received at `now`."""
        return self.claim.until if self.claim is not None and self.claim.until > now else None

    def lacking(self, subscriptions: frozenset[str]) -> frozenset[str]:
        """Return which of the topic's subscriptions still lack the message and are not dead."""
        # a subscription that was removed meanwhile lacks nothing
        open_ = subscriptions if self.pending is None else self.pending & subscriptions
        return frozenset(s for s in open_ if not self.state(s).dead)

    def state(self, subscription: str) -> SubscriptionState:
        """Return the state for one subscription; the empty one where nothing failed."""
        return self.states.get(subscription, _FRESH)

    def tried(self, subscriptions: frozenset[str]) -> bool:
        """Whether it is under retry for one of the topic's subscriptions."""
        return any(self.state(name).attempts for name in self.lacking(subscriptions))

    def due(self, subscription: str) -> int:
        """Return when it may be sent to the subscription, in milliseconds since 1970 UTC."""
        return max(self.state(subscription).due, self.ref.due or 0)

    @property
    def holder(self) -> bytes:
        """The fencing token of its claim; empty: nobody holds it, or its key's claim says who."""
        return b"" if self.claim is None else self.claim.token

    @property
    def any_dead(self) -> bool:
        """Whether it died for at least one subscription."""
        return any(state.dead for state in self.states.values())


_FRESH = SubscriptionState()


Saved = Literal["saved", "absent", "too large"] | StoredMessage
"""The result of a conditional write: the message as it is, if it differs from what was read."""


def number(value: float) -> dict[str, str]:
    """Return a number attribute."""
    return {"N": str(value)}


def numbers(values: Mapping[str, float | None]) -> Item:
    """Return number attributes by name; None: the item does not have the attribute."""
    return {name: number(value) for name, value in values.items() if value is not None}


def texts(values: Mapping[str, str | None]) -> Item:
    """Return text attributes by name; None: the item does not have the attribute."""
    return {name: {"S": value} for name, value in values.items() if value is not None}


def whole(item: Mapping[str, Any], name: str) -> int | None:
    """Return the whole number that an attribute holds; None: the item does not have it."""
    return int(item[name]["N"]) if name in item else None


def _s(item: Mapping[str, Any], name: str) -> str | None:
    value = item.get(name)
    return None if value is None else cast("str", value["S"])


def message_item(
    message: Message, ref: MessageRef, *, bucket: str | None, offload: bool = False
) -> tuple[Item, tuple[str, bytes] | None]:
    """Return a new message's item, and the object (key, body) to store first if offloaded.

    The bucket is for bodies that do not fit an item or, unpacked, a line of the archive; None:
    there is none. With `offload`, the body is to lie there even if it fits.

    Raises:
        BodyTooLarge: the body does not fit the item and there is no bucket.
    """
    item: Item = message_key(ref) | {
        VERSION: number(WRITTEN),
        SIZE: number(len(message.body)),
        CONTENT_TYPE: {"S": message.content_type},
    }
    item |= texts(
        {
            PARTITION_KEY: message.partition_key,
            DEDUP_KEY: message.dedup_key,
            FAIRNESS_KEY: message.fairness_key,
            BATCH_ITEM: message.batch_item,
        }
    )

    if message.direct:
        item[DIRECT] = {"BOOL": True}
    if message.headers:
        item[HEADERS] = {"M": {k: {"S": v} for k, v in message.headers.items()}}

    packed, compressed = message.body, False
    if len(message.body) > bodies.COMPRESS_OVER:
        packed, compressed = bodies.compress(message.body)

    fits = len(packed) <= bodies.OFFLOAD_OVER
    if not fits and bucket is None:
        raise BodyTooLarge(len(message.body), bodies.OFFLOAD_OVER)
    # a line of the archive has the body unpacked: its size as published counts
    large = offload or len(message.body) > bodies.ARCHIVED_UP_TO

    if not fits or (bucket is not None and large):
        # an id that is added again must not overwrite the body that is there
        digest = hashlib.sha256(message.body).hexdigest()[:16]
        object_key = f"{_object_key(message.topic, message.id)}-{digest}"
        item[OFFLOADED] = {"S": f"{bucket}/{object_key}"}
        return item, (object_key, message.body)

    item[BODY] = {"B": packed}
    if compressed:
        item[CODING] = {"S": "z"}
    return item, None


def _object_key(topic: str, id_: str) -> str:
    return f"bodies/{topic}/{id_}"


def _offloaded(item: Mapping[str, Any], topic: str, id_: str) -> Offloaded:
    """Return the place of the body: the message's own key, or that, a dash and a suffix.

    The right to write items does not open the bucket: an item that named another message's body
    would have that body delivered to its own topic's receivers, and then expired.
    """
    bucket, _, object_key = item[OFFLOADED]["S"].partition("/")
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
        Unreadable: `message_item` and the updates never write such an item; NewerVersion: a newer
            release does.
    """
    try:
        return _read_message(item)
    except NewerVersion:
        raise
    except Unreadable as unreadable:
        # maybe of a part alone: the error is to name the item
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
    if item.get(VERSION) != _FIRST_VERSION:
        check_version(item, VERSION)

    sk = item[SK]["S"]
    due: int | None = None
    if lane == "later":
        due_text, _, sk = sk.partition("#")
        due = int(due_text)
    # a dead letter, in whose key the due time is not
    elif DUE in item:
        due = int(item[DUE]["N"])

    if message_key(MessageRef(topic, epoch, shard, sk, due), lane) != {PK: item[PK], SK: item[SK]}:
        # deleting by its ref would miss it
        raise Unreadable(key_text(item), "its key is not written as keys are")

    size = int(item[SIZE]["N"])
    offloaded = None
    body = b""
    if OFFLOADED in item:
        offloaded = _offloaded(item, topic, sk)
    else:
        body = _body(item, size)

    message = Message(
        topic=topic,
        body=body,
        partition_key=_s(item, PARTITION_KEY),
        content_type=item[CONTENT_TYPE]["S"],
        headers={k: v["S"] for k, v in item.get(HEADERS, {"M": {}})["M"].items()},
        dedup_key=_s(item, DEDUP_KEY),
        fairness_key=_s(item, FAIRNESS_KEY),
        batch_item=_s(item, BATCH_ITEM),
        direct=DIRECT in item,
        id=sk,
    )

    # the item has no delay: the key has the due time, and the id the time of the message
    if due is not None:
        message = replace(message, delay=max(0, due - time_of(sk)) / 1000)

    return StoredMessage(
        message=message,
        ref=MessageRef(topic, epoch, shard, sk, due),
        lane=lane,
        size=size,
        pending=frozenset(item[PENDING]["SS"]) if PENDING in item else None,
        states=_read_states(item),
        gone=_gone(item),
        reason=_s(item, REASON) or "",
        offloaded=offloaded,
        redriven=int(item[REDRIVEN]["N"]) if REDRIVEN in item else 0,
        claim=_claim(item),
        edits=int(item[EDITS]["N"]) if EDITS in item else 0,
        moved=MOVED in item,
        skipped={n: v["S"] for n, v in item.get(SKIPPED, {"M": {}})["M"].items()},
        packed=0 if offloaded is not None else len(item[BODY]["B"]),
        unknown=() if item.keys() <= _KNOWN else unknown_of(item, _KNOWN),
    )


def _claim(item: Mapping[str, Any]) -> Claim | None:
    if CLAIM_COUNT not in item:
        return None
    token = item.get(HOLDER, {"B": b""})["B"]
    if not isinstance(token, bytes):
        raise TypeError("the token is not binary")
    token = bytes(token)

    return Claim(
        int(item[CLAIM_COUNT]["N"]), int(item[CLAIM_UNTIL]["N"]), token, _consumer(item, token)
    )


def _consumer(item: Mapping[str, Any], token: bytes) -> str:
    """Return the name that the holder gave; a name that another claim left does not count."""
    named = bytes(item.get(CONSUMER, {"B": b""})["B"])
    return named.removeprefix(token).decode() if token and named.startswith(token) else ""


def _body(item: Mapping[str, Any], size: int) -> bytes:
    packed = item[BODY]["B"]
    if not isinstance(packed, bytes):
        raise TypeError("the body is not binary")
    body = bodies.decompress(packed, size) if CODING in item else packed
    if len(body) != size:
        raise ValueError(f"the body has {len(body)} bytes, not {size}")
    return body


def _gone(item: Mapping[str, Any]) -> Gone | None:
    gone = _s(item, GONE)
    if gone is not None and gone not in get_args(Gone):
        raise ValueError(f"nothing leaves as {gone!r}")
    return cast("Gone | None", gone)


def _read_states(item: Mapping[str, Any]) -> dict[str, SubscriptionState]:
    return {
        name: SubscriptionState(
            attempts=int(value["M"][STATE_ATTEMPTS]["N"]),
            due=int(value["M"][STATE_DUE]["N"]),
            history=tuple(
                Failure(int(f["L"][0]["N"]), int(f["L"][1]["N"]), f["L"][2]["S"])
                for f in value["M"][STATE_HISTORY]["L"]
            ),
            dead=STATE_DEAD in value["M"],
        )
        for name, value in item.get(STATES, {"M": {}})["M"].items()
    }


def states_value(states: Mapping[str, SubscriptionState]) -> dict[str, Any]:
    """Return the attribute that holds the states by subscription."""
    return {
        "M": {
            name: {
                "M": {
                    STATE_ATTEMPTS: number(state.attempts),
                    STATE_DUE: number(state.due),
                    STATE_HISTORY: {
                        "L": [
                            {"L": [number(f.attempt), number(f.at), {"S": f.error}]}
                            for f in state.history
                        ]
                    },
                    **({STATE_DEAD: {"BOOL": True}} if state.dead else {}),
                }
            }
            for name, state in states.items()
        }
    }


def pending_value(pending: frozenset[str]) -> dict[str, Any]:
    """Return the attribute that names the subscriptions that still lack a message."""
    return {"SS": sorted(pending)}


def state_values(stored: StoredMessage) -> dict[str, dict[str, Any] | None]:
    """Return the attributes of a message's state that may change; None: it is missing."""
    skipped = {name: {"S": reason} for name, reason in stored.skipped.items()}
    return {
        PENDING: None if stored.pending is None else pending_value(stored.pending),
        STATES: states_value(stored.states) if stored.states else None,
        REDRIVEN: number(stored.redriven) if stored.redriven else None,
        SKIPPED: {"M": skipped} if skipped else None,
    }


def stored_item(stored: StoredMessage, original: Mapping[str, Any]) -> Item:
    """Return the original item with the state of `stored` in it, under `stored`'s own key."""
    state = state_values(stored) | {
        GONE: {"S": stored.gone} if stored.gone else None,
        REASON: {"S": stored.reason} if stored.reason else None,
    }
    # state without a value must not stay from the original
    item = {name: value for name, value in original.items() if name not in state}
    item |= message_key(stored.ref, stored.lane)
    item |= {name: value for name, value in state.items() if value is not None}

    # in lane `later` the key has it
    if stored.lane != "later" and stored.ref.due is not None:
        item[DUE] = number(stored.ref.due)

    return item


def fetch_body(bodies: BodyStore | None, stored: StoredMessage) -> StoredMessage:
    """Return the message with its offloaded body in place.

    Raises:
        NotConfigured: there is no body store.
        Unavailable: the body could not be read.
    """
    if stored.offloaded is None:
        return stored
    if bodies is None:
        raise NotConfigured(BODIES_BUCKET)
    body = bodies.get(stored.offloaded.bucket, stored.offloaded.key)
    return replace(stored, message=replace(stored.message, body=body))


def published_item(stored: StoredMessage) -> Item:
    """Return the item of a message as it was published, its body where it lies: without state."""
    item, _ = message_item(stored.message, stored.ref, bucket=None)
    item = dict(stored.unknown) | item
    if stored.offloaded is not None:
        item.pop(BODY, None)
        item[OFFLOADED] = {"S": f"{stored.offloaded.bucket}/{stored.offloaded.key}"}
        item[SIZE] = number(stored.size)
    return item


def key_digest(stored: StoredMessage) -> bytes:
    """Return the digest of a message's key; without one each message is a key of its own."""
    text = stored.message.shard_key
    return hashlib.sha256(_KEY_DOMAIN + text.encode()).digest()[:KEY_BYTES]
