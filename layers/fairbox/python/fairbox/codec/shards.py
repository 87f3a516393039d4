"""Shard rows to models and back."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as names
from fairbox.codec.item_versions import check_version
from fairbox.codec.keys import Item, key_text, parse_lane_pk, shard_key
from fairbox.codec.messages import number
from fairbox.errors import Unreadable
from fairbox.model.stored_messages import ShardRow

if TYPE_CHECKING:
    from collections.abc import Mapping

BUCKETS: Final = ("0", "1")


def bucket(topic: str, epoch: int, shard: int) -> str:
    """Return which of the index's buckets a shard row lies in while it has a next look."""
    return BUCKETS[zlib.crc32(f"{topic}#{epoch}#{shard}".encode()) % len(BUCKETS)]


def shard_item(row: ShardRow) -> Item:
    """Return the shard row; in the index only while it has a next look."""
    item: Item = shard_key(row.topic, row.epoch, row.shard)
    for name, value in (
        (names.READY_COUNT, row.ready),
        (names.LATER_COUNT, row.later),
        (names.READY_DEATHS, row.ready_deaths),
        (names.LATER_DEATHS, row.later_deaths),
        (names.PURGED_DEAD, row.purged_dead),
        (names.BACKOFF, row.backoff),
    ):
        if value:
            item[name] = number(value)
    for name, text in (
        (names.READY_SEQUENCE, row.ready_sequence),
        (names.LATER_SEQUENCE, row.later_sequence),
    ):
        if text:
            item[name] = {"S": text}
    if row.settled:
        item[names.SETTLED] = {"BOOL": True}
    if row.look_at is not None:
        item[names.LOOK_AT] = number(row.look_at)
        item[names.BUCKET] = {"S": bucket(row.topic, row.epoch, row.shard)}
    return item


def read_shard(item: Mapping[str, Any]) -> ShardRow:
    """Return the shard row that an item (or an entry of the index) holds.

    Raises:
        Unreadable: it is none; NewerVersion: of a newer release.
    """
    check_version(item)
    try:
        _, topic, epoch, shard = parse_lane_pk(item[names.PK]["S"])

        def count(name: str) -> int:
            return int(item[name]["N"]) if name in item else 0

        return ShardRow(
            topic,
            epoch,
            shard,
            ready=count(names.READY_COUNT),
            later=count(names.LATER_COUNT),
            ready_deaths=count(names.READY_DEATHS),
            later_deaths=count(names.LATER_DEATHS),
            ready_sequence=item.get(names.READY_SEQUENCE, {"S": ""})["S"],
            later_sequence=item.get(names.LATER_SEQUENCE, {"S": ""})["S"],
            look_at=count(names.LOOK_AT) if names.LOOK_AT in item else None,
            backoff=count(names.BACKOFF),
            purged_dead=count(names.PURGED_DEAD),
            settled=item.get(names.SETTLED) == {"BOOL": True},
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error


def is_shard_row(item: Mapping[str, Any]) -> bool:
    """Whether an item of the outbox is a shard row."""
    pk = str(item.get(names.PK, {}).get("S", ""))
    return pk.startswith("ready#") and item.get(names.SK) == {"S": names.HEAD}
