"""Messages a second sent, and received and acknowledged, beside source 001's call pattern.

Both queues work against one fresh DynamoDB Local, by turns, with the same bodies and the same
processes: 1, 4 and 16. Fairbox sends 25 a call, receives ten and acknowledges ten, from a topic of
eight shards; source 001's does each message by itself. Each has a topic or table of its own for
each number of processes, filled by the sending that is measured before. The figures compare the
two on one machine; they are not the throughput of a table on AWS. The CPU time of processes and
engine is measured as well, because it depends less on other programs.
"""

from __future__ import annotations

import multiprocessing
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from fairbox import Queue, Topic
from fairbox.dynamodb.definitions import table_definitions

from benchmarks import baseline_001
from benchmarks.agreement import client_of
from benchmarks.figures import Figure
from benchmarks.queue_workers import DELIVERIES, OUTBOX, VERBS, Crew, Done, Task, Units, Verb
from benchmarks.throughput import cpu_seconds
from local.engines.endpoints import Endpoints
from local.engines.servers import DynamoDbLocal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CONSUMERS: Final = (1, 4, 16)
SECONDS: Final = 4.0  # of each turn
SHORT_PAGE: Final = 25  # more than sixteen consumers hold: the best for source 001's
_ROUNDS: Final = 2  # of a turn, by turns with the other queue's: the machine's load changes
_WARM_UP: Final = "warm-up"
_FAIRBOX: Final = "Fairbox"
_SHORT: Final = f"{baseline_001.NAME}, pages of {SHORT_PAGE}"
_PAGES: Final = {_FAIRBOX: None, baseline_001.NAME: baseline_001.PAGE, _SHORT: SHORT_PAGE}


@dataclass(frozen=True, slots=True)
class Turn:
    """The work of several processes in one turn.

    Attributes:
        messages: sent or acknowledged.
        seconds: duration, each round from the first process's start to the last message.
        cpu_seconds: of these processes and the engine.
        repeated: messages acknowledged more than once.
        tried, lost: claims, and those that another consumer won.
        units: write and read request units and calls, of receives and acknowledgements.
    """

    messages: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    repeated: int = 0
    tried: int = 0
    lost: int = 0
    units: Units = field(default_factory=Units)

    @classmethod
    def of(cls, done: Sequence[Done], engine_cpu_seconds: float = 0.0) -> Turn:
        """Add up the concurrent work of several processes."""
        acked = [message_id for one in done for message_id in one.acked]
        return cls(
            messages=len(set(acked)) + sum(one.sent for one in done),
            seconds=max(one.ended for one in done) - min(one.began for one in done),
            cpu_seconds=sum(one.cpu_seconds for one in done) + engine_cpu_seconds,
            repeated=len(acked) - len(set(acked)),
            tried=sum(one.tried for one in done),
            lost=sum(one.lost for one in done),
            units=sum((one.units for one in done), Units()),
        )

    def __add__(self, later: Turn) -> Turn:
        pairs = ((getattr(self, f.name), getattr(later, f.name)) for f in fields(self))
        return Turn(*(a + b for a, b in pairs))

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of CPU a message."""
        return self.cpu_seconds * 1000 / max(1, self.messages)

    @property
    def lost_share(self) -> float:
        """Share of the claims that another consumer won."""
        return self.lost / max(1, self.tried)


def figures(
    *, consumers: Sequence[int] = CONSUMERS, seconds: float = SECONDS
) -> tuple[list[Figure], list[str]]:
    """Return the throughput of both, the cost of messages, and the lost claims.

    Args:
        consumers: the numbers of processes.
        seconds: duration of a turn: four turns for each number, and one more for the last.

    Returns:
        The figures, and those of turns that failed.
    """
    found: list[Figure] = []
    faults: list[str] = []
    most = max(consumers)
    with _stage(consumers) as stage:
        for who in (_FAIRBOX, baseline_001.NAME):
            for verb in VERBS:
                stage.round(verb, who, _WARM_UP, 1, seconds / 4)
        for number in sorted(consumers):
            for verb in VERBS:
                short = number == most and verb == "receive_ack"
                rivals = (baseline_001.NAME, _SHORT) if short else (baseline_001.NAME,)
                turns = stage.turns(verb, (_FAIRBOX, *rivals), number, seconds)
                found += _figures(verb, number, turns)
                found += _contention(number, turns) if verb == "receive_ack" else []
                faults += faults_of(f"{verb} by {number}", turns)
    return found, faults


def _figures(verb: Verb, number: int, turns: Mapping[str, Turn]) -> list[Figure]:
    ours = turns[_FAIRBOX]
    found = []
    for who, turn in turns.items():
        if who == _FAIRBOX:
            continue
        name = f"queue.throughput.{verb}.{number}" + (".short_pages" if who == _SHORT else "")
        found += [
            Figure(name, "messages/s", ours.rate, turn.rate, who),
            Figure(f"{name}.cpu", "CPU ms/message", ours.cpu_ms, turn.cpu_ms, who),
        ]
    return found


def _contention(number: int, turns: Mapping[str, Turn]) -> list[Figure]:
    """Return lost claims, and the cost of a message from sending, 25 a call, to acknowledgement."""
    turn, seed = turns[_FAIRBOX], turns[baseline_001.NAME]
    wru, rru, calls = (value / max(1, turn.messages) for value in turn.units)
    name = f"queue.contention.{{}}_per_message.{number}"
    return [
        Figure(name.format("wru"), "WRU", 1 + wru),
        Figure(name.format("rru"), "RRU", rru),
        Figure(name.format("calls"), "calls", 1 / 25 + calls),
        Figure(
            f"queue.contention.lost_claims.{number}",
            "share",
            turn.lost_share,
            seed.lost_share,
            baseline_001.NAME,
        ),
    ]


def faults_of(what: str, turns: Mapping[str, Turn]) -> list[str]:
    """Return the turns without result, and those that gave a message to two holders at a time."""
    found: list[str] = []
    for who, turn in turns.items():
        if not turn.messages:
            found.append(f"{who}, {what}: no message")
        if turn.repeated:
            found.append(f"{who}, {what}: {turn.repeated} acknowledged again")
    return found


class _Stage:
    """An engine with the tables of both queues, and the processes that work against it."""

    def __init__(self, crew: Crew, engine: int) -> None:
        self._crew = crew
        self._engine = engine

    def turns(
        self, verb: Verb, rivals: Sequence[str], number: int, seconds: float
    ) -> dict[str, Turn]:
        """Run each queue's turns, in rounds; return the results."""
        turns = dict.fromkeys(rivals, Turn())
        for _ in range(_ROUNDS):
            for who in rivals:
                turns[who] += self.round(verb, who, _place(number), number, seconds / _ROUNDS)
        return turns

    def round(self, verb: Verb, who: str, place: str, number: int, seconds: float) -> Turn:
        """Run one round with so many processes."""
        before = cpu_seconds([self._engine])
        done = self._crew.do(Task(verb, place, seconds, _PAGES[who]), number)
        return Turn.of(done, cpu_seconds([self._engine]) - before)


def _place(number: int) -> str:
    return f"jobs-{number}"


@contextmanager
def _stage(consumers: Sequence[int]) -> Iterator[_Stage]:
    """Start a fresh database with the tables of both, and the processes; stop them at the end."""
    with ExitStack() as stack:
        database = DynamoDbLocal()
        stack.callback(database.stop)
        database.start()
        _create([_WARM_UP, *(_place(number) for number in consumers)], database.endpoint)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([Crew.__module__])
        endpoint = database.endpoint
        variables = Endpoints(dynamodb=endpoint, services=endpoint, firehose=endpoint)
        crew = Crew(context, variables.shell_variables(), max(consumers))
        stack.callback(crew.let_go)
        yield _Stage(crew, database.pid or 0)


def _create(places: Sequence[str], endpoint: str) -> None:
    client = client_of(endpoint)
    for definition in table_definitions(outbox=OUTBOX, deliveries=DELIVERIES):
        client.create_table(**definition)
    queue = Queue(client, table=OUTBOX, deliveries_table=DELIVERIES)
    for place in places:
        queue.outbox.create_topic(Topic(place))
        client.create_table(**baseline_001.definition(place))
