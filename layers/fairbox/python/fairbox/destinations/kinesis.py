"""Kinesis data streams: 500 records and 10 MiB a call, in order by partition key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from fairbox.destinations.batching import BatchDestination, Prepared, fitting, in_order
from fairbox.dispatch.ports import Limits, Outcome
from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from fairbox.tables.stored_messages import StoredMessage

_ARN = re.compile(r"arn:aws[a-z-]*:kinesis:[a-z0-9-]+:[0-9]{12}:stream/[A-Za-z0-9_.-]{1,128}")
_MIB: Final = 1024 * 1024


class Kinesis(BatchDestination):
    """A stream. Its partition key is the message's, without one the message id.

    Raises:
        InvalidInput: the ARN is not that of a stream.
    """

    limits = Limits(500, 10 * _MIB)
    keeps_order = True

    def __init__(self, client: Any, arn: str) -> None:
        super().__init__(client)
        if _ARN.fullmatch(arn) is None:
            raise InvalidInput("destination", "kinesis: and the ARN of a stream")
        self._arn = arn

    @property
    def alone(self) -> int:
        """Bytes of one record that a stream takes unless it was set up for larger ones."""
        return _MIB

    def prepare(self, stored: StoredMessage) -> Prepared:
        """Return the message's record."""
        key = stored.message.shard_key or stored.message.id
        extra = len(key.encode())
        # the partition key counts against the limit of the record
        data = fitting(stored, self.alone - extra)
        return Prepared({"Data": data, "PartitionKey": key}, len(data) + extra)

    def call(self, entries: list[dict[str, Any]]) -> list[Outcome]:
        """Make one call of `PutRecords`."""
        response = self._client.put_records(StreamARN=self._arn, Records=entries)
        return in_order(response.get("Records", ()), len(entries))
