"""SNS topics, standard and FIFO: ten messages and 256 KiB a call."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from fairbox.destinations.batching import BatchDestination, Prepared, by_id
from fairbox.destinations.entries import entry
from fairbox.dispatch.ports import Limits, Outcome
from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from fairbox.tables.stored_messages import StoredMessage

_ARN = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?")
_LIMIT: Final = 256 * 1024


class Sns(BatchDestination):
    """A topic; its name's suffix `.fifo` makes it one that keeps order by group.

    Groups and deduplication ids are those of `entries.entry`.

    Raises:
        InvalidInput: the ARN is not that of a topic.
    """

    limits = Limits(10, _LIMIT)

    def __init__(self, client: Any, arn: str) -> None:
        super().__init__(client)
        match = _ARN.fullmatch(arn)
        if match is None:
            raise InvalidInput("destination", "sns: and the ARN of a topic")
        self._arn = arn
        self._fifo = match[1] is not None
        self.keeps_order = self._fifo

    def prepare(self, stored: StoredMessage) -> Prepared:
        """Return the message's entry."""
        return entry(stored, "Message", limit=self.limits.bytes, fifo=self._fifo)

    def call(self, entries: list[dict[str, Any]]) -> list[Outcome]:
        """Make one call of `PublishBatch`."""
        response = self._client.publish_batch(
            TopicArn=self._arn,
            PublishBatchRequestEntries=[{"Id": str(n), **one} for n, one in enumerate(entries)],
        )
        return by_id(response, len(entries))
