"""Ledger rows: up to 400 deliveries packed into one item, at some 24 bytes each."""

from __future__ import annotations

import json
import uuid
import zlib
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.item_versions import check_version
from fairbox.codec.keys import Item, key, key_text
from fairbox.errors import Unreadable
from fairbox.model.item_versions import check_number
from fairbox.model.stored_messages import Delivery

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_PER_ROW: Final = 400
SHARED: Final = "*"  # stands for the topic in the key of a row that several small topics share
SPAN_MS: Final = 300_000  # no row covers more time than this, so that a range read can be bounded
DAY_PARTS: Final = 8
"""Hash keys a day: each takes 1,000 rows a second."""
_FORMAT: Final = 1


def ledger_pk(topic: str) -> str:
    """Return the partition key of a topic's ledger rows."""
    return f"ledger#{topic}"


def ledger_sk(at: int, sequences: tuple[str, str] | None = None) -> str:
    """Return the sort key of a row that begins at `at` (ms); without sequences: a bound."""
    return f"{at:015d}" + ("" if sequences is None else f"#{sequences[0]}#{sequences[1]}")


def day_of(at: int) -> str:
    """Return the UTC day of a time in milliseconds."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d")


def ledger_days(at: int) -> list[str]:
    """Return the index's hash keys of the UTC day of a time (ms).

    The first is that of rows before there were several.
    """
    day = day_of(at)
    return [day, *(f"{day}#{part}" for part in range(DAY_PARTS))]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varints(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    values = []
    for _ in range(count):
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        values.append(value)
    return values, at


def ledger_item(
    topic: str, deliveries: Sequence[Delivery], sequences: tuple[str, str], expires_at: int
) -> Item:
    """Return one ledger row.

    Args:
        topic: the topic, or `SHARED`.
        deliveries: 1 to `MAX_PER_ROW`, ascending by `at`.
        sequences: first and last stream sequence number that the row covers.
        expires_at: when it may be dropped, in seconds since 1970 UTC.
    """
    first = deliveries[0].at
    topics = sorted({d.topic for d in deliveries})
    subscriptions = sorted({d.subscription for d in deliveries})
    head = json.dumps([topics, subscriptions], separators=(",", ":")).encode()
    packed = bytearray(bytes([_FORMAT]) + _varint(len(head)) + head)
    for d in deliveries:
        packed += uuid.UUID(d.id).bytes
        for value in (
            d.at - first,
            topics.index(d.topic),
            subscriptions.index(d.subscription),
            d.epoch,
            d.shard,
            d.attempts,
            d.size,
        ):
            packed += _varint(value)
    sk = ledger_sk(first, sequences)
    part = zlib.crc32(sk.encode()) % DAY_PARTS
    return key(ledger_pk(topic), sk) | {
        attr.LEDGER_PACKED: {"B": bytes(packed)},
        attr.LEDGER_COUNT: {"N": str(len(deliveries))},
        attr.LEDGER_DAY: {"S": f"{day_of(first)}#{part}"},
        attr.LEDGER_TIME: {"N": str(first)},
        attr.EXPIRES_AT: {"N": str(expires_at)},
    }


def count_ledger(item: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the number of a row's deliveries by topic; only a shared row is unpacked.

    Raises:
        Unreadable: it is no entry of the ledger; NewerVersion: a newer release wrote it.
    """
    topic = str(item[attr.PK]["S"]).partition("#")[2]
    if topic == SHARED:
        return Counter(delivery.topic for delivery in read_ledger(item))
    return {topic: int(item[attr.LEDGER_COUNT]["N"])}


def read_ledger(item: Mapping[str, Any]) -> Iterator[Delivery]:
    """Yield the deliveries of a ledger row, in the order of the row.

    Raises:
        Unreadable: it is no entry of the ledger; NewerVersion: a newer release wrote it.
    """
    check_version(item)
    try:
        data = item[attr.LEDGER_PACKED]["B"]
        if not isinstance(data, bytes):
            raise TypeError("a ledger row is binary")  # noqa: TRY301 - one handler for all
        first = int(item[attr.LEDGER_TIME]["N"])
        check_number(data[0], key_text(item))
        (length,), at = _varints(data, 1, 1)
        topics, subscriptions = json.loads(data[at : at + length])
        at += length
        rows = []
        while at < len(data):
            message_id = str(uuid.UUID(bytes=data[at : at + 16]))
            (delta, topic, subscription, epoch, shard, attempts, size), at = _varints(
                data, at + 16, 7
            )
            rows.append(
                Delivery(
                    topics[topic],
                    epoch,
                    shard,
                    message_id,
                    subscriptions[subscription],
                    first + delta,
                    attempts,
                    size,
                )
            )
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error
    yield from rows
