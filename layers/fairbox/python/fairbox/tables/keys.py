"""Keys of the tables, and the version that an item asks of its reader.

An item without that attribute is of version 1. The number is the least version that a reader must
know, not the writer's release: an attribute that readers may leave alone does not raise it. So
nothing is written while all items are of version 1, and an upgrade costs no write unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from fairbox.errors import Unreadable
from fairbox.model.versions import check_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairbox.model.messages import Lane, MessageRef

NEEDS: Final = "cv"  # N, of every item but messages: codec version a reader must know; absent: 1
PK: Final = "pk"
SK: Final = "sk"
HEAD: Final = "!"
CONFIG: Final = "config"
EXPIRES_AT: Final = "x"  # N, s: TTL
HEARTBEAT: Final = "hb"  # N, ms, of the heartbeat row: when it was written (outbox, batches)

Item = dict[str, Any]
Key = dict[str, Any]

HEARTBEATS: Final = "heartbeat"
_DUE_DIGITS: Final = 15


def key(pk: str, sk: str) -> Key:
    """Return a primary key."""
    return {PK: {"S": pk}, SK: {"S": sk}}


def lane_pk(lane: Lane, topic: str, epoch: int, shard: int) -> str:
    """Return the partition key of a lane."""
    return f"{lane}#{topic}#{epoch}#{shard}"


def parse_lane_pk(pk: str) -> tuple[Lane, str, int, int]:
    """Return lane, topic, epoch and shard of a lane's partition key.

    Raises:
        Unreadable: it is none.
    """
    parts = pk.split("#")
    if len(parts) != 4 or parts[0] not in ("ready", "later", "dead"):
        raise Unreadable({PK: pk}, "not the key of a lane")
    try:
        return cast("Lane", parts[0]), parts[1], int(parts[2]), int(parts[3])
    except ValueError:
        raise Unreadable({PK: pk}, "epoch and shard are not numbers") from None


def message_sk(message_id: str, due: int | None, lane: Lane) -> str:
    """Return a message's sort key in a lane."""
    # of fixed width: sort keys are compared as texts
    return f"{due or 0:0{_DUE_DIGITS}d}#{message_id}" if lane == "later" else message_id


def due_sk(due: int) -> str:
    """Return the sort key below which messages due before `due` lie in lane `later`."""
    return f"{due:0{_DUE_DIGITS}d}"


def message_key(ref: MessageRef, lane: Lane | None = None) -> Key:
    """Return a message's key: in the lane it was put in unless another is named."""
    lane = lane or ("ready" if ref.due is None else "later")
    return key(lane_pk(lane, ref.topic, ref.epoch, ref.shard), message_sk(ref.id, ref.due, lane))


def shard_key(topic: str, epoch: int, shard: int) -> Key:
    """Return the key of a shard row."""
    return key(lane_pk("ready", topic, epoch, shard), HEAD)


def key_of(item: Mapping[str, Any]) -> Key:
    """Return the primary key of an item."""
    return {PK: item[PK], SK: item[SK]}


def key_text(item: Mapping[str, Any]) -> dict[str, str]:
    """Return the primary key of anything that claims to be an item, for errors."""
    values = {name: item.get(name) for name in (PK, SK)}
    return {n: str(v["S"]) if isinstance(v, dict) and "S" in v else "?" for n, v in values.items()}


def topic_key(topic: str) -> Key:
    """Return the key of a topic row."""
    return key(CONFIG, f"topic#{topic}")


def subscription_key(topic: str, name: str) -> Key:
    """Return the key of a subscription row."""
    return key(CONFIG, f"topic#{topic}#sub#{name}")


def topic_range(topic: str | None) -> tuple[str, str]:
    """Return the first and last sort key of a topic's rows in `config`; None: of all topics."""
    # `$` is the character behind `#`, and `~` sorts behind those of names
    return ("topic#", "topic$") if topic is None else (f"topic#{topic}", f"topic#{topic}#~")


def topics_behind(topic: str | None) -> tuple[str, str]:
    """Return the same of all topics that sort behind one, whose rows end before `$`."""
    low, high = topic_range(None)
    return (low if topic is None else f"topic#{topic}$", high)


def version_key() -> Key:
    """Return the key of the row that every change of a topic or subscription counts up."""
    return key(CONFIG, HEAD)


def dedup_key(topic: str, digest: str) -> Key:
    """Return the key of a deduplication row (deliveries table)."""
    return key(f"dedup#{topic}#{digest}", HEAD)


def aside_pk(topic: str, epoch: int, shard: int, name: bytes) -> str:
    """Return the partition key of the waiting keys of an ordered shard (deliveries table)."""
    return f"waits#{topic}#{epoch}#{shard}#{name.hex()}"


def aside_sk(digest: bytes) -> str:
    """Return the sort key of a waiting key."""
    return f"k#{digest.hex()}"


def aside_due_sk(until: int, digest: bytes) -> str:
    """Return the sort key of the item that tells when a waiting key is due."""
    return f"t#{until:0{_DUE_DIGITS}d}#{digest.hex()}"


def cursor_key(name: str) -> Key:
    """Return the key of a resumable job's cursor row (outbox)."""
    return key("cursor", name)


def heartbeat_key() -> Key:
    """Return the key of the row that is written each minute, for streams' readers (two tables)."""
    return key(HEARTBEATS, HEAD)


def hint_key(topic: str, epoch: int, group: int) -> Key:
    """Return the key of the hint row of sixteen shards."""
    return key(f"hint#{topic}#{epoch}", f"{group:03d}")


def segments_pk(topic: str, epoch: int, shard: int) -> str:
    """Return the partition key of a shard's segments (deliveries table)."""
    return f"segments#{topic}#{epoch}#{shard}"


def walk_key(topic: str, epoch: int, shard: int) -> Key:
    """Return the key of a shard's walk position."""
    return key(f"hint#{topic}#{epoch}", f"walk#{shard:04d}")


def check_version(item: Mapping[str, Any], name: str = NEEDS) -> None:
    """Return where this release can read an item, or a stream image.

    Raises:
        NewerVersion: a newer release wrote it for readers that know more; it is to stay there.
        Unreadable: the attribute holds no version.
    """
    value = item.get(name)
    if value is None:
        return
    try:
        found = int(value["N"])
    except (LookupError, ValueError, TypeError, ArithmeticError) as error:
        raise Unreadable(key_text(item), f"no version: {type(error).__name__}") from error
    check_number(found, key_text(item))


def unknown_of(item: Mapping[str, Any], known: frozenset[str]) -> tuple[tuple[str, Any], ...]:
    """Return the attributes that this release does not know, by name: a rewrite keeps them."""
    if item.keys() <= known:
        return ()
    return tuple(sorted((n, v) for n, v in item.items() if n not in known))
