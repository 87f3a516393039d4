"""The processes of the queue's throughput benchmark: each sends, or receives and acknowledges."""

from __future__ import annotations

import os
import random
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from fairbox import Message, Queue
from fairbox.aws.clients import make_client
from fairbox.codec import attributes as attr
from fairbox.model.clock import SystemClock

from benchmarks.baseline_001 import LostRaceError, SeedQueue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext

OUTBOX: Final = "outbox"
DELIVERIES: Final = "deliveries"
BODY_BYTES: Final = 700
_SENT_AT_ONCE: Final = 100  # 25 a call
_RECEIVED_AT_ONCE: Final = 10
_EMPTY: Final = 5  # receives in a row that say that nothing is left
_REFUSED: Final = "ConditionalCheckFailed"
_READS: Final = frozenset({"query", "get_item"})
_COUNTED: Final = _READS | {"update_item"}
_LEAST: Final = 0.5
_CLAIM: Final = f'SET "{attr.HOLDER}" = ?'

Verb = Literal["send", "receive_ack"]
VERBS: Final[tuple[Verb, ...]] = ("send", "receive_ack")


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a process.

    Attributes:
        verb: send, or receive and acknowledge.
        place: topic of Fairbox, or table of source 001's pattern.
        seconds: duration.
        page: page size of source 001's reads; None: use Fairbox.
    """

    verb: Verb
    place: str
    seconds: float
    page: int | None = None


class Units(NamedTuple):
    """Write and read request units, and calls."""

    wru: float = 0.0
    rru: float = 0.0
    calls: float = 0.0

    def __add__(self, other: object) -> Units:
        """Add two costs."""
        return Units(*(a + b for a, b in zip(self, cast("Units", other), strict=True)))

    def __sub__(self, other: Units) -> Units:
        """Return the difference."""
        return Units(*(a - b for a, b in zip(self, other, strict=True)))


@dataclass(slots=True)
class Done:
    """The work of a process.

    Attributes:
        began, ended: monotonic seconds, the same clock in all processes; it ended with its last
            message.
        sent: number of messages.
        acked: ids of acknowledged messages.
        tried, lost: claims, and those that another consumer won.
        units: write and read request units and calls, of receives and acknowledgements.
        cpu_seconds: of this process.
    """

    began: float
    ended: float
    sent: int = 0
    acked: list[str] = field(default_factory=list)
    tried: int = 0
    lost: int = 0
    units: Units = field(default_factory=Units)
    cpu_seconds: float = 0.0


class Claims:
    """A client that counts the claims among its statements, and the cost of its calls.

    DynamoDB Local reports no units for statements and none for empty queries. A statement writes
    one item of up to 1 KB: one unit, whether its condition holds or not. An empty query is half a
    unit.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.tried = 0
        self.lost = 0
        self.units = Units()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name not in _COUNTED:
            return method

        def call(**request: Any) -> Any:
            answer = method(**request, ReturnConsumedCapacity="TOTAL")
            used = answer.pop("ConsumedCapacity")["CapacityUnits"]
            self.units += Units(0, max(_LEAST, used), 1) if name in _READS else Units(used, 0, 1)
            return answer

        return call

    def batch_execute_statement(self, **request: Any) -> Any:
        """Make the call and count its refused claims."""
        answer = self._client.batch_execute_statement(**request)
        self.units += Units(len(request["Statements"]), 0, 1)
        for asked, part in zip(request["Statements"], answer["Responses"], strict=True):
            if _CLAIM in asked["Statement"]:
                self.tried += 1
                self.lost += part.get("Error", {}).get("Code") == _REFUSED
        return answer


class Crew:
    """Processes that wait for tasks until they are ended.

    Args:
        context: starts them.
        variables: environment variables with the engine's address.
        size: number of processes.
    """

    def __init__(self, context: ForkServerContext, variables: Mapping[str, str], size: int) -> None:
        pairs = [context.Pipe() for _ in range(size)]
        self._ends = [mine for mine, _ in pairs]
        self._processes = [
            context.Process(target=_serve, args=(theirs, dict(variables), number), daemon=True)
            for number, (_, theirs) in enumerate(pairs)
        ]
        for process in self._processes:
            process.start()
        for _, theirs in pairs:
            theirs.close()  # so that a process that ends is noticed
        self._answers(self._ends)

    def do(self, task: Task, processes: int) -> list[Done]:
        """Run a task in so many processes concurrently.

        Raises:
            RuntimeError: one of them failed.
        """
        chosen = self._ends[:processes]
        for end in chosen:
            end.send(task)
        return self._answers(chosen)

    def _answers(self, ends: Sequence[Connection[Any, Any]]) -> list[Done]:
        try:
            return [end.recv() for end in ends]
        except EOFError as error:
            raise RuntimeError("a process of the benchmark failed") from error

    def let_go(self) -> None:
        """End them."""
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()


def _serve(end: Connection[Any, Any], variables: Mapping[str, str], number: int) -> None:
    os.environ.update(variables)
    worker = _Worker(number)
    end.send(Done(0.0, 0.0))  # ready
    while True:
        try:
            task = end.recv()
        except EOFError:
            return
        end.send(worker.do(task))


class _Worker:
    """One process's clients of both queues."""

    def __init__(self, number: int) -> None:
        self._client = make_client("dynamodb")
        self._claims = Claims(self._client)
        self._rng = random.Random(number)
        self._queue = Queue(self._claims, table=OUTBOX, deliveries_table=DELIVERIES)

    def do(self, task: Task) -> Done:
        cpu, began = time.process_time(), time.monotonic()
        done = Done(began, began)
        end = began + task.seconds
        if task.page is None:
            work = self._send if task.verb == "send" else self._receive
            work(task.place, end, done)
        else:
            queue = SeedQueue(self._client, clock=SystemClock(), table=task.place, page=task.page)
            seed_work = self._send_seed if task.verb == "send" else _receive_seed
            seed_work(queue, end, done)
        done.cpu_seconds = time.process_time() - cpu
        return done

    def _send(self, topic: str, end: float, done: Done) -> None:
        while time.monotonic() < end:
            messages = [Message(topic=topic, body=self._body()) for _ in range(_SENT_AT_ONCE)]
            done.sent += len(self._queue.send_many(messages))
            done.ended = time.monotonic()

    def _send_seed(self, queue: SeedQueue, end: float, done: Done) -> None:
        while time.monotonic() < end:
            queue.send(str(uuid.UUID(int=self._rng.getrandbits(128))), self._body())
            done.sent += 1
            done.ended = time.monotonic()

    def _receive(self, topic: str, end: float, done: Done) -> None:
        before = self._claims.tried, self._claims.lost, self._claims.units
        empty = 0
        while time.monotonic() < end and empty < _EMPTY:
            received = self._queue.receive(topic, max_messages=_RECEIVED_AT_ONCE)
            empty = 0 if received else empty + 1
            if received:
                self._queue.ack([r.receipt for r in received])
                done.acked += [r.message.id for r in received]
                done.ended = time.monotonic()
        done.tried, done.lost = self._claims.tried - before[0], self._claims.lost - before[1]
        done.units = self._claims.units - before[2]

    def _body(self) -> bytes:
        return self._rng.randbytes(BODY_BYTES)


def _receive_seed(queue: SeedQueue, end: float, done: Done) -> None:
    empty = 0
    while time.monotonic() < end and empty < _EMPTY:
        try:
            message = queue.receive()
        except LostRaceError:
            done.tried += 1
            done.lost += 1
            continue
        empty = 0 if message else empty + 1
        if message:
            done.tried += 1
            queue.delete(message.id)
            done.acked.append(message.id)
            done.ended = time.monotonic()
