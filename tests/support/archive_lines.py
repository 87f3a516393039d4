"""Lines of the archive as its users read them: which fields an event has, of which types."""

from __future__ import annotations

from typing import Any

COMMON: dict[str, type] = {
    "event": str,
    "at": int,
    "topic": str,
    "epoch": int,
    "shard": int,
    "id": str,
    "event_id": str,
}
CONTENT: dict[str, tuple[type, ...]] = {
    "partition_key": (str, type(None)),
    "content_type": (str,),
    "headers": (dict,),
    "body": (str,),
    "body_encoding": (str,),
    "size": (int,),
    "batch_item": (str, type(None)),
    "ordering": (str,),
}
ATTEMPT: dict[str, type] = {"subscription": str, "destination": str, "attempt": int}
OF_ATTEMPTS = ("failed", "delivered", "dead")
WITH_REASON = ("failed", "dead", "cancelled", "purged")


def check_line(line: dict[str, Any]) -> None:
    """Fail unless a line has exactly its event's fields, each of its type."""
    fields: dict[str, type | tuple[type, ...]] = dict(COMMON)
    if line["event"] == "added":
        fields |= CONTENT
    if line["event"] in OF_ATTEMPTS:
        fields |= ATTEMPT
    if line["event"] in WITH_REASON:
        fields["reason"] = str
    if line["event"] not in ("added", "failed"):
        fields["precision"] = str
    assert set(line) - {"due"} == set(fields), line
    assert line.get("precision", "s") == "s", line
    for name, kind in fields.items():
        assert isinstance(line[name], kind), f"{name}: {line}"
        assert not isinstance(line[name], bool), f"{name}: {line}"
    assert line["at"] > 1_600_000_000_000, line
    assert line.get("attempt", 1) >= 1, line
