"""The library's hashes as Spark expressions: the same numbers, computed natively.

`docs/reference/hashing.md` fixes them. No Python runs for a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


def shard_hash(key: Column) -> Column:
    """Return bytes 0 to 3 of SHA-256 of a string as an unsigned little-endian number (bigint)."""
    digest = F.sha2(key.cast("binary"), 256)
    pairs = [F.substring(digest, position, 2) for position in (7, 5, 3, 1)]
    return F.conv(F.concat(*pairs), 16, 10).cast("bigint")


def shard_number(key: Column, shards: Column) -> Column:
    """Return the shard of a partition key among `shards`; null where either is."""
    return shard_hash(key) % shards
