"""SQS queues, standard and FIFO: ten messages and 1 MiB a call."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from fairbox.destinations.batching import BatchDestination, Prepared, by_id
from fairbox.destinations.entries import entry
from fairbox.dispatch.ports import Limits, Outcome
from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from fairbox.tables.stored_messages import StoredMessage

_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(?:/[^/\s?#]+)*/[A-Za-z0-9_-]{1,80}(\.fifo)?")
_MIB: Final = 1024 * 1024


class Sqs(BatchDestination):
    """A queue; its URL's suffix `.fifo` makes it one that keeps order by group.

    Groups and deduplication ids are those of `entries.entry`.

    Raises:
        InvalidInput: the URL is not that of a queue.
    """

    limits = Limits(10, _MIB)

    def __init__(self, client: Any, url: str) -> None:
        super().__init__(client)
        match = _URL.fullmatch(url)
        if match is None:
            raise InvalidInput("destination", "sqs: and the URL of a queue")
        self._url = url
        self._fifo = match[1] is not None
        self.keeps_order = self._fifo

    def prepare(self, stored: StoredMessage) -> Prepared:
        """Return the message's entry."""
        return entry(stored, "MessageBody", limit=self.limits.bytes, fifo=self._fifo)

    def call(self, entries: list[dict[str, Any]]) -> list[Outcome]:
        """Make one call of `SendMessageBatch`."""
        response = self._client.send_message_batch(
            QueueUrl=self._url,
            Entries=[{"Id": str(n), **one} for n, one in enumerate(entries)],
        )
        return by_id(response, len(entries))
