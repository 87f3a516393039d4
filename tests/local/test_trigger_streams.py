"""Streams: reading shards, fan-out to mappings, delivery, and reports of given-up batches."""

from __future__ import annotations

import json
import random
import re
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from local.triggers.failures import OnFailure
from local.triggers.reader import StreamReader
from local.triggers.records import convert
from local.triggers.sources import (
    IteratorExpiredError,
    RecordsTrimmedError,
    Shard,
    StreamUnavailableError,
)
from local.triggers.streams import StreamMapping, StreamTrigger
from tests.local.trigger_fakes import ERROR, OK, FakeInvoker, report, wait_for, wire_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.functions.invoker import InvokeResult

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/outbox/stream/2026-11-21T00:00:00.000"


class FakeStream:
    """A stream of several shards in memory; iterators are `shard:offset`."""

    def __init__(self) -> None:
        self.arn = ARN
        self.hash_key = "pk"
        self.tree: dict[str, str | None] = {"s1": None}
        self.closed: set[str] = set()
        self.written: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.errors: list[Exception] = []
        self.reads: list[str] = []

    def put(self, shard: str, *orders: int, **fields: Any) -> None:
        self.written[shard] += [wire_record(order, **fields) for order in orders]

    def shards(self) -> list[Shard]:
        return [Shard(name, parent, name in self.closed) for name, parent in self.tree.items()]

    def iterator(self, shard_id: str, *, after: str | None, latest: bool) -> str:
        records = self.written[shard_id]
        if after is not None:
            numbers = [record["dynamodb"]["SequenceNumber"] for record in records]
            return f"{shard_id}:{numbers.index(after) + 1}"
        return f"{shard_id}:{len(records) if latest else 0}"

    def records(self, iterator: str) -> tuple[list[dict[str, Any]], str | None]:
        if self.errors:
            raise self.errors.pop(0)
        shard, _, offset = iterator.partition(":")
        self.reads.append(shard)
        found = self.written[shard][int(offset) : int(offset) + 3]
        end = int(offset) + len(found)
        if shard in self.closed and end == len(self.written[shard]):
            return json.loads(json.dumps(found)), None
        return json.loads(json.dumps(found)), f"{shard}:{end}"


class Ear:
    """A listener that records what it hears."""

    def __init__(self) -> None:
        self.orders: list[int] = []

    def hear(self, entries: Any) -> None:
        self.orders += [record.order for record, _ in entries]


def reader_of(stream: FakeStream, **settings: Any) -> tuple[StreamReader, Ear]:
    reader = StreamReader(stream, clock=time.time, poll_interval=0.01, **settings)
    ear = Ear()
    reader.add(ear)
    reader.refresh()
    return reader, ear


def poll_all(reader: StreamReader, times: int = 12) -> None:
    for _ in range(times):
        reader.poll()


def test_a_child_shard_is_read_only_when_its_parent_is_finished() -> None:
    stream = FakeStream()
    stream.tree = {"s1": None, "s2": "s1"}
    stream.put("s2", 11, 12)
    stream.put("s1", 1, 2, 3, 4, 5)
    reader, ear = reader_of(stream)
    poll_all(reader, 4)
    assert ear.orders == [1, 2, 3, 4, 5]
    stream.closed = {"s1"}
    poll_all(reader)
    assert ear.orders == [1, 2, 3, 4, 5, 11, 12]


def test_shards_that_appear_when_one_closes_are_read_from_their_beginning() -> None:
    stream = FakeStream()
    stream.put("s1", 1)
    reader, ear = reader_of(stream, latest=True)
    reader._latest = False  # as start() leaves it
    stream.put("s1", 2)
    poll_all(reader, 2)
    assert ear.orders == [2]
    stream.tree["s2"] = "s1"
    stream.put("s2", 3)
    stream.closed = {"s1"}
    poll_all(reader, 3)
    assert ear.orders == [2, 3]


def test_an_expired_iterator_is_replaced_after_the_last_record() -> None:
    stream = FakeStream()
    stream.put("s1", 1, 2, 3, 4)
    reader, ear = reader_of(stream)
    reader.poll()
    stream.errors = [IteratorExpiredError()]
    poll_all(reader, 3)
    assert ear.orders == [1, 2, 3, 4]


def test_after_trimming_reading_starts_at_the_oldest_record_left() -> None:
    stream = FakeStream()
    stream.put("s1", 1, 2)
    reader, ear = reader_of(stream)
    reader.poll()
    stream.written["s1"] = []
    stream.put("s1", 8, 9)
    stream.errors = [RecordsTrimmedError()]
    poll_all(reader, 3)
    assert ear.orders == [1, 2, 8, 9]


def test_the_first_records_of_a_stream_that_was_empty_are_read_though_called_trimmed() -> None:
    stream = FakeStream()
    reader, ear = reader_of(stream, latest=True)
    reader.poll()
    stream.put("s1", 1, 2)
    stream.errors = [RecordsTrimmedError()]
    poll_all(reader, 3)
    assert ear.orders == [1, 2]


def test_a_stream_that_does_not_answer_is_read_on_when_it_does() -> None:
    stream = FakeStream()
    stream.put("s1", 1, 2, 3, 4)
    reader, ear = reader_of(stream)
    reader.poll()
    stream.errors = [StreamUnavailableError("away")]
    with pytest.raises(StreamUnavailableError):
        reader.poll()
    poll_all(reader, 2)
    assert ear.orders == [1, 2, 3, 4]


def test_the_reader_runs_while_anybody_wants_it_and_keeps_its_place() -> None:
    stream = FakeStream()
    reader, ear = reader_of(stream)
    reader.start("a")
    reader.start("b")
    stream.put("s1", 1)
    wait_for(lambda: ear.orders == [1])
    reader.stop("a")
    stream.put("s1", 2)
    wait_for(lambda: ear.orders == [1, 2])
    reader.stop("b")
    assert reader._thread is None, "nothing reads"
    stream.put("s1", 3)
    reader.start("a")
    wait_for(lambda: ear.orders == [1, 2, 3])
    reader.stop("a")


def test_a_record_is_written_as_lambda_writes_it() -> None:
    wire = wire_record(7, created=1_700_000_001.9)
    wire["dynamodb"]["NewImage"]["b"] = {"B": "AP8="}
    wire["userIdentity"] = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}
    record, event = convert(wire, stream_arn=ARN, region="us-east-1", hash_key="pk", now=0.0)
    assert json.loads(record.body) == event
    assert event == {
        "eventID": "id7",
        "eventName": "INSERT",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_700_000_001,
            "Keys": {"pk": {"S": "p"}, "sk": {"S": "7"}},
            "NewImage": {
                "pk": {"S": "p"},
                "sk": {"S": "7"},
                "n": {"N": "1.5"},
                "b": {"B": "AP8="},
            },
            "SequenceNumber": "000000000000000000007",
            "SizeBytes": 12,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": ARN,
        "userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"},
    }
    assert record.order == 7
    assert record.created == 1_700_000_001


@pytest.mark.parametrize(
    ("written", "now", "shown"),
    [
        (1_700_000_040, 1_700_000_051.7, 1_700_000_051),  # only the minute is known
        (1_700_000_040, 1_700_000_400.0, 1_700_000_099),
        (1_700_000_040, 1_700_000_030.0, 1_700_000_040),
        (1_700_000_041, 1_700_000_051.7, 1_700_000_041),
    ],
)
def test_where_the_engine_says_only_the_minute_the_time_of_reading_stands_in(
    written: int, now: float, shown: int
) -> None:
    wire = wire_record(1, created=written)
    record, _ = convert(wire, stream_arn=ARN, region="us-east-1", hash_key="pk", now=now)
    assert record.created == shown


class Setup:
    """A fake stream, its reader and triggers that are stopped at the end."""

    def __init__(self) -> None:
        self.stream = FakeStream()
        self.reader = StreamReader(
            self.stream, clock=time.time, poll_interval=0.01, busy_interval=0.001
        )
        self.triggers: list[StreamTrigger] = []

    def trigger(
        self, invoker: FakeInvoker, on_failure: OnFailure | None = None, **properties: Any
    ) -> StreamTrigger:
        given = {"EventSourceArn": ARN, "FunctionName": "f", "StartingPosition": "TRIM_HORIZON"}
        trigger = StreamTrigger(
            "Mapping",
            StreamMapping.from_properties(given | properties),
            reader=self.reader,
            invoker=invoker,
            on_failure=on_failure,
            mapping_id="11111111-2222-3333-4444-555555555555",
            rng=random.Random(1),
            clock=time.time,
        )
        self.triggers.append(trigger)
        return trigger


@pytest.fixture
def setup() -> Iterator[Setup]:
    made = Setup()
    yield made
    for trigger in made.triggers:
        trigger.stop()


def orders(invoker: FakeInvoker) -> list[int]:
    return [int(one["dynamodb"]["SequenceNumber"]) for one in invoker.records()]


def test_all_records_arrive_in_order_of_their_partition_key(setup: Setup) -> None:
    invoker = FakeInvoker()
    trigger = setup.trigger(invoker, BatchSize=5)
    for order in range(1, 101):
        setup.stream.put("s1", order, pk=f"p{order % 7}")
    trigger.start()
    wait_for(lambda: len(orders(invoker)) == 100)
    by_key: dict[str, list[int]] = defaultdict(list)
    for record in invoker.records():
        by_key[record["dynamodb"]["Keys"]["pk"]["S"]].append(
            int(record["dynamodb"]["SequenceNumber"])
        )
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert max(len(event["Records"]) for _, event in invoker.calls) <= 5
    wait_for(lambda: trigger.outstanding == 0)


def test_filtered_records_never_reach_the_function(setup: Setup) -> None:
    invoker = FakeInvoker()
    pattern = json.dumps({"eventName": ["REMOVE"]})
    trigger = setup.trigger(invoker, FilterCriteria={"Filters": [{"Pattern": pattern}]})
    setup.stream.put("s1", 1, 2, 3)
    setup.stream.put("s1", 4, name="REMOVE")
    trigger.start()
    wait_for(lambda: orders(invoker) == [4])
    wait_for(lambda: trigger.counts["filtered"] == 3)


def test_two_mappings_of_a_stream_go_on_independently(setup: Setup) -> None:
    stuck = FakeInvoker(lambda _: ERROR)
    healthy = FakeInvoker()
    first, second = setup.trigger(stuck, BatchSize=1), setup.trigger(healthy, BatchSize=1)
    setup.stream.put("s1", *range(1, 11))
    first.start()
    second.start()
    wait_for(lambda: len(orders(healthy)) == 10 and second.iterator_age() == 0.0)
    wait_for(lambda: orders(stuck))
    assert set(orders(stuck)) == {1}
    assert len([one for one in setup.stream.reads if one == "s1"]) > 0
    assert first.iterator_age() > 0


def test_parallel_batches_of_a_pseudo_shard_run_side_by_side_up_to_the_factor(
    setup: Setup,
) -> None:
    def together(_: dict[str, Any]) -> InvokeResult:
        wait_for(lambda: parallel.most_flying == 3)
        return OK

    serial, parallel = FakeInvoker(), FakeInvoker(together)
    setup.stream.put("s1", *range(1, 41))  # one partition key: one pseudo-shard
    triggers = [
        setup.trigger(serial, BatchSize=1),
        setup.trigger(parallel, BatchSize=1, ParallelizationFactor=3),
    ]
    for trigger in triggers:
        trigger.start()
    wait_for(lambda: len(serial.calls) == len(parallel.calls) == 40)
    assert serial.most_flying == 1
    assert parallel.most_flying == 3


def test_a_stopped_trigger_goes_on_where_it_was(setup: Setup) -> None:
    invoker = FakeInvoker()
    trigger, other = setup.trigger(invoker), setup.trigger(FakeInvoker())
    other.start()
    trigger.start()
    setup.stream.put("s1", 1)
    wait_for(lambda: orders(invoker) == [1])
    trigger.stop()
    setup.stream.put("s1", 2, 3)
    wait_for(lambda: trigger.outstanding == 2)
    assert orders(invoker) == [1]
    trigger.start()
    wait_for(lambda: orders(invoker) == [1, 2, 3])


def test_a_function_that_cannot_be_invoked_is_tried_until_it_can(setup: Setup) -> None:
    turns = iter([True, True, False])

    def away(_: dict[str, Any]) -> InvokeResult:
        if next(turns):
            raise RuntimeError("no process")
        return OK

    invoker = FakeInvoker(away)
    trigger = setup.trigger(invoker, MaximumRetryAttempts=0)
    setup.stream.put("s1", 1)
    trigger.start()
    wait_for(lambda: trigger.outstanding == 0 and len(invoker.calls) == 3)
    assert trigger.counts["given_up"] == 0


def test_a_disabled_mapping_does_not_start(setup: Setup) -> None:
    invoker = FakeInvoker()
    setup.stream.put("s1", 1)
    trigger = setup.trigger(invoker, Enabled=False)
    trigger.start()
    assert not trigger._threads, "nothing reads"
    assert invoker.calls == []


@pytest.fixture(scope="module")
def moto() -> Iterator[dict[str, Any]]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    s3 = boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    yield {"s3": s3}
    server.stop()


def test_a_batch_given_up_leaves_its_payload_in_the_bucket(
    setup: Setup, moto: dict[str, Any]
) -> None:
    moto["s3"].create_bucket(Bucket="given-up")
    invoker = FakeInvoker(
        lambda event: (
            report(event["Records"][0]["dynamodb"]["SequenceNumber"])
            if any(one["dynamodb"]["Keys"]["sk"]["S"] == "2" for one in event["Records"])
            else OK
        )
    )
    trigger = setup.trigger(
        invoker,
        OnFailure("arn:aws:s3:::given-up", moto, random.Random(2)),
        BatchSize=3,
        MaximumRetryAttempts=1,
        FunctionResponseTypes=["ReportBatchItemFailures"],
    )
    setup.stream.put("s1", 1, 2, 3, created=1_700_000_001)
    trigger.start()
    wait_for(lambda: trigger.counts["given_up"] == 3)
    wait_for(lambda: moto["s3"].list_objects_v2(Bucket="given-up")["KeyCount"] == 1)
    key = moto["s3"].list_objects_v2(Bucket="given-up")["Contents"][0]["Key"]
    assert re.fullmatch(
        r"aws/lambda/11111111-2222-3333-4444-555555555555/shardId-\d{20}-[0-9a-f]{8}/"
        r"\d{4}/\d\d/\d\d/\d{4}-\d\d-\d\dT\d\d\.\d\d\.\d\d-[0-9a-f-]{36}",
        key,
    )
    body = json.loads(moto["s3"].get_object(Bucket="given-up", Key=key)["Body"].read())
    assert json.loads(body["payload"]) == invoker.calls[-1][1]
    assert body["requestContext"]["condition"] == "RetryAttemptsExhausted"
    assert body["requestContext"]["approximateInvokeCount"] == 2
    assert body["responseContext"]["functionError"] is None
    info = body["DDBStreamBatchInfo"]
    assert info["shardId"] == key.split("/")[3]
    assert (info["batchSize"], info["streamArn"]) == (3, ARN)
    assert info["startSequenceNumber"] == f"{1:021d}"
    assert info["endSequenceNumber"] == f"{3:021d}"
    assert info["approximateArrivalOfFirstRecord"] == "2023-11-14T22:13:21Z"


def test_an_on_failure_destination_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="is no bucket"):
        OnFailure("arn:aws:events:us-east-1:1:event-bus/default", {}, random.Random(1))
