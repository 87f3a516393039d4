"""The archive through Firehose: lines packed into records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.model.clock import Clock

RECORD_BYTES: Final = 500_000  # of 1,000 KiB that Firehose takes; a longer line goes alone
_CALL_BYTES: Final = 3_500_000
_CALL_RECORDS: Final = 500
_TRIES: Final = 5


class FirehoseArchive:
    """Implements `fairbox.dispatch.ports.Archive`.

    Args:
        client: boto3's Firehose client.
        stream: name of the delivery stream.
        clock: waits between tries.
    """

    def __init__(self, client: Any, stream: str, clock: Clock) -> None:
        self._client = client
        self._stream = stream
        self._clock = clock

    def write(self, lines: Sequence[bytes]) -> None:
        """Put the lines into the stream, many to a record.

        Raises:
            Unavailable: some were not taken after all tries; all may be written again.
        """
        for call in _calls(_records(lines)):
            self._put([{"Data": data} for data in call])

    def _put(self, records: list[dict[str, Any]]) -> None:
        failure = ""
        for attempt in range(_TRIES):
            if attempt:
                self._clock.sleep(0.1 * 2**attempt)
            try:
                answer = self._client.put_record_batch(
                    DeliveryStreamName=self._stream, Records=records
                )
            except (ClientError, BotoCoreError) as error:
                failure = str(error)
                continue
            if not answer["FailedPutCount"]:
                return
            results = zip(records, answer["RequestResponses"], strict=True)
            records = [record for record, result in results if "ErrorCode" in result]
            failure = f"{len(records)} records were not taken"
        raise Unavailable("put_record_batch", failure)


def _records(lines: Sequence[bytes]) -> list[bytes]:
    return [b"\n".join(group) + b"\n" for group in _grouped(lines, RECORD_BYTES, len(lines))]


def _calls(records: list[bytes]) -> list[list[bytes]]:
    return _grouped(records, _CALL_BYTES, _CALL_RECORDS)


def _grouped(parts: Sequence[bytes], most_bytes: int, most: int) -> list[list[bytes]]:
    groups: list[list[bytes]] = []
    size = 0
    for part in parts:
        if not groups or size + len(part) > most_bytes or len(groups[-1]) >= most:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += len(part) + 1
    return groups
