"""Firehose: times, keys and contents of the objects it writes."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.engines.firehose import (
    DeliveryStream,
    Firehose,
    StreamSettings,
    expand_prefix,
    throttled,
)
from local.workspace import LocalError

PREFIX = "archive/dt=!{timestamp:yyyy-MM-dd}/hour=!{timestamp:HH}/"
START = datetime(2026, 11, 21, 23, 59, 58, tzinfo=UTC)


class Bucket:
    """A store of objects that refuses calls while it is `down`."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []
        self.down = False

    def put_object(self, **request: Any) -> None:
        if self.down:
            raise ClientError({"Error": {"Code": "SlowDown"}}, "PutObject")
        self.objects.append(request)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def target(**changes: Any) -> dict[str, Any]:
    configuration = {
        "BucketARN": "arn:aws:s3:::archive-bucket",
        "Prefix": PREFIX,
        "CompressionFormat": "GZIP",
        "FileExtension": ".json.gz",
        "BufferingHints": {"IntervalInSeconds": 60, "SizeInMBs": 1},
        **changes,
    }
    return {"ExtendedS3DestinationConfiguration": configuration}


def make(**changes: Any) -> tuple[Firehose, DeliveryStream, Bucket, Clock]:
    bucket, clock = Bucket(), Clock()
    stream = DeliveryStream(
        settings=StreamSettings.from_properties("Archive", target(**changes)),
        put_object=bucket.put_object,
        now=clock,
        new_id=lambda: "id-1",
    )
    return Firehose({"Archive": stream}, new_id=lambda: "record"), stream, bucket, clock


def put(firehose: Firehose, *records: bytes) -> tuple[int, dict[str, Any]]:
    request = {
        "DeliveryStreamName": "Archive",
        "Records": [{"Data": base64.b64encode(record).decode()} for record in records],
    }
    return firehose.call("Firehose_20150804.PutRecordBatch", json.dumps(request).encode())


def test_an_object_holds_the_records_as_given_compressed_under_its_hour() -> None:
    firehose, stream, bucket, clock = make()
    assert put(firehose, b'{"a":1}\n', b'{"b":2}\n')[0] == 200
    clock.now += timedelta(seconds=59)
    stream.tick()
    assert bucket.objects == []
    clock.now += timedelta(seconds=1)
    stream.tick()
    (written,) = bucket.objects
    assert written["Bucket"] == "archive-bucket"
    assert written["Key"] == (
        "archive/dt=2026-11-21/hour=23/Archive-1-2026-11-21-23-59-58-id-1.json.gz"
    )
    assert gzip.decompress(written["Body"]) == b'{"a":1}\n{"b":2}\n'


def test_each_record_has_its_result() -> None:
    firehose, *_ = make()
    assert put(firehose, b"1", b"2") == (
        200,
        {
            "FailedPutCount": 0,
            "Encrypted": False,
            "RequestResponses": [{"RecordId": "record"}, {"RecordId": "record"}],
        },
    )


def test_records_of_an_uncompressed_stream_lie_one_after_another_as_they_were_put() -> None:
    firehose, _, bucket, _ = make(CompressionFormat="UNCOMPRESSED")
    members = [gzip.compress(line, mtime=0) for line in (b'{"a":1}\n', b'{"b":2}\n')]
    put(firehose, *members)
    firehose.flush()
    (written,) = bucket.objects
    assert written["Body"] == b"".join(members)
    assert "ContentEncoding" not in written
    assert gzip.decompress(written["Body"]) == b'{"a":1}\n{"b":2}\n'


def test_records_that_are_throttled_say_so_one_by_one_and_the_others_are_taken() -> None:
    firehose, _, bucket, _ = make()
    firehose.throttle = lambda count: range(1, count)
    status, answer = put(firehose, b"1", b"2", b"3")
    failed = {"ErrorCode": "ServiceUnavailableException", "ErrorMessage": "Slow down."}
    assert (status, answer["FailedPutCount"]) == (200, 2)
    assert answer["RequestResponses"] == [{"RecordId": "record"}, failed, failed]
    firehose.flush()
    assert [gzip.decompress(written["Body"]) for written in bucket.objects] == [b"1"]


def test_a_call_that_is_throttled_takes_nothing() -> None:
    firehose, _, bucket, _ = make()

    def refuse(_: int) -> tuple[int, ...]:
        raise throttled()

    firehose.throttle = refuse
    status, answer = put(firehose, b"1")
    assert (status, answer["__type"]) == (503, "ServiceUnavailableException")
    firehose.flush()
    assert bucket.objects == []


def test_an_object_is_written_when_the_buffer_is_full() -> None:
    firehose, _, bucket, _ = make()
    put(firehose, b"x" * 900_000)
    assert bucket.objects == []
    put(firehose, b"y" * 900_000, b"z")
    (written,) = bucket.objects
    assert len(gzip.decompress(written["Body"])) == 1_800_000
    firehose.flush()
    assert gzip.decompress(bucket.objects[1]["Body"]) == b"z"


def test_stopping_writes_what_is_buffered() -> None:
    firehose, _, bucket, _ = make(CompressionFormat="UNCOMPRESSED", FileExtension=".json")
    firehose.start()
    put(firehose, b"last\n")
    firehose.stop()
    (written,) = bucket.objects
    assert (written["Body"], written["Key"][-5:]) == (b"last\n", ".json")


def test_what_the_bucket_refuses_is_kept_and_written_later() -> None:
    firehose, stream, bucket, clock = make()
    put(firehose, b"kept\n")
    bucket.down = True
    clock.now += timedelta(seconds=60)
    stream.tick()
    bucket.down = False
    stream.tick()
    assert [gzip.decompress(written["Body"]) for written in bucket.objects] == [b"kept\n"]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([b"x"] * 501, "InvalidArgumentException"),
        ([], "InvalidArgumentException"),
        ([b"x" * 1_024_001], "InvalidArgumentException"),
        ([b"x" * 1_000_000] * 5, "InvalidArgumentException"),
    ],
)
def test_a_call_over_a_limit_is_refused_whole(records: list[bytes], code: str) -> None:
    firehose, _, bucket, _ = make()
    status, answer = put(firehose, *records)
    assert (status, answer["__type"]) == (400, code)
    firehose.flush()
    assert bucket.objects == []


def test_an_unknown_stream_and_an_unknown_operation_are_refused() -> None:
    firehose, *_ = make()
    body = b'{"DeliveryStreamName":"Other","Records":[]}'
    assert firehose.call("F.PutRecordBatch", body)[1]["__type"] == "ResourceNotFoundException"
    assert firehose.call("F.Nothing", b"{}")[1]["__type"] == "UnknownOperationException"


def test_a_prefix_without_an_expression_gets_the_hour() -> None:
    assert expand_prefix("logs/", START) == "logs/2026/11/21/23/"


@pytest.mark.parametrize(
    "prefix", ["a/!{partitionKeyFromQuery:x}/", "a/!{timestamp:QQQ}/", "!{firehose:random-string}/"]
)
def test_an_unknown_expression_is_refused(prefix: str) -> None:
    with pytest.raises(LocalError):
        expand_prefix(prefix, START)


@pytest.mark.parametrize(
    "properties",
    [
        {"HttpEndpointDestinationConfiguration": {}},
        target(CompressionFormat="Snappy"),
        target(ProcessingConfiguration={"Enabled": True}),
        {**target(), "DeliveryStreamType": "KinesisStreamAsSource"},
    ],
)
def test_a_stream_of_an_unknown_kind_is_refused_by_name(properties: dict[str, Any]) -> None:
    with pytest.raises(LocalError, match="Archive"):
        StreamSettings.from_properties("Archive", properties)
