"""Items of the batches table: roots, nodes, leaves, failed items, requests, metadata."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from fairbox.batches.ids import pack, unpack
from fairbox.batches.models import (
    ENDED,
    FailedItems,
    Leaf,
    LeafKey,
    ListPlace,
    Metadata,
    Node,
    NodeKey,
    Record,
    Request,
    Root,
    State,
)
from fairbox.codec.attributes import NEEDS, PK, SK
from fairbox.codec.item_versions import check_version, unknown_of
from fairbox.codec.keys import Item, Key, key, key_text
from fairbox.codec.messages import number
from fairbox.codec.subscription_status import NOT_OURS
from fairbox.errors import Unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

OPEN_BATCHES_INDEX: Final = "OpenBatches"
BUCKETS: Final = 8

# root, node, leaf, failed items, request, metadata (table Batches)
BITS: Final = "b"  # B: pending items, unfinished groups or slots, failed items
COUNT: Final = "n"  # N: bits set in a leaf or node; 0 rings the cascade
LEAF_SIZE: Final = "z"  # N, items of a leaf; of each group of a request
FAILED: Final = "f"  # N, failed items of a leaf; of a node's or root's finished children
SETTLED: Final = "d"  # N, settled items of a node's or root's finished children
VERSION: Final = "v"  # N, counted up by every write
HOUR: Final = "a"  # N, of a leaf or node: hours since 1970 UTC of the last write
WRITER: Final = "w"  # S, digest of the large add that wrote a leaf, until its next write
REASONS: Final = "r"  # L of L(N, S), newest reasons of a group's failed items, by index
STATE: Final = "st"  # S, of a root or request
NEXT_GROUP: Final = "g"  # N, of a root: the next ordinal; of a request: its first
TOTAL: Final = "t"  # N, items of all adds that are done
OPENED: Final = "c"  # N, ms
USER_KEY: Final = "u"  # S, the caller's name for the batch
MESSAGE: Final = "m"  # S, id of the completion message
PARENT_ITEM: Final = "up"  # S, item of another batch that this one's end settles
TOLD: Final = "told"  # BOOL, whether it has
BUCKET: Final = "h"  # S, state and bucket: hash key of OpenBatches
LOOK: Final = "x"  # N, hour: range key of OpenBatches
ERASED: Final = "k"  # N, on a root: how far it is erased
EXPIRES_AT: Final = "e"  # N, s: TTL
REQUEST_COUNT: Final = "k"  # N, on a request: its items
METADATA: Final = "j"  # S, JSON

LEAF_SK: Final = "l"
FAILED_SK: Final = "f"
NODE_SK: Final = "n"
ROOT_SK: Final = "root"
META_SK: Final = "meta"
REQUEST_PREFIX: Final = "add#"
WRITING: Final = "writing"
DONE: Final = "done"

_KNOWN: Final = frozenset(
    {
        PK, SK, NEEDS, BITS, COUNT, LEAF_SIZE, FAILED, SETTLED, VERSION, HOUR, WRITER, REASONS,
        STATE, NEXT_GROUP, TOTAL, OPENED, USER_KEY, MESSAGE, PARENT_ITEM, TOLD, BUCKET, LOOK,
        ERASED, EXPIRES_AT, METADATA,
    }
)  # fmt: skip


def bucket_value(state: str, bucket: int) -> str:
    """Return a hash key of OpenBatches."""
    return f"{state}#{bucket}"


def bucket_of(batch: str) -> int:
    """Return a batch's bucket."""
    return hashlib.sha256(batch.encode()).digest()[0] % BUCKETS


def list_key(state: str, place: ListPlace) -> Key:
    """Return the key in OpenBatches of what lies at a place."""
    at = {BUCKET: {"S": bucket_value(state, place.bucket)}, LOOK: number(place.look)}
    return at | root_key(place.batch)


def root_key(batch: str) -> Key:
    """Return a root's key."""
    return key(batch, ROOT_SK)


def meta_key(batch: str) -> Key:
    """Return the key of a batch's metadata."""
    return key(batch, META_SK)


def request_key(batch: str, digest: str) -> Key:
    """Return a request's key."""
    return key(batch, REQUEST_PREFIX + digest)


def node_key(batch: str, node: int) -> Key:
    """Return a node's key."""
    return key(f"{batch}#n{node}", NODE_SK)


def leaf_key(batch: str, group: int) -> Key:
    """Return a leaf's key."""
    return key(f"{batch}#{group}", LEAF_SK)


def failed_key(batch: str, group: int) -> Key:
    """Return the key of a group's failed items."""
    return key(f"{batch}#{group}", FAILED_SK)


def item_of(record: Record | Metadata) -> Item:
    """Return the item of a record, with what it carries of newer releases."""
    item = _known_item(record)
    unknown = () if isinstance(record, Metadata) else record.unknown
    return dict(unknown) | item if unknown else item


def _known_item(record: Record | Metadata) -> Item:
    match record:
        case Root():
            return _root_item(record)
        case Node():
            return node_key(record.batch, record.node) | {
                BITS: _bits(record.bits, record.bits.bit_length()),
                COUNT: number(record.bits.bit_count()),
                FAILED: number(record.failed),
                SETTLED: number(record.settled),
                VERSION: number(record.version),
                HOUR: number(record.hour),
            }
        case Leaf():
            return _leaf_item(record)
        case FailedItems():
            return failed_key(record.batch, record.group) | {
                BITS: _bits(record.bits, record.size),
                VERSION: number(record.version),
                REASONS: {"L": [{"L": [number(i), {"S": text}]} for i, text in record.reasons]},
            }
        case Request():
            return request_key(record.batch, record.digest) | {
                STATE: {"S": DONE if record.done else WRITING},
                NEXT_GROUP: number(record.first),
                REQUEST_COUNT: number(record.count),
                LEAF_SIZE: number(record.size),
            }
        case Metadata():
            text = json.dumps(record.values, separators=(",", ":"), ensure_ascii=False)
            return meta_key(record.batch) | {METADATA: {"S": text}}


def _bits(field: int, size: int) -> dict[str, bytes]:
    return {"B": pack(field, size)}


def _leaf_item(leaf: Leaf) -> Item:
    item: Item = leaf_key(leaf.batch, leaf.group) | {
        BITS: _bits(leaf.pending, leaf.size),
        COUNT: number(leaf.count),
        LEAF_SIZE: number(leaf.size),
        FAILED: number(leaf.failed),
        VERSION: number(leaf.version),
        HOUR: number(leaf.hour),
    }
    if leaf.request is not None:
        item[WRITER] = {"S": leaf.request}
    return item


def _root_item(root: Root) -> Item:
    item: Item = root_key(root.batch) | {
        STATE: {"S": root.state},
        BITS: _bits(root.bits, root.bits.bit_length()),
        NEXT_GROUP: number(root.next_group),
        TOTAL: number(root.total),
        FAILED: number(root.failed),
        SETTLED: number(root.settled),
        VERSION: number(root.version),
        OPENED: number(root.opened),
        USER_KEY: {"S": root.user_key},
    }
    for name, text in ((MESSAGE, root.message), (PARENT_ITEM, root.parent_item)):
        if text is not None:
            item[name] = {"S": text}
    for name, value in ((ERASED, root.cursor), (EXPIRES_AT, root.expires), (LOOK, root.look)):
        if value is not None:
            item[name] = number(value)
    if root.told:
        item[TOLD] = {"BOOL": True}
    if root.look is not None:
        item[BUCKET] = {"S": bucket_value(root.state, bucket_of(root.batch))}
    return item


def read_record(item: Mapping[str, Any]) -> Record | Metadata:
    """Return the record of an item.

    Raises:
        Unreadable: it is not what the codec writes; NewerVersion: a newer release does.
    """
    check_version(item)
    try:
        pk, sk = item[PK]["S"], item[SK]["S"]
        if sk == ROOT_SK:
            return _read_root(pk, item)
        if sk == META_SK:
            return Metadata(pk, json.loads(item[METADATA]["S"]))
        if sk.startswith(REQUEST_PREFIX):
            return _read_request(pk, sk, item)
        batch, _, ordinal = pk.partition("#")
        if sk == NODE_SK:
            return _read_node(batch, int(ordinal[1:]), item)
        if sk == LEAF_SK:
            return _read_leaf(batch, int(ordinal), item)
        if sk == FAILED_SK:
            return _read_failed(batch, int(ordinal), item)
    except NOT_OURS as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error
    raise Unreadable(key_text(item), f"no item of a batch has the sort key {sk!r}")


def _n(item: Mapping[str, Any], name: str) -> int:
    return int(item[name]["N"])


def _optional(item: Mapping[str, Any], name: str) -> int | None:
    return int(item[name]["N"]) if name in item else None


def _field(item: Mapping[str, Any]) -> int:
    return unpack(_packed(item))


def _packed(item: Mapping[str, Any]) -> bytes:
    raw = item[BITS]["B"]
    if not isinstance(raw, bytes):
        raise TypeError("the bits are not binary")
    return raw


def _read_root(batch: str, item: Mapping[str, Any]) -> Root:
    state: State = item[STATE]["S"]
    if state not in get_args(State):
        raise ValueError("no state of a batch")
    return Root(
        batch,
        state,
        _n(item, OPENED),
        item[USER_KEY]["S"],
        bits=_field(item),
        next_group=_n(item, NEXT_GROUP),
        total=_n(item, TOTAL),
        failed=_n(item, FAILED),
        settled=_n(item, SETTLED),
        version=_n(item, VERSION),
        message=item[MESSAGE]["S"] if MESSAGE in item else None,
        parent_item=item[PARENT_ITEM]["S"] if PARENT_ITEM in item else None,
        told=TOLD in item,
        look=_optional(item, LOOK),
        cursor=_optional(item, ERASED),
        expires=_optional(item, EXPIRES_AT),
        unknown=unknown_of(item, _KNOWN),
    )


def _read_node(batch: str, node: int, item: Mapping[str, Any]) -> Node:
    return Node(
        batch,
        node,
        _field(item),
        failed=_n(item, FAILED),
        settled=_n(item, SETTLED),
        version=_n(item, VERSION),
        hour=_n(item, HOUR),
        unknown=unknown_of(item, _KNOWN),
    )


def _read_leaf(batch: str, group: int, item: Mapping[str, Any]) -> Leaf:
    return Leaf(
        batch,
        group,
        _field(item),
        count=_n(item, COUNT),
        size=_n(item, LEAF_SIZE),
        failed=_n(item, FAILED),
        version=_n(item, VERSION),
        hour=_n(item, HOUR),
        request=item[WRITER]["S"] if WRITER in item else None,
        unknown=unknown_of(item, _KNOWN),
    )


def _read_failed(batch: str, group: int, item: Mapping[str, Any]) -> FailedItems:
    reasons = tuple((int(r["L"][0]["N"]), r["L"][1]["S"]) for r in item[REASONS]["L"])
    raw = _packed(item)
    return FailedItems(
        batch,
        group,
        unpack(raw),
        len(raw) * 8,
        reasons,
        _n(item, VERSION),
        unknown_of(item, _KNOWN),
    )


def _read_request(batch: str, sk: str, item: Mapping[str, Any]) -> Request:
    return Request(
        batch,
        sk.removeprefix(REQUEST_PREFIX),
        done={DONE: True, WRITING: False}[item[STATE]["S"]],
        first=_n(item, NEXT_GROUP),
        count=_n(item, REQUEST_COUNT),
        size=_n(item, LEAF_SIZE),
        unknown=unknown_of(item, _KNOWN),
    )


def emptied(image: Mapping[str, Any]) -> LeafKey | NodeKey | str | None:
    """Return what a stream image asks a cascade for.

    Returns:
        The key of an emptied leaf or node, the batch of an ended root with a parent to be told,
        None for everything else.

    Raises:
        Unreadable: the image is not what the codec writes; NewerVersion: a newer release does.
    """
    check_version(image)
    # by attributes alone: in a record the bits are base64
    try:
        pk, sk = image[PK]["S"], image[SK]["S"]
        batch, _, ordinal = pk.partition("#")
        if sk == LEAF_SK and _n(image, COUNT) == 0:
            return LeafKey(batch, int(ordinal))
        if sk == NODE_SK and _n(image, COUNT) == 0:
            return NodeKey(batch, int(ordinal[1:]))
        untold = sk == ROOT_SK and PARENT_ITEM in image and TOLD not in image
        ended = untold and image[STATE]["S"] in ENDED
    except NOT_OURS as error:
        raise Unreadable(key_text(image), f"{type(error).__name__}: {error}") from error
    return pk if ended else None


def newly_ended(image: Mapping[str, Any]) -> State | None:
    """Return the state of a batch that has just ended, as its root's first such image tells.

    Later writes of an ended root (its parent told, its erasing) give None, as all else does.

    Raises:
        Unreadable: the image is not what the codec writes.
    """
    if image.get(SK) != {"S": ROOT_SK} or TOLD in image or ERASED in image:
        return None
    try:
        state = image[STATE]["S"]
        return cast("State", state) if state in ENDED else None
    except NOT_OURS as error:
        raise Unreadable(key_text(image), f"{type(error).__name__}: {error}") from error
