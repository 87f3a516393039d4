"""The archive through Firehose: lines packed into gzip members, one a record.

The quota of a delivery stream counts bytes as they are put, so they are compressed before. The
stream does not compress: it appends records, and gzip members one after another are a gzip file.
"""

from __future__ import annotations

import gzip
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.model.chunks import chunks
from fairbox.observability.metrics import ARCHIVE_BYPASSED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence, Sized

    from fairbox.aws.s3_archive import S3Archive
    from fairbox.model.clock import Clock

MEMBER_BYTES: Final = 1_000_000
"""Bytes of lines in a member: even what cannot be compressed then fits a record."""
RECORD_BYTES: Final = 1_000 * 1024
"""Bytes of a record that Firehose takes."""
LEVEL: Final = 3
"""Compression level of gzip: decision 0013 has the figures."""
_CALL_BYTES: Final = 3_500_000
_CALL_RECORDS: Final = 500
_TRIES: Final = 2
_PAUSE_SECONDS: Final = 0.2
_SILENT_SECONDS: Final = 60

_Part = TypeVar("_Part", bound="Sized")

logger = logging.getLogger("fairbox")


@dataclass(frozen=True, slots=True)
class Member:
    """Lines as one gzip member, and their number."""

    data: bytes
    lines: int

    def __len__(self) -> int:
        return len(self.data)


class FirehoseArchive:
    """Implements `fairbox.dispatch.ports.Archive`.

    Firehose merges the lines of many invocations into large objects. After two tries, lines that
    it throttles or refuses go to `objects`, so that no quota of a stream bounds the outbox. After a
    call without an answer, it gets no calls for a minute.

    Args:
        client: boto3's Firehose client.
        stream: name of the delivery stream, which must not compress.
        clock: waits between tries.
        objects: takes the lines that Firehose does not take.
        emit: writes figures by metric.
    """

    def __init__(
        self,
        client: Any,
        stream: str,
        clock: Clock,
        *,
        objects: S3Archive,
        emit: Callable[[Mapping[str, float]], None],
    ) -> None:
        self._client = client
        self._stream = stream
        self._clock = clock
        self._objects = objects
        self._emit = emit
        self._silent_until = 0.0

    def write(self, lines: Sequence[bytes]) -> None:
        """Put the lines into the stream, many to a record; past it into S3 if it takes them not.

        Raises:
            Unavailable: neither Firehose nor S3 took some of them; all may be written again.
        """
        members = pack(lines)
        # larger than a record may be: they go past the stream
        left = [member for member in members if len(member) > RECORD_BYTES]
        for call in _grouped(
            [member for member in members if len(member) <= RECORD_BYTES],
            _CALL_BYTES,
            _CALL_RECORDS,
        ):
            left += self._put(call)

        if left:
            # one object for all of them: gzip members one after another are one file
            self._objects.put(b"".join(member.data for member in left))
            self._emit({ARCHIVE_BYPASSED: sum(member.lines for member in left)})

    def _put(self, members: list[Member]) -> list[Member]:
        """Put the members into the stream; return the members that it did not take."""
        failure = "it did not answer before"
        for attempt in range(_TRIES):
            # also before the second try: the first may have had no answer
            if self._clock.now() < self._silent_until:
                break

            if attempt:
                self._clock.sleep(_PAUSE_SECONDS)

            try:
                answer = self._client.put_record_batch(
                    DeliveryStreamName=self._stream,
                    Records=[{"Data": member.data} for member in members],
                )
            except ClientError as error:
                failure = str(error)
                continue
            except BotoCoreError as error:
                failure = type(error).__name__
                # a call without an answer takes its whole time-out: others do without for a while
                self._silent_until = self._clock.now() + _SILENT_SECONDS
                continue

            results = zip(members, answer["RequestResponses"], strict=True)
            refused = [(member, result) for member, result in results if "ErrorCode" in result]
            if not refused:
                return []
            # Firehose answers for each record: those that it took must not be put twice
            members = [member for member, _ in refused]
            failure = str(refused[0][1]["ErrorCode"])

        logger.warning(
            "lines go past Firehose",
            extra={"lines": sum(member.lines for member in members), "error": failure},
        )
        return members


def pack(lines: Sequence[bytes]) -> list[Member]:
    """Return the lines as gzip members, each of at most `MEMBER_BYTES` of them, or of one line.

    The same lines give the same bytes.
    """
    return [
        Member(gzip.compress(b"\n".join(group) + b"\n", LEVEL, mtime=0), len(group))
        for group in _grouped(lines, MEMBER_BYTES, len(lines))
    ]


def _grouped(parts: Sequence[_Part], most_bytes: int, most: int) -> Iterator[list[_Part]]:
    # each line's end counts, but for the last one's
    return chunks(parts, lambda part: len(part) + 1, items_most=most, bytes_most=most_bytes + 1)
