"""Stream records of a table, as Lambda hands them to a function."""

from __future__ import annotations

from base64 import b64encode
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairbox.testing.units import item_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .values import Item, Value

FIRST_SEQUENCE: Final = 10**20  # all sequence numbers have as many digits: text sorts as numbers
_VIEWS: Final = {
    "NEW_AND_OLD_IMAGES": ("NewImage", "OldImage"),
    "NEW_IMAGE": ("NewImage",),
    "OLD_IMAGE": ("OldImage",),
    "KEYS_ONLY": (),
}
TTL_IDENTITY: Final = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


class Change(NamedTuple):
    """One change of one item, kept until it is read."""

    sequence: int
    at: float  # epoch seconds
    keys: Item
    old: Item | None
    new: Item | None
    expired: bool


class Stream:
    """The changes of a table, oldest first; rendered as Lambda's records when read."""

    def __init__(self, arn: str, view: str, region: str) -> None:
        self.arn = arn
        self.view = view
        self._region = region
        self._changes: list[Change] = []

    def append(self, change: Change) -> None:
        """Add a change; its sequence number is above all others'."""
        self._changes.append(change)

    def take(self, after_sequence: str | None = None, limit: int | None = None) -> list[Any]:
        """Records behind `after_sequence` (from the start where None), at most `limit`."""
        start = 0 if after_sequence is None else self._behind(after_sequence)
        end = None if limit is None else start + limit
        return [self._record(change) for change in self._changes[start:end]]

    def trim(self, through_sequence: str) -> int:
        """Forget the records up to `through_sequence`; return their number."""
        count = self._behind(through_sequence)
        del self._changes[:count]
        return count

    def _behind(self, sequence: str) -> int:
        return bisect_right(self._changes, int(sequence), key=lambda change: change.sequence)

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[Any]:
        # a copy: the test may write while it reads
        return map(self._record, list(self._changes))

    def __getitem__(self, index: int) -> Any:
        return self._record(self._changes[index])

    def _record(self, change: Change) -> dict[str, Any]:
        sequence = str(change.sequence)
        images = {"NewImage": change.new, "OldImage": change.old}
        shown = {name: images[name] for name in _VIEWS[self.view] if images[name] is not None}

        data: dict[str, Any] = {
            # the service stamps whole seconds
            "ApproximateCreationDateTime": int(change.at),
            "Keys": lambda_item(change.keys),
            **{name: lambda_item(image or {}) for name, image in shown.items()},
            "SequenceNumber": sequence,
            "SizeBytes": item_size(change.keys) + sum(item_size(i or {}) for i in shown.values()),
            "StreamViewType": self.view,
        }

        record = {
            "eventID": f"{change.sequence - FIRST_SEQUENCE:032x}",
            "eventName": _event_name(change),
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": self._region,
            "dynamodb": data,
            "eventSourceARN": self.arn,
        }

        # by this alone a function tells an expiry from a delete by somebody
        if change.expired:
            record["userIdentity"] = dict(TTL_IDENTITY)
        return record


def _event_name(change: Change) -> str:
    if change.old is None:
        return "INSERT"
    return "REMOVE" if change.new is None else "MODIFY"


def lambda_item(item: Item) -> dict[str, Any]:
    """An item as JSON carries it: binaries as base64 text, numbers as the strings they are."""
    return {name: _lambda_value(value) for name, value in item.items()}


def _lambda_value(value: Value) -> Value:
    ((kind, raw),) = value.items()
    if kind == "B":
        return {"B": b64encode(raw).decode()}
    if kind == "BS":
        return {"BS": [b64encode(element).decode() for element in raw]}
    if kind == "M":
        return {"M": lambda_item(raw)}
    if kind == "L":
        return {"L": [_lambda_value(element) for element in raw]}
    return {kind: list(raw) if isinstance(raw, list) else raw}
