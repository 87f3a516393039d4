"""The library's hashes as Spark expressions: the same numbers, computed natively.

`docs/reference/hashing.md` fixes them. No Python runs for a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

_PARTITION_DOMAIN: Final = b"fairbox/partition\0"


def shard_hash(key: Column) -> Column:
    """Return bytes 0 to 3 of SHA-256 of a string as an unsigned little-endian number (bigint)."""
    digest = F.sha2(key.cast("binary"), 256)
    pairs = [F.substring(digest, position, 2) for position in (7, 5, 3, 1)]
    return F.conv(F.concat(*pairs), 16, 10).cast("bigint")


def shard_number(key: Column, shards: Column) -> Column:
    """Return the shard of a partition key among `shards`; null where either is."""
    return shard_hash(key) % shards


def partition_hash(key: Column) -> Column:
    """Return bytes 0 to 7 of the domain's SHA-256 as an unsigned big-endian decimal(20)."""
    prefix = F.unhex(F.lit(_PARTITION_DOMAIN.hex()))
    digest = F.sha2(F.concat(prefix, key.cast("binary")), 256)
    return F.conv(F.substring(digest, 1, 16), 16, 10).cast("decimal(20,0)")


def partition_number(key: Column, partitions: Column) -> Column:
    """Return the partition of a `PartitionedQueue` that a key belongs to (bigint)."""
    return (partition_hash(key) % partitions.cast("decimal(20,0)")).cast("bigint")
