"""Findings of schemathesis that are correct behaviour, each with the reason."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_GIVEN: Final = "only the API makes it: a schema describes the form, not which were given"
_TOGETHER: Final = "fields that depend on each other, or on the topic, which no schema says"
_BYTES: Final = "JSON Schema counts characters, the limit counts bytes"


@dataclass(frozen=True)
class Excuse:
    """A refusal of what the document allows, and why the document cannot forbid it."""

    operation: str
    status: int
    field: str
    why: str

    def holds(self, operation: str, status: int, field: str) -> bool:
        """Whether it is this refusal."""
        return (
            re.fullmatch(self.operation, operation) is not None
            and status == self.status
            and re.fullmatch(self.field, field) is not None
        )


EXCUSES: Final = (
    Excuse("GET .*", 422, "cursor", _GIVEN),
    Excuse("POST /(acks|nacks|extensions|releases)", 422, r"\w+\.\d+(\.receipt)?", _GIVEN),
    Excuse("POST /batches(/acks|/fails|/retries)?", 422, "items", _GIVEN),
    Excuse("POST /topics/{topic}/redrive", 422, "ids", _GIVEN),
    Excuse("DELETE /topics/{topic}/dead", 422, "ids", _GIVEN),
    Excuse("GET /topics/{topic}/messages", 422, "since|until", _TOGETHER),
    Excuse("PUT /topics/{topic}", 422, r"on_dead|retry\.cap", _TOGETHER),
    Excuse("PUT /topics/{topic}/subscriptions/{name}", 422, "destination", _TOGETHER),
    Excuse("PATCH /messages/{ref}", 422, "delay|body_encoding", _TOGETHER),
    Excuse("POST /topics/{topic}/messages", 422, "delay|id|after|body_encoding", _TOGETHER),
    Excuse("POST /topics/{topic}/redrive", 422, "body_encoding", _TOGETHER),
    Excuse("POST /feeds/{feed}/{key}", 422, "body_encoding", _TOGETHER),
    Excuse("PUT /feeds/{feed}", 422, "kind|size|history|limit|window|keep", _TOGETHER),
    # `data` depends on `datacontenttype`; each plane of Unicode has non-characters of its own
    Excuse("POST /topics/{topic}/messages", 400, r"(ce|events\[\d+\])\.\w+", _TOGETHER),
    Excuse("POST /batches/{id}/items", 422, "count", _TOGETHER),
    Excuse(".*", 422, "body", "text of base64 is read by body_encoding, a field beside it"),
    Excuse("POST /batches", 422, "metadata", _BYTES),
    Excuse("POST /batches", 422, "parent_item", _GIVEN),
    Excuse("POST /batches", 422, "on_[a-z]+", "a topic that exists, or a destination"),
)


def refused_fields(status: int, body: bytes) -> Iterator[tuple[str, str]]:
    """Yield field and expectation of each error of a refusal."""
    problem: Any = json.loads(body)
    if status == 422 and problem["type"].endswith(":unknown-items"):
        yield "items", "issued"
        return
    for error in problem.get("errors", ()):
        yield error["field"], error["expected"]


def excused(check: str, operation: str, status: int, body: bytes) -> bool:
    """Whether a failed check is none: every refused field has its excuse."""
    if check == "use_after_free":
        return operation.startswith("GET /batches/{id}")  # what is cancelled is shown as cancelled
    if check == "missing_required_header":
        return status == 403  # a gateway that checks IAM says 403, not 401, where nothing is signed
    if check != "positive_data_acceptance":
        return False
    fields = list(refused_fields(status, body))
    return bool(fields) and all(
        "bytes" in expected  # _BYTES
        or any(excuse.holds(operation, status, field) for excuse in EXCUSES)
        for field, expected in fields
    )
