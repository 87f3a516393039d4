"""Shard rows to models and back."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

from fairbox.codec import attributes as attr
from fairbox.codec.item_versions import check_version
from fairbox.codec.keys import Item, key_text, parse_lane_pk, shard_key
from fairbox.codec.messages import number
from fairbox.errors import Unreadable
from fairbox.model.stored_messages import ShardRow

if TYPE_CHECKING:
    from collections.abc import Mapping

BUCKETS: Final = tuple("01234567")
"""A hash key takes 1,000 WRU/s: 10,000 shards that are counted each 20 s write twice as many."""


def bucket(topic: str, epoch: int, shard: int) -> str:
    """Return the bucket of the index that a shard row lies in while it has a next check."""
    return BUCKETS[zlib.crc32(f"{topic}#{epoch}#{shard}".encode()) % len(BUCKETS)]


def shard_item(row: ShardRow) -> Item:
    """Return the item of a shard row; it is in the index only while it has a next check."""
    item: Item = shard_key(row.topic, row.epoch, row.shard)
    for name, value in (
        (attr.READY_COUNT, row.ready),
        (attr.LATER_COUNT, row.later),
        (attr.READY_DEATHS, row.ready_deaths),
        (attr.LATER_DEATHS, row.later_deaths),
        (attr.PURGED_DEAD, row.purged_dead),
        (attr.BACKOFF, row.backoff),
    ):
        if value:
            item[name] = number(value)
    for name, text in (
        (attr.READY_SEQUENCE, row.ready_sequence),
        (attr.LATER_SEQUENCE, row.later_sequence),
    ):
        if text:
            item[name] = {"S": text}
    if row.recount is not None:
        item[attr.RECOUNT] = number(row.recount)
    if row.settled:
        item[attr.SETTLED] = {"BOOL": True}
    if row.next_check is not None:
        item[attr.LOOK_AT] = number(row.next_check)
        item[attr.BUCKET] = {"S": bucket(row.topic, row.epoch, row.shard)}
    return item


def read_shard(item: Mapping[str, Any]) -> ShardRow:
    """Return the shard row that an item (or an entry of the index) holds.

    Raises:
        Unreadable: it is no shard row; NewerVersion: a newer release wrote it.
    """
    if attr.NEEDS in item:
        check_version(item)
    try:
        _, topic, epoch, shard = parse_lane_pk(item[attr.PK]["S"])

        def count(name: str) -> int:
            return int(item[name]["N"]) if name in item else 0

        return ShardRow(
            topic,
            epoch,
            shard,
            ready=count(attr.READY_COUNT),
            later=count(attr.LATER_COUNT),
            ready_deaths=count(attr.READY_DEATHS),
            later_deaths=count(attr.LATER_DEATHS),
            ready_sequence=item.get(attr.READY_SEQUENCE, {"S": ""})["S"],
            later_sequence=item.get(attr.LATER_SEQUENCE, {"S": ""})["S"],
            next_check=count(attr.LOOK_AT) if attr.LOOK_AT in item else None,
            backoff=count(attr.BACKOFF),
            purged_dead=count(attr.PURGED_DEAD),
            recount=count(attr.RECOUNT) if attr.RECOUNT in item else None,
            settled=item.get(attr.SETTLED) == {"BOOL": True},
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise Unreadable(key_text(item), f"{type(error).__name__}: {error}") from error


def is_shard_row(item: Mapping[str, Any]) -> bool:
    """Whether an item of the outbox is a shard row."""
    pk = str(item.get(attr.PK, {}).get("S", ""))
    return pk.startswith("ready#") and item.get(attr.SK) == {"S": attr.HEAD}
