"""Messages that a destination cannot take in place, found as its calls would find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox.destinations.batching import BatchDestination
from fairbox.destinations.factory import DestinationFactory
from fairbox.errors import InvalidInput
from fairbox.model.clock import SystemClock

if TYPE_CHECKING:
    from fairbox.model.topics import Subscription
    from fairbox.tables.stored_messages import StoredMessage

_UNCALLED = DestinationFactory(
    clients=lambda *_, **__: None, clock=SystemClock(), add_to_topic=lambda _: []
)


def excess(stored: StoredMessage, subscription: Subscription) -> tuple[int, int] | None:
    """Return size and limit of a message, in bytes, if its destination cannot take it.

    The size is that of the entry: envelope, attributes and keys. A destination whose address cannot
    be used has no limit here.
    """
    try:
        destination = _UNCALLED.open(subscription)
    except InvalidInput:
        return None
    # a batch's own limit may be larger than what one entry may take
    if isinstance(destination, BatchDestination):
        size, limit = destination.prepare(stored).size, destination.alone
    else:
        size, limit = destination.size(stored), destination.limits.bytes
    return (size, limit) if size > limit else None
