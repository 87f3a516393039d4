"""EventBridge buses: ten events and 1 MB a call."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from fairbox.cloudevents import attributes_of
from fairbox.destinations.batching import BatchDestination, Prepared, fitting, in_order
from fairbox.dispatch.ports import Limits, Outcome
from fairbox.errors import InvalidInput
from fairbox.model.ids import LAST_MS, time_of

if TYPE_CHECKING:
    from fairbox.tables.stored_messages import StoredMessage

_BUS = re.compile(
    r"(?:arn:aws[a-z-]*:events:[a-z0-9-]+:[0-9]{12}:event-bus/)?[A-Za-z0-9._/-]{1,256}"
)
_MAX_SOURCE: Final = 256
_RESERVED: Final = "aws."
_MAX_DETAIL_TYPE: Final = 128
_TIME_BYTES: Final = 14


class EventBridge(BatchDestination):
    """A bus. `Detail` is the envelope, `Source` and `DetailType` its source and type.

    A source over 256 characters or of AWS's own (`aws.`), and a type over 128, stand in the
    envelope only: the entry then has `fairbox` and `fairbox.message`. EventBridge writes JSON
    anew, so the same value arrives, but not the same bytes; it keeps no order.

    Raises:
        InvalidInput: it is neither a bus's name nor its ARN.
    """

    limits = Limits(10, 1_000_000)
    keeps_order = False

    def __init__(self, client: Any, bus: str) -> None:
        super().__init__(client)
        if _BUS.fullmatch(bus) is None:
            raise InvalidInput("destination", "events: and the name or ARN of an event bus")
        self._bus = bus

    def prepare(self, stored: StoredMessage) -> Prepared:
        """Return the message's entry."""
        attributes = attributes_of(stored)
        source, kind = attributes["source"], attributes["type"]
        # PutEvents refuses a source that begins as AWS's own
        ours = len(source) <= _MAX_SOURCE and not source.startswith(_RESERVED)
        source = source if ours else "fairbox"
        kind = kind if len(kind) <= _MAX_DETAIL_TYPE else "fairbox.message"
        extra = len(source.encode()) + len(kind.encode()) + _TIME_BYTES
        detail = fitting(stored, self.limits.bytes - extra)
        entry: dict[str, Any] = {
            "EventBusName": self._bus,
            "Source": source,
            "DetailType": kind,
            "Detail": detail.decode(),
        }

        time = time_of(stored.message.id)
        if time <= LAST_MS:  # past it the service takes no time
            entry["Time"] = time // 1000
        return Prepared(entry, len(detail) + extra)

    def call(self, entries: list[dict[str, Any]]) -> list[Outcome]:
        """Make one call of `PutEvents`."""
        response = self._client.put_events(Entries=entries)
        return in_order(response.get("Entries", ()), len(entries))
