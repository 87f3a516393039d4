"""Partitions of a queue: their names, and the partition that a key belongs to.

The rule is fixed for good; `docs/reference/hashing.md` lists golden vectors for other languages.
Shards of a topic have a hash of their own, in `epochs`.
"""

from __future__ import annotations

import hashlib
from typing import Final

MAX_SHARDS: Final = 1_000
SEPARATOR: Final = "__p"  # between a queue's name and a partition's number
MAX_PARTITIONS: Final = 1_000
_PARTITION_DOMAIN: Final = b"fairbox/partition\0"


def partition_name(queue: str, number: int) -> str:
    """Return the topic's name of a partition; partition 0 keeps the queue's own."""
    # a queue may begin as a topic, whose messages then stay where they are
    return f"{queue}{SEPARATOR}{number}" if number else queue


def partition_number(key: str, partitions: int) -> int:
    r"""Return the partition of a `PartitionedQueue` that a key belongs to.

    Big-endian unsigned 64-bit of `SHA-256(b"fairbox/partition\0" + key)[0:8]` modulo the partition
    count: another domain than the shards', so that the two never correlate.
    """
    digest = hashlib.sha256(_PARTITION_DOMAIN + key.encode()).digest()
    return int.from_bytes(digest[:8], "big") % partitions
