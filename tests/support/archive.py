"""An archive to write to: Firehose as it is run locally, and buckets that may refuse."""

from __future__ import annotations

import base64
import gzip
import io
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ReadTimeoutError

from local.engines.firehose import DeliveryStream, Firehose, StreamSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairbox.model.clock import Clock

STREAM = "archive"
ARCHIVE = "archive-bucket"
FAILURES = "failures-bucket"


class Buckets:
    """A client of S3 that keeps objects by (bucket, key).

    Attributes:
        refusing: buckets, or (bucket, key)s, that take nothing.
        lost: how many puts of a process are yet to be killed: done, and not answered.
        puts: how many calls were made.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], bytes] = {}
        self.refusing: set[str | tuple[str, str]] = set()
        self.lost = 0
        self.puts = 0

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, **_: Any) -> dict[str, Any]:  # noqa: N803
        self.puts += 1
        self._check(Bucket, Key, "PutObject")
        self.objects[Bucket, Key] = Body
        if self.lost:
            self.lost -= 1
            raise KeyboardInterrupt
        return {}

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803 - boto3's names
        self._check(Bucket, Key, "GetObject")
        return {"Body": io.BytesIO(self.objects[Bucket, Key])}

    def delete_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        self._check(Bucket, Key, "DeleteObject")
        self.objects.pop((Bucket, Key), None)
        return {}

    def get_paginator(self, operation: str) -> Buckets:
        assert operation == "list_objects_v2"
        return self

    def paginate(self, *, Bucket: str, Prefix: str) -> Iterator[dict[str, Any]]:  # noqa: N803
        self._check(Bucket, Prefix, "ListObjectsV2")
        keys = self.keys(Bucket, Prefix)
        for start in range(0, len(keys), 1000):
            yield {"Contents": [{"Key": key} for key in keys[start : start + 1000]]}
        yield {}

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the bucket's keys under a prefix, in order."""
        return sorted(k for b, k in self.objects if b == bucket and k.startswith(prefix))

    def _check(self, bucket: str, key: str, operation: str) -> None:
        if bucket in self.refusing or (bucket, key) in self.refusing:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, operation)


class FirehoseClient:
    """A client of the local Firehose, without the wire.

    Attributes:
        service: buffers and writes objects as AWS does.
        silent: whether records are taken and the answer is lost.
        calls: how many calls were made.
    """

    def __init__(
        self, buckets: Buckets, now: Callable[[], datetime], *, stream: str = STREAM,
        bucket: str = ARCHIVE,
    ) -> None:  # fmt: skip
        settings = StreamSettings(
            name=stream,
            bucket=bucket,
            prefix="archive/dt=!{timestamp:yyyy-MM-dd}/hour=!{timestamp:HH}/",
            extension=".json.gz",
        )
        delivery = DeliveryStream(settings=settings, put_object=buckets.put_object, now=now)
        self.service = Firehose({stream: delivery})
        self.silent = False
        self.calls = 0

    def put_record_batch(
        self,
        *,
        DeliveryStreamName: str,  # noqa: N803 - boto3's names
        Records: list[dict[str, Any]],  # noqa: N803 - boto3's names
    ) -> dict[str, Any]:

        self.calls += 1
        encoded = [{"Data": base64.b64encode(record["Data"]).decode()} for record in Records]
        request = {"DeliveryStreamName": DeliveryStreamName, "Records": encoded}
        status, answer = self.service.call(
            "Firehose_20150804.PutRecordBatch", json.dumps(request).encode()
        )
        if self.silent:
            raise ReadTimeoutError(endpoint_url="https://firehose.test")
        if status != 200:
            code, text = str(answer["__type"]), str(answer["message"])
            raise ClientError({"Error": {"Code": code, "Message": text}}, "PutRecordBatch")
        return answer


def moment(clock: Clock) -> Callable[[], datetime]:
    """Return the time of a clock as Firehose reads it."""
    return lambda: datetime.fromtimestamp(clock.now(), UTC)


def archived(buckets: Buckets, bucket: str = ARCHIVE) -> list[dict[str, Any]]:
    """Return every line of the archive, repetitions too."""
    return [
        json.loads(line)
        for key in buckets.keys(bucket, "archive/")
        for line in gzip.decompress(buckets.objects[bucket, key]).splitlines()
    ]
