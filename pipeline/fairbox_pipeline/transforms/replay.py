"""The plan of a replay: its messages, their order and their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from fairbox_pipeline.schemas import KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from fairbox_pipeline.times import Window

_LOW_BITS: Final = 20
"""Bits of a position in the random part of a new id; higher positions advance its milliseconds."""
_HASH_DIGITS: Final = 13
_ITEM_BYTES: Final = 160
"""Approximate bytes of an item beside body, key and headers."""
LOST: Final = "lost"
LOOKED_AT: Final = (LOST, "stuck")
"""Findings that may be true no longer when a message is sent."""
_CONTENT: Final = ("partition_key", "content_type", "headers", "body", "body_encoding", "body_uri")


def chosen(
    messages: DataFrame,
    *,
    topics: Sequence[str] = (),
    keys: Sequence[str] = (),
    states: Sequence[str] = (),
    added: Window | None = None,
) -> DataFrame:
    """Keep the messages of any of these topics, keys and states (none: of all), added in a time."""
    found = messages.where(F.col("added_at").isNotNull())
    for name, values in (("topic", topics), ("partition_key", keys), ("state", states)):
        if values:
            found = found.where(F.col(name).isin(*values))
    return found if added is None else added.of(found, "added_at")


def named_by(messages: DataFrame, findings: DataFrame, kinds: tuple[str, ...]) -> DataFrame:
    """Keep the messages that findings of these kinds name, with `finding` and `as_of`.

    `finding` is `lost` or `stuck` (null: another kind), `as_of` the time of its snapshot (ms).
    """
    again = F.when(F.col("kind").isin(*LOOKED_AT), F.col("kind"))
    named = findings.where(F.col("kind").isin(*kinds)).groupBy(*KEY)
    return messages.join(
        named.agg(F.min(again).alias("finding"), F.max("as_of").alias("as_of")), list(KEY)
    )


def settled(messages: DataFrame, replays: DataFrame) -> DataFrame:
    """Keep those of `named_by` whose finding is no longer true.

    They have come to an end, or were seen after the snapshot that lacked them, or another replay
    has taken them since.
    """
    taken = replays.groupBy(*KEY).agg(F.max("planned_at").alias("taken_at"))
    seen_since = (F.col("finding") == LOST) & (F.col("last_at") > F.col("as_of"))
    over = (F.col("state") != "outstanding") | seen_since | (F.col("taken_at") > F.col("as_of"))
    known = messages.where(F.col("finding").isNotNull()).join(taken, list(KEY), "left")
    return known.where(F.coalesce(over, F.lit(False)))


def with_content(messages: DataFrame, events: DataFrame) -> DataFrame:
    """Add the content fields of the earliest `added` of each message."""
    added = events.where(F.col("event") == "added")
    first = F.min_by(F.struct(*_CONTENT), F.struct("at", "event_id")).alias("content")
    contents = added.groupBy(*KEY).agg(first)
    kept = messages.drop(*_CONTENT)
    return kept.join(contents, list(KEY)).select(*kept.columns, "content.*")


def planned(messages: DataFrame, *, replay: str, started: int, same_ids: bool) -> DataFrame:
    """Give every message its place and its id.

    Messages keep the order of their ids; new ids ascend with the place.

    Args:
        messages: chosen; `finding` is kept.
        replay: the replay's id; the same plan is made of it again.
        started: the time of new ids, ms.
        same_ids: whether messages keep their ids.

    Returns:
        Columns of table `replays` without `plan`.
    """
    order = Over.orderBy("id", "topic", "epoch", "shard")
    position = F.row_number().over(order).cast("long").alias("position")
    placed = messages.select(*KEY, "finding", position)
    new_id = F.col("id") if same_ids else _new_id(replay, started)
    return placed.select(
        F.lit(replay).alias("replay"),
        "position",
        *KEY,
        new_id.alias("new_id"),
        F.lit(started).cast("long").alias("planned_at"),
        "finding",
    )


def _new_id(replay: str, started: int) -> Column:
    """A UUIDv7: time, place, and a hash of the replay and of the message."""
    position = F.col("position")
    ms = F.lit(started) + F.shiftright(position, _LOW_BITS)
    low = position.bitwiseAND((1 << _LOW_BITS) - 1)
    time = F.lpad(F.lower(F.hex(ms)), 12, "0")
    place = F.lpad(F.lower(F.hex(low)), 5, "0")
    digest = F.sha2(F.concat_ws("/", F.lit(replay), F.lit("0"), *KEY), 256)
    # 12 bits of the place, 8 more, then the hash: the version and the variant stand between
    text = F.concat(place, F.substring(digest, 1, _HASH_DIGITS))
    return F.concat(
        F.substring(time, 1, 8),
        F.lit("-"),
        F.substring(time, 9, 4),
        F.lit("-7"),
        F.substring(text, 1, 3),
        F.lit("-8"),
        F.substring(text, 4, 3),
        F.lit("-"),
        F.substring(text, 7, 12),
    )


def units(messages: DataFrame) -> DataFrame:
    """One row a topic: `messages`, `bytes`, `wru` of their items, written plainly.

    `without_body` counts those whose body is neither in the archive nor in a bucket.
    """
    is_bodiless = F.coalesce("body", "body_uri").isNull()
    headers = F.coalesce(F.length(F.to_json("headers")), F.lit(0))
    key = F.coalesce(F.octet_length("partition_key"), F.lit(0))
    # an offloaded body leaves its address in the item
    body = F.when(F.col("body_uri").isNotNull(), F.length("body_uri")).otherwise(F.col("size"))
    item = F.coalesce(body, F.lit(0)) + key + headers + _ITEM_BYTES
    return messages.groupBy("topic").agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum("size").alias("bytes"),
        F.sum(F.ceil(item / 1024)).alias("wru"),
        F.count_if(is_bodiless).alias("without_body"),
    )
