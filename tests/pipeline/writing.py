"""Writes small archives: lines of events as the application writes them."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def uid(n: int, ms: int = 0x0198F3C27D7E) -> str:
    """A UUIDv7 of a time; ids ascend with `n`."""
    time = f"{ms:012x}"
    return f"{time[:8]}-{time[8:]}-7{n >> 8 & 0xFFF:03x}-8{n & 0xFF:02x}0-{n:012x}"


def added(
    n: int, topic: str = "orders", at: int = 1_763_000_000_000, **more: Any
) -> dict[str, Any]:
    """An `added` of message `n`."""
    return {
        **event("added", n, topic, at),
        "partition_key": f"k{n % 7}",
        "content_type": "application/json",
        "headers": {"traceparent": f"t{n}"},
        "body": json.dumps({"n": n}),
        "body_encoding": "utf-8",
        "size": len(json.dumps({"n": n})),
        "batch_item": None,
        "ordering": "none",
        **more,
    }


def event(kind: str, n: int, topic: str = "orders", at: int = 0, **more: Any) -> dict[str, Any]:
    """An event of message `n` of a topic of four shards."""
    named = f"{topic}:{n}:{kind}:{more.get('subscription', '')}:{more.get('attempt', '')}"
    return {
        "event": kind,
        "at": at,
        "topic": topic,
        "epoch": 0,
        "shard": n % 4,
        "id": uid(n),
        "event_id": named,
        **more,
    }


def ended(kind: str, n: int, topic: str = "orders", at: int = 0, **more: Any) -> dict[str, Any]:
    """A `delivered`, `failed` or `dead` of message `n`."""
    whole = {"subscription": "billing", "destination": "sqs:billing", "attempt": 1, **more}
    if kind != "delivered":
        whole.setdefault("reason", "no")
    return event(kind, n, topic, at, **whole)


def write(
    folder: Path, lines: Sequence[dict[str, Any]], name: str = "a", day: str = "2026-11-19"
) -> Path:
    """Write one file of an archive; return the archive."""
    place = folder / f"dt={day}" / "hour=05"
    place.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (place / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return folder
