"""Items of the batches table: roots, nodes, leaves, failed items, requests, metadata."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from fairbox.errors import Unreadable
from fairbox.tables.batch_values import (
    ENDED,
    FENCED,
    Callbacks,
    Cause,
    Child,
    Emptied,
    FailedItems,
    FirstDeath,
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
from fairbox.tables.keys import NEEDS, PK, SK, Item, Key, check_version, key_text, unknown_of
from fairbox.tables.stored_messages import numbers, texts, whole
from fairbox.tables.unreadable_items import NOT_OURS, reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairbox.tables.batch_values import Unknown

OPEN_BATCHES_INDEX: Final = "OpenBatches"
BUCKETS: Final = 8

# root, node, leaf, failed items, request, metadata, child (table Batches)
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
NOTIFIED: Final = "told"  # BOOL, whether that item is settled
CHILD: Final = "ch"  # S, of an item's record: the nested batch that settles it
ON_COMPLETE: Final = "oc"  # S, of a root: topic that is told of its completion
ON_SUCCESS: Final = "os"  # S, of a root: topic that is told of its completion without failures
ON_CANCEL: Final = "ox"  # S, of a root: topic that is told when it is cancelled
ON_DEATH: Final = "od"  # S, of a root: topic that is told of its first failed item
DEATH_TOLD: Final = "dt"  # BOOL, of a root: whether that topic was told
RETRY_HOURS: Final = "rh"  # N, of a root: how long it stays open for retries
RETRY_UNTIL: Final = "ru"  # N, hour: of a root that is open for retries
BUCKET: Final = "h"  # S, state and bucket: hash key of OpenBatches
NEXT_CHECK: Final = "x"  # N, hour: range key of OpenBatches
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
CHILD_PREFIX: Final = "c#"
WRITING: Final = "writing"
DONE: Final = "done"

_WRITTEN: Final = frozenset(
    {
        PK, SK, BITS, COUNT, LEAF_SIZE, FAILED, SETTLED, VERSION, HOUR, WRITER, REASONS,
        STATE, NEXT_GROUP, TOTAL, OPENED, USER_KEY, MESSAGE, PARENT_ITEM, NOTIFIED, BUCKET,
        NEXT_CHECK, ERASED, EXPIRES_AT, METADATA, CHILD, ON_COMPLETE,
        ON_SUCCESS, ON_CANCEL, ON_DEATH, DEATH_TOLD, RETRY_HOURS, RETRY_UNTIL,
    }
)  # fmt: skip
_KNOWN: Final = _WRITTEN | {NEEDS}
_CALLBACKS: Final = (ON_COMPLETE, ON_SUCCESS, ON_CANCEL, ON_DEATH)


def bucket_value(state: str, bucket: int) -> str:
    """Return a hash key of OpenBatches."""
    return f"{state}#{bucket}"


def bucket_of(batch: str) -> int:
    """Return a batch's bucket."""
    return hashlib.sha256(batch.encode()).digest()[0] % BUCKETS


def list_key(state: str, place: ListPlace) -> Key:
    """Return the key in OpenBatches of the batch at a place."""
    at = {BUCKET: {"S": bucket_value(state, place.bucket)}, NEXT_CHECK: {"N": str(place.hour)}}
    return at | root_key(place.batch)


def root_key(batch: str) -> Key:
    """Return a root's key."""
    return {PK: {"S": batch}, SK: {"S": ROOT_SK}}


def meta_key(batch: str) -> Key:
    """Return the key of a batch's metadata."""
    return {PK: {"S": batch}, SK: {"S": META_SK}}


def request_key(batch: str, digest: str) -> Key:
    """Return a request's key."""
    return {PK: {"S": batch}, SK: {"S": REQUEST_PREFIX + digest}}


def node_key(batch: str, node: int) -> Key:
    """Return a node's key."""
    return {PK: {"S": f"{batch}#n{node}"}, SK: {"S": NODE_SK}}


def leaf_key(batch: str, group: int) -> Key:
    """Return a leaf's key."""
    # a partition key of its own: one takes 1,000 WRU/s, and no group waits for the acks of another
    return {PK: {"S": f"{batch}#{group}"}, SK: {"S": LEAF_SK}}


def failed_key(batch: str, group: int) -> Key:
    """Return the key of a group's failed items."""
    return {PK: {"S": f"{batch}#{group}"}, SK: {"S": FAILED_SK}}


def child_key(batch: str, group: int, index: int) -> Key:
    """Return the key of the nested batch of an item."""
    return {PK: {"S": f"{batch}#{group}"}, SK: {"S": f"{CHILD_PREFIX}{index}"}}


def keys_of(names: Iterable[Emptied], *, failed: bool = False) -> list[Key]:
    """Return the keys of leaves and nodes, or of the failed items of these leaves."""
    of_leaf = failed_key if failed else leaf_key
    return [
        of_leaf(name.batch, name.group)
        if isinstance(name, LeafKey)
        else node_key(name.batch, name.node)
        for name in names
    ]


def item_of(record: Record | Metadata) -> Item:
    """Return the item of a record, with its attributes of newer releases."""
    item = _known_item(record)
    unknown = () if isinstance(record, Metadata) else record.unknown
    return dict(unknown) | item if unknown else item


def _known_item(record: Record | Metadata) -> Item:
    match record:
        case Root():
            return _root_item(record)
        case Node():
            return (
                node_key(record.batch, record.node)
                # as long as its highest bit: a node of few groups is a small item
                | _packed(record.bits, record.bits.bit_length())
                | numbers(
                    {
                        COUNT: record.bits.bit_count(),
                        FAILED: record.failed,
                        SETTLED: record.settled,
                        VERSION: record.version,
                        HOUR: record.hour,
                    }
                )
            )
        case Leaf():
            return _leaf_item(record)
        case FailedItems() | Child():
            return _item_of_items(record)
        case Request():
            return (
                request_key(record.batch, record.digest)
                | {STATE: {"S": DONE if record.done else WRITING}}
                | numbers(
                    {NEXT_GROUP: record.first, REQUEST_COUNT: record.count, LEAF_SIZE: record.size}
                )
            )
        case Metadata():
            text = json.dumps(record.values, separators=(",", ":"), ensure_ascii=False)
            return meta_key(record.batch) | {METADATA: {"S": text}}


def _item_of_items(record: FailedItems | Child) -> Item:
    """Return the item beside a leaf: the failed items of the group, or the batch of an item."""
    if isinstance(record, Child):
        return (
            child_key(record.batch, record.group, record.index)
            | {CHILD: {"S": record.child}}
            | numbers({EXPIRES_AT: record.expires})
        )

    reasons = [{"L": [{"N": str(i)}, {"S": text}]} for i, text in record.reasons]
    return (
        failed_key(record.batch, record.group)
        | _packed(record.bits, record.size)
        | numbers({VERSION: record.version})
        | {REASONS: {"L": reasons}}
    )


def _packed(field: int, size: int) -> Item:
    """Return the attribute of a bitfield: bit i is byte `i >> 3`, bit `i & 7`."""
    return {BITS: {"B": field.to_bytes((size + 7) // 8, "little")}}


def _leaf_item(leaf: Leaf) -> Item:
    return (
        leaf_key(leaf.batch, leaf.group)
        | _packed(leaf.pending, leaf.size)
        | numbers(
            {
                COUNT: leaf.count,
                LEAF_SIZE: leaf.size,
                FAILED: leaf.failed,
                VERSION: leaf.version,
                HOUR: leaf.hour,
            }
        )
        | texts({WRITER: leaf.request})
    )


def _root_item(root: Root) -> Item:
    item = (
        root_key(root.batch)
        | {STATE: {"S": root.state}, USER_KEY: {"S": root.user_key}}
        | _packed(root.bits, root.bits.bit_length())
        | numbers(
            {
                NEXT_GROUP: root.next_group,
                TOTAL: root.total,
                FAILED: root.failed,
                SETTLED: root.settled,
                VERSION: root.version,
                OPENED: root.opened,
                ERASED: root.cursor,
                EXPIRES_AT: root.expires,
                NEXT_CHECK: root.next_check,
                RETRY_HOURS: root.retry_hours or None,
                RETRY_UNTIL: root.retry_until,
            }
        )
    )

    item |= texts(
        {
            MESSAGE: root.message,
            PARENT_ITEM: root.parent_item,
            ON_COMPLETE: root.callbacks.on_complete,
            ON_SUCCESS: root.callbacks.on_success,
            ON_CANCEL: root.callbacks.on_cancel,
            ON_DEATH: root.callbacks.on_death,
        }
    )

    # only where they are true: the stream's function asks whether the attribute is there
    if root.told:
        item[NOTIFIED] = {"BOOL": True}
    if root.death_told:
        item[DEATH_TOLD] = {"BOOL": True}

    # the index lists an item only with both of its keys: an erased root has neither
    if root.next_check is not None:
        item[BUCKET] = {"S": bucket_value(root.state, bucket_of(root.batch))}

    return item


def read_records(items: Iterable[Mapping[str, Any]]) -> list[Record | Metadata]:
    """Return the records of items.

    Raises:
        As `read_record` does.
    """
    return [read_record(item) for item in items]


def read_record(item: Mapping[str, Any]) -> Record | Metadata:
    """Return the record of an item.

    Raises:
        Unreadable: the codec never writes such an item; NewerVersion: a newer release does.
    """
    unknown: Unknown = ()
    # the ordinary item has neither a version nor unknown attributes
    if not item.keys() <= _WRITTEN:
        check_version(item)
        unknown = unknown_of(item, _KNOWN)

    with reading(item, *NOT_OURS):
        pk, sk = item[PK]["S"], item[SK]["S"]
        if sk == ROOT_SK:
            return _read_root(pk, item, unknown)
        if sk == META_SK:
            return Metadata(pk, json.loads(item[METADATA]["S"]))
        if sk.startswith(REQUEST_PREFIX):
            return _read_request(pk, sk, item, unknown)

        batch, _, ordinal = pk.partition("#")
        found = _read_below(batch, ordinal, sk, item, unknown)
        if found is not None:
            return found

    raise Unreadable(key_text(item), f"no item of a batch has the sort key {sk!r}")


def _read_below(
    batch: str, ordinal: str, sk: str, item: Mapping[str, Any], unknown: Unknown
) -> Record | None:
    """Return the record of an item of a node or of a group; None: it is none."""
    if sk == NODE_SK:
        return _read_node(batch, int(ordinal[1:]), item, unknown)
    if sk == LEAF_SK:
        return _read_leaf(batch, int(ordinal), item, unknown)
    if sk == FAILED_SK:
        return _read_failed(batch, int(ordinal), item, unknown)
    if sk.startswith(CHILD_PREFIX):
        index, expires = int(sk.removeprefix(CHILD_PREFIX)), whole(item, EXPIRES_AT)
        return Child(batch, int(ordinal), index, item[CHILD]["S"], expires, unknown)
    return None


def _n(item: Mapping[str, Any], name: str) -> int:
    return int(item[name]["N"])


def _text(item: Mapping[str, Any], name: str) -> str | None:
    return item[name]["S"] if name in item else None


def _bits(item: Mapping[str, Any]) -> int:
    raw = item[BITS]["B"]
    if not isinstance(raw, bytes):
        raise TypeError("the bits are not binary")
    return int.from_bytes(raw, "little")


def _read_root(batch: str, item: Mapping[str, Any], unknown: Unknown) -> Root:
    state: State = item[STATE]["S"]
    if state not in get_args(State):
        raise ValueError("no state of a batch")

    return Root(
        batch,
        state,
        _n(item, OPENED),
        item[USER_KEY]["S"],
        bits=_bits(item),
        next_group=_n(item, NEXT_GROUP),
        total=_n(item, TOTAL),
        failed=_n(item, FAILED),
        settled=_n(item, SETTLED),
        version=_n(item, VERSION),
        message=_text(item, MESSAGE),
        parent_item=_text(item, PARENT_ITEM),
        told=NOTIFIED in item,
        next_check=whole(item, NEXT_CHECK),
        cursor=whole(item, ERASED),
        expires=whole(item, EXPIRES_AT),
        callbacks=Callbacks(*(_text(item, name) for name in _CALLBACKS)),
        retry_hours=whole(item, RETRY_HOURS) or 0,
        retry_until=whole(item, RETRY_UNTIL),
        death_told=DEATH_TOLD in item,
        unknown=unknown,
    )


def _read_node(batch: str, node: int, item: Mapping[str, Any], unknown: Unknown) -> Node:
    return Node(
        batch,
        node,
        _bits(item),
        failed=_n(item, FAILED),
        settled=_n(item, SETTLED),
        version=_n(item, VERSION),
        hour=_n(item, HOUR),
        unknown=unknown,
    )


def _read_leaf(batch: str, group: int, item: Mapping[str, Any], unknown: Unknown) -> Leaf:
    return Leaf(
        batch,
        group,
        _bits(item),
        count=_n(item, COUNT),
        size=_n(item, LEAF_SIZE),
        failed=_n(item, FAILED),
        version=_n(item, VERSION),
        hour=_n(item, HOUR),
        request=_text(item, WRITER),
        unknown=unknown,
    )


def _read_failed(batch: str, group: int, item: Mapping[str, Any], unknown: Unknown) -> FailedItems:
    reasons = tuple((int(r["L"][0]["N"]), r["L"][1]["S"]) for r in item[REASONS]["L"])
    # up to seven more than the group has: it only says how many bytes to write again
    field, size = _bits(item), len(item[BITS]["B"]) * 8
    return FailedItems(batch, group, field, size, reasons, _n(item, VERSION), unknown)


def _read_request(batch: str, sk: str, item: Mapping[str, Any], unknown: Unknown) -> Request:
    return Request(
        batch,
        sk.removeprefix(REQUEST_PREFIX),
        done={DONE: True, WRITING: False}[item[STATE]["S"]],
        first=_n(item, NEXT_GROUP),
        count=_n(item, REQUEST_COUNT),
        size=_n(item, LEAF_SIZE),
        unknown=unknown,
    )


def read_image(image: Mapping[str, Any]) -> tuple[Cause | None, State | None]:
    """Return a stream image's cause, and the state in which its batch has ended.

    Raises:
        As `emptied` does.
    """
    return emptied(image) or first_death(image), newly_ended(image)


def first_death(image: Mapping[str, Any]) -> FirstDeath | None:
    """Return the batch of which the image is a group's first failed items."""
    # its first write: later ones add failures to a death that is told already
    first = image.get(SK) == {"S": FAILED_SK} and image.get(VERSION) == {"N": "1"}
    return FirstDeath(image[PK]["S"].partition("#")[0]) if first else None


def emptied(image: Mapping[str, Any]) -> Emptied | str | None:
    """Return the cause of a cascade, if a stream image is one.

    Returns:
        The key of an emptied leaf or node, the batch of an ended root with a parent to be notified
        or with groups to be erased at once, None for everything else.

    Raises:
        Unreadable: the codec never writes such an image; NewerVersion: a newer release does.
    """
    if NEEDS in image:
        check_version(image)

    # by attributes alone: in a record the bits are base64
    with reading(image, *NOT_OURS):
        pk, sk = image[PK]["S"], image[SK]["S"]
        batch, _, ordinal = pk.partition("#")
        if sk == LEAF_SK and _n(image, COUNT) == 0:
            return LeafKey(batch, int(ordinal))
        if sk == NODE_SK and _n(image, COUNT) == 0:
            return NodeKey(batch, int(ordinal[1:]))

        # of an ended root only the first image: the next ones come from the work that it asks for
        is_root = sk == ROOT_SK
        unnotified = is_root and PARENT_ITEM in image and NOTIFIED not in image
        ended = unnotified and image[STATE]["S"] in ENDED
        unfenced = is_root and NOTIFIED not in image and ERASED not in image
        ended = ended or (unfenced and image[STATE]["S"] in FENCED)

    return pk if ended else None


def newly_ended(image: Mapping[str, Any]) -> State | None:
    """Return the state of a batch that has just ended, as its root's first such image shows.

    Later writes of an ended root (parent notified, items erased) give None, as all else does.

    Raises:
        Unreadable: the codec never writes such an image.
    """
    if image.get(SK) != {"S": ROOT_SK} or NOTIFIED in image or ERASED in image:
        return None
    with reading(image, *NOT_OURS):
        state = image[STATE]["S"]
        return cast("State", state) if state in ENDED else None
