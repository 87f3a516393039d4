"""Attributes of the tables' items that the pipeline reads: names, types, lanes.

A copy, so that no job needs the library; a test compares it with the library's codec.
"""

from __future__ import annotations

from typing import Final

PK: Final = "pk"
SK: Final = "sk"

MESSAGE: Final[dict[str, tuple[str, str]]] = {
    "partition_key": ("k", "S"),
    "content_type": ("t", "S"),
    "size": ("z", "N"),
    "batch_item": ("i", "S"),
    "gone": ("g", "S"),
    "due": ("d", "N"),
}
"""Column -> attribute and its type, of a message in a lane."""
MARK: Final = "z"
"""The attribute that every message has, and no other item."""
LANES: Final = ("ready", "later", "dead")

CONFIG: Final = "config"
"""The partition key of topic rows."""
EPOCHS: Final = "ep"
"""The attribute of a topic row that lists its epochs: number, shards, since (ms)."""

TRACKER: Final[dict[str, tuple[str, str]]] = {
    "bits": ("b", "B"),
    "count": ("n", "N"),
    "size": ("z", "N"),
    "failed": ("f", "N"),
    "settled": ("d", "N"),
    "state": ("st", "S"),
    "next_group": ("g", "N"),
    "total": ("t", "N"),
    "opened": ("c", "N"),
    "user_key": ("u", "S"),
}
"""Column -> attribute and its type, of a root, node, leaf or failed item of a batch."""
TRACKER_KINDS: Final = {"root": "root", "n": "node", "l": "leaf", "f": "failed"}
"""Sort key -> kind of item; other items of a batch are ignored."""
DIRECT_GROUPS: Final = 64
NODE_GROUPS: Final = 7168
