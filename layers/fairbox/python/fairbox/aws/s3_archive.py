"""The archive's objects that do not come from Firehose, and the objects waiting for its bucket."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.errors import Unavailable
from fairbox.observability.metrics import ARCHIVE_WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairbox.model.clock import Clock

ARCHIVE: Final = "archive/"
"""Prefix of the archive's objects in its bucket, as the delivery stream has it."""
WAITING: Final = "archive/waiting/"
"""Prefix in the failures bucket of objects that the archive's bucket refused."""
_TRIES: Final = 2
_PAUSE_SECONDS: Final = 0.2
_REFUSALS: Final = 10

logger = logging.getLogger("fairbox")


@dataclass(frozen=True, slots=True)
class Moved:
    """The result of a move: objects moved into the archive, and objects that still wait."""

    moved: int
    left: int


class S3Archive:
    """Objects put into the archive's bucket, or set aside until it takes them.

    Args:
        client: gives boto3's S3 client; asked at the first object, which most processes never put.
        bucket: the archive's bucket.
        failures: the bucket in which objects wait.
        clock: gives the hour of an object's key; waits between tries.
        emit: writes figures by metric.
    """

    def __init__(
        self,
        client: Callable[[], Any],
        bucket: str,
        failures: str,
        clock: Clock,
        emit: Callable[[Mapping[str, float]], None],
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._failures = failures
        self._clock = clock
        self._emit = emit

    def put(self, content: bytes) -> None:
        """Put gzip members as one object of this hour; where that fails, set it aside.

        Its key is made from its content, so that a repetition within the hour replaces it.

        Raises:
            Unavailable: neither bucket took it.
        """
        now = datetime.fromtimestamp(self._clock.now(), UTC)
        digest = hashlib.sha256(content).hexdigest()[:32]
        key = f"dt={now:%Y-%m-%d}/hour={now:%H}/direct-{digest}.json.gz"

        try:
            self._put(self._bucket, ARCHIVE + key, content)
        except Unavailable as error:
            logger.error(  # noqa: TRY400 - not a bug: it waits, and its alarm goes off
                "an object waits for the archive", extra={"key": key, "error": error.detail}
            )
            # under the same key, so that the move needs nothing but it
            self._put(self._failures, WAITING + key, content)
            self._emit({ARCHIVE_WAITING: 1})

    def move_waiting(self, *, deadline: float) -> Moved:
        """Move the objects that wait into the archive, those of the oldest hours first.

        An object that cannot be moved stays and does not stop others. Once the archive's bucket
        has refused ten in a row, and at the deadline, the rest stays too. A repetition replaces
        the object that was moved before.

        Args:
            deadline: seconds since 1970.

        Raises:
            Unavailable: the failures bucket cannot be listed.
        """
        moved = left = refusals = 0
        for key in self._waiting():
            # counted, not forgotten: the metric says how many wait
            if refusals >= _REFUSALS or self._clock.now() >= deadline:
                left += 1
                continue

            try:
                content = self._call("get_object", Bucket=self._failures, Key=key)["Body"].read()
                # a refusal, unless the put below succeeds: a failed read of what waits is none
                refusals += 1
                self._put(self._bucket, ARCHIVE + key.removeprefix(WAITING), content)
                refusals = 0
                # last: after a crash before it, the object is moved once more, to the same key
                self._call("delete_object", Bucket=self._failures, Key=key)
            except (Unavailable, BotoCoreError) as error:
                logger.warning(
                    "an object still waits for the archive", extra={"key": key, "error": str(error)}
                )
                left += 1
            else:
                moved += 1

        if left:
            self._emit({ARCHIVE_WAITING: left})
        return Moved(moved, left)

    def _waiting(self) -> list[str]:
        try:
            pages = (
                self._client()
                .get_paginator("list_objects_v2")
                .paginate(Bucket=self._failures, Prefix=WAITING)
            )
            return [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        except (ClientError, BotoCoreError) as error:
            raise Unavailable("list_objects_v2", type(error).__name__) from error

    def _put(self, bucket: str, key: str, content: bytes) -> None:
        """Put an object; a refused call is repeated once, a call without an answer is not."""
        for attempt in range(1, _TRIES + 1):
            try:
                self._call("put_object", Bucket=bucket, Key=key, Body=content)
            except Unavailable as error:
                # a call without an answer has used its whole time-out, and another would too
                if attempt == _TRIES or isinstance(error.__cause__, BotoCoreError):
                    raise
                self._clock.sleep(_PAUSE_SECONDS)
            else:
                return

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self._client(), operation)(**arguments)
        except ClientError as error:
            raise Unavailable(operation, error.response["Error"]["Code"]) from error
        except BotoCoreError as error:
            raise Unavailable(operation, type(error).__name__) from error
        return answer
