"""Stream records, as Lambda hands them over, to changes of messages."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from fairbox.errors import Unreadable
from fairbox.tables import keys
from fairbox.tables.keys import PK, SK, parse_lane_pk
from fairbox.tables.stored_messages import StoredMessage, read_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


ChangeKind = Literal["INSERT", "MODIFY", "REMOVE"]
_SEQUENCE_DIGITS: Final = 40


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one message's item.

    Attributes:
        kind: insert, modify or remove.
        old, new: the message before and after; None where there was none.
        sequence: the stream's sequence number.
        event_id: the stream's own id of the record: the same when it comes again.
        at: when, in milliseconds since 1970 UTC, by whole seconds.
    """

    kind: ChangeKind
    old: StoredMessage | None
    new: StoredMessage | None
    sequence: str
    event_id: str
    at: int

    @property
    def stored(self) -> StoredMessage:
        """The newest image that there is."""
        image = self.new or self.old
        if image is None:
            raise Unreadable({}, "a record without image")
        return image


def table_of(record: Mapping[str, Any]) -> str:
    """Return the name of the table whose stream a record came from; empty where it does not say."""
    # arn:aws:dynamodb:REGION:ACCOUNT:table/NAME/stream/TIME
    _, _, rest = str(record.get("eventSourceARN", "")).partition(":table/")
    return rest.partition("/")[0]


def without_heartbeats(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the records except those of the heartbeat row, which only makes them readable."""
    return [record for record in records if not _is_heartbeat(record)]


def _is_heartbeat(record: Mapping[str, Any]) -> bool:
    match record:
        case {"dynamodb": {"Keys": {keys.PK: {"S": keys.HEARTBEATS}}}}:
            return True
    return False


def sequence_order(sequence: str) -> str:
    """Return a sequence number padded so that texts compare as the numbers do."""
    return sequence.zfill(_SEQUENCE_DIGITS)


def image_item(image: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's image as the client would give the item: binaries as bytes.

    Raises:
        Unreadable: a binary is not base64.
    """
    try:
        return {name: _value(value) for name, value in image.items()}
    except (binascii.Error, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Unreadable({}, f"a binary that is not base64: {error}") from error


def _value(value: Any) -> Any:
    """Return an attribute's value with its binaries as bytes, at any depth."""
    if "B" in value:
        return {"B": base64.b64decode(value["B"], validate=True)}
    if "BS" in value:
        return {"BS": [base64.b64decode(part, validate=True) for part in value["BS"]]}
    if "M" in value:
        return {"M": {name: _value(part) for name, part in value["M"].items()}}
    return {"L": [_value(part) for part in value["L"]]} if "L" in value else value


def read_record(record: Mapping[str, Any]) -> Change:
    """Return the change that a stream record holds.

    Raises:
        Unreadable: an image is no message of the codec's; `.key` names it.
    """
    body = record["dynamodb"]
    old = body.get("OldImage")
    new = body.get("NewImage")
    return Change(
        kind=cast("ChangeKind", record["eventName"]),
        old=read_message(image_item(old)) if old else None,
        new=read_message(image_item(new)) if new else None,
        sequence=body["SequenceNumber"],
        event_id=record["eventID"],
        at=int(float(body["ApproximateCreationDateTime"])) * 1000,
    )


def raw_image(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the newest image of a record that could not be read, as the client would give it."""
    body = record["dynamodb"]
    image = dict(body.get("NewImage") or body.get("OldImage") or body["Keys"])
    try:
        return image_item(image)
    except Unreadable:
        return {name: value for name, value in image.items() if name in (PK, SK)}


def record_lane(record: Mapping[str, Any]) -> tuple[Literal["ready", "later"], str, int, int]:
    """Return lane, topic, epoch and shard of a record's key, without a look at its images.

    Raises:
        Unreadable: the key is not that of a message of the outbox.
    """
    keys = record["dynamodb"]["Keys"]
    lane, topic, epoch, shard = parse_lane_pk(str(keys[PK].get("S", "")))
    if lane == "dead":
        raise Unreadable({}, "not a lane of the outbox")
    return lane, topic, epoch, shard
