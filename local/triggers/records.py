"""Stream records in Lambda's format, made from the answers of the stream's API."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

ENVELOPE_BYTES: Final = len(b'{"Records": []}')
_PARTS: Final = (
    "ApproximateCreationDateTime",
    "Keys",
    "NewImage",
    "OldImage",
    "SequenceNumber",
    "SizeBytes",
    "StreamViewType",
)


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """One record, converted once and shared by all mappings of its stream.

    `body` is Lambda's JSON of the record, `order` its sequence number as a number, `created` whole
    seconds since the epoch. `partition_key` and `item_key` are canonical JSON of the key values.
    """

    sequence_number: str
    partition_key: str
    item_key: str
    created: int
    body: bytes = field(repr=False)
    order: int

    @property
    def size(self) -> int:
        """Bytes that the record takes in an event, separator included."""
        return len(self.body) + 2


def convert(
    wire: dict[str, Any], *, stream_arn: str, region: str, hash_key: str, now: float
) -> tuple[StreamRecord, dict[str, Any]]:
    """Return a record and the event entry that filters read.

    `wire` is one entry of `GetRecords` in the API's JSON, where numbers are strings and binary
    values base64 text, as they are in Lambda's events. `now` is the time of reading, in seconds
    since the epoch: see `_created`.
    """
    change = wire["dynamodb"]
    change["ApproximateCreationDateTime"] = _created(change["ApproximateCreationDateTime"], now)
    event: dict[str, Any] = {
        "eventID": wire["eventID"].replace("-", ""),
        "eventName": wire["eventName"],
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": region,
        "dynamodb": {part: change[part] for part in _PARTS if part in change},
        "eventSourceARN": stream_arn,
    }
    identity = wire.get("userIdentity")
    if identity is not None:
        event["userIdentity"] = {"type": identity["Type"], "principalId": identity["PrincipalId"]}
    keys = change["Keys"]
    record = StreamRecord(
        sequence_number=change["SequenceNumber"],
        partition_key=json.dumps(keys[hash_key]),
        item_key=json.dumps([keys[name] for name in sorted(keys)]),
        created=change["ApproximateCreationDateTime"],
        body=json.dumps(event, ensure_ascii=False).encode(),
        order=int(change["SequenceNumber"]),
    )
    return record, event


def _created(given: float, now: float) -> int:
    """Return the time when a record was written, in whole seconds, as the service reports it.

    DynamoDB Local reports only the minute: then it is the time of reading, within that minute.
    """
    whole = int(given)
    return whole if whole % 60 else max(whole, min(int(now), whole + 59))


def payload(bodies: list[bytes]) -> bytes:
    """Return the event that hands these records to a function."""
    return b'{"Records": [' + b", ".join(bodies) + b"]}"
