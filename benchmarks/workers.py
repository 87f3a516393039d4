"""The processes of the throughput benchmark: producers, relay, marking, those of the pattern."""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from collections import deque
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import boto3
from fairbox import Message, Outbox
from fairbox.dispatch.stream.marking import Marking
from fairbox.functions import relay as function
from fairbox.model.clock import SystemClock
from fairbox.tables.keys import PK
from fairbox.tables.stored_messages import SIZE
from fairbox.tables.tables import Tables

from benchmarks import four_index_pattern
from benchmarks.deployment import ORDERS
from local.functions.invoker import InvokeResult
from local.triggers.batches import BatchRules
from local.triggers.reader import StreamReader
from local.triggers.sources import EngineStream
from local.triggers.streams import StreamMapping, StreamTrigger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.context import SpawnContext

OUTBOX: Final = "outbox"
DELIVERIES: Final = "deliveries"
TOPIC: Final = "orders"
SHARDS: Final = 8
_BODY_BYTES: Final = 700
_AT_ONCE: Final = 100  # messages of a call of `add_many`
_LATE_SECONDS: Final = 5.0
_POLL: Final = 0.25  # Lambda's own
_INVOCATION_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Board:
    """The state shared by the processes of a run.

    Attributes:
        messages: number of added messages.
        ready: barrier until each process has its clients.
        stop: set when the run is over.
        recorded: messages recorded as delivered.
    """

    messages: int
    ready: Any
    stop: Any
    recorded: Any

    @classmethod
    def make(cls, context: SpawnContext, messages: int, processes: int) -> Board:
        """Return the board of a run; the measuring process waits at `ready`, too."""
        barrier = context.Barrier(processes + 1)
        return cls(messages, barrier, context.Event(), context.Value("l", 0))

    def record(self, count: int) -> None:
        """Count messages as recorded."""
        with self.recorded.get_lock():
            self.recorded.value += count


def _messages(count: int) -> Sequence[Message]:
    rng = random.Random(0)
    return [
        Message(
            topic=TOPIC,
            body=rng.randbytes(_BODY_BYTES),
            partition_key=f"customer-{rng.randrange(1000)}",
        )
        for _ in range(count)
    ]


def _order(message: Message) -> dict[str, Any]:
    return {"Put": {"TableName": ORDERS, "Item": {"id": {"S": message.id}}}}


def produce(board: Board, transactional: bool) -> None:
    """Add the messages: 100 at once, or each with a business row in a transaction."""
    outbox = Outbox(boto3.client("dynamodb"), table=OUTBOX, deliveries_table=DELIVERIES)
    board.ready.wait()
    for messages in _Pace(board).chunks():
        if not transactional:
            outbox.add_many(messages)
        else:
            for message in messages:
                outbox.transact([_order(message)], message)
    board.stop.wait()  # its CPU time is read at the end


class _Pace:
    """A pace that keeps the backlog short, because the relay skips messages older than 20 s."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._added: deque[tuple[float, int]] = deque()  # when, and how many by then

    def chunks(self) -> Iterator[Sequence[Message]]:
        """Yield the messages, 100 at a time, while none has waited for five seconds."""
        for start in range(0, self._board.messages, _AT_ONCE):
            while self._late() and not self._board.stop.is_set():
                time.sleep(0.005)
            count = min(_AT_ONCE, self._board.messages - start)
            self._added.append((time.monotonic(), start + count))
            yield _messages(count)

    def _late(self) -> bool:
        while self._added and self._board.recorded.value >= self._added[0][1]:
            self._added.popleft()
        return bool(self._added) and time.monotonic() - self._added[0][0] > _LATE_SECONDS


def produce_seed(board: Board, transactional: bool) -> None:
    """Add the messages one by one, as the four-index pattern does."""
    outbox = four_index_pattern.SeedOutbox(
        boto3.client("dynamodb"), shards=SHARDS, clock=SystemClock()
    )
    board.ready.wait()
    for messages in _Pace(board).chunks():
        for message in messages:
            if transactional:
                outbox.transact([_order(message)], message)
            else:
                outbox.add(message)
    board.stop.wait()


def dispatch_seed(board: Board, queue: str, number: int, workers: int) -> None:
    """Publish the outstanding messages of every `workers`-th shard, one by one."""
    outbox = four_index_pattern.SeedOutbox(
        boto3.client("dynamodb"), shards=SHARDS, clock=SystemClock()
    )
    sqs = boto3.client("sqs")

    def publish(body: bytes) -> None:
        sqs.send_message(QueueUrl=queue, MessageBody=body.hex())

    board.ready.wait()
    while not board.stop.is_set():
        found = 0
        for shard in range(number, SHARDS, workers):
            for message_id in outbox.outstanding(TOPIC, shard):
                outbox.dispatch(message_id, publish)
                board.record(1)
                found += 1
        if not found:
            time.sleep(0.01)


def relay(board: Board, stream: str, number: int, relays: int) -> None:
    """Run the function `relay` on the inserts of every `relays`-th lane, in this process."""
    os.environ |= {
        "FAIRBOX_OUTBOX_TABLE": OUTBOX,
        "FAIRBOX_DELIVERIES_TABLE": DELIVERIES,
        "FAIRBOX_DOORBELL_QUEUE_URL": "http://127.0.0.1/none.fifo",  # nothing is rung for
    }
    function.relay()  # made before the clock starts

    def invoke(event: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = function.handler(event, _Context())
        return answer

    rules = BatchRules(batch_size=100, window=0.0)
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):  # its metrics
        _follow(board, stream, invoke, rules, lambda r: _inserted(r) and _part(r, relays) == number)


def _inserted(record: Any) -> bool:
    return record["eventName"] == "INSERT" and _of_message(record)


def _of_message(record: Any) -> bool:
    """Whether a stream record is a message's, as the filters of the mappings ask."""
    body = record["dynamodb"]
    return SIZE in body.get("NewImage", {}) or SIZE in body.get("OldImage", {})


def _part(record: Any, parts: int) -> int:
    """Return the part of a record, by its partition key, as stream shards are cut."""
    return crc32(record["dynamodb"]["Keys"][PK]["S"].encode()) % parts


def mark(board: Board, stream: str, archive: str) -> None:
    """Run the marking on the stream, with an archive in a file, and count the deliveries."""
    tables = Tables(boto3.client("dynamodb"), outbox=OUTBOX, deliveries=DELIVERIES)
    with gzip.open(archive, "wb") as file:
        marking = Marking(tables, _FileArchive(file), SystemClock())

        def invoke(event: dict[str, Any]) -> dict[str, Any]:
            report = marking.handle(event["Records"])
            board.record(report.events["delivered"])
            return {"batchItemFailures": []}

        _follow(board, stream, invoke, BatchRules(batch_size=1000, window=0.5), _of_message)


def _follow(
    board: Board,
    stream: str,
    invoke: Callable[[dict[str, Any]], dict[str, Any]],
    rules: BatchRules,
    wanted: Callable[[Any], bool],
) -> None:
    """Run a function on the stream until the end of the run, as its mapping would."""
    clients = {
        "dynamodb": boto3.client("dynamodb"),
        "dynamodbstreams": boto3.client("dynamodbstreams"),
    }
    trigger = StreamTrigger(
        "benchmark",
        StreamMapping(
            source=stream,
            function="f",
            function_arn="f",
            rules=rules,
            report=True,
            matcher=wanted,  # what the mappings of the stacks let through
        ),
        reader=StreamReader(
            EngineStream(stream, clients), clock=time.time, poll_interval=_POLL, busy_interval=_POLL
        ),
        invoker=_Here(invoke),
        on_failure=None,
        mapping_id="benchmark",
        rng=random.Random(0),
        clock=time.time,
        shards=1,
    )
    trigger.start()
    board.ready.wait()
    board.stop.wait()
    trigger.stop()


class _Here:
    """An invoker in this process."""

    def __init__(self, work: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._work = work

    def invoke(self, function: str, payload: bytes) -> InvokeResult:  # noqa: ARG002 - the port's
        return InvokeResult(json.dumps(self._work(json.loads(payload))).encode(), None)


class _Context:
    def get_remaining_time_in_millis(self) -> int:
        return _INVOCATION_MS


class _FileArchive:
    """An archive in a compressed file."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file

    def write(self, lines: Sequence[bytes]) -> None:
        self._file.writelines(line + b"\n" for line in lines)
