"""The benchmarks of the queue: source 001's pattern does what its README says, and the counts."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Queue, Topic
from fairbox.dynamodb.definitions import table_definitions
from fairbox.model.messages import Message
from fairbox.testing import ManualClock, MemoryDynamoDB

from benchmarks import (
    consumer,
    hashing,
    queue_idle,
    queue_keys,
    queue_matrix,
    queue_returns,
    queue_steps,
)
from benchmarks.baseline_001 import PAGE, LostRaceError, SeedMessage, SeedQueue, definition
from benchmarks.queue_throughput import Turn, faults_of
from benchmarks.queue_workers import Claims, Done

if TYPE_CHECKING:
    from collections.abc import Callable


class Overtaken:
    """A client whose next query is followed by somebody else's work, before it is answered."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.by: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def query(self, **request: Any) -> Any:
        answer = self._client.query(**request)
        work, self.by = self.by, None
        if work is not None:
            work()
        return answer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> MemoryDynamoDB:
    engine = MemoryDynamoDB(clock)
    engine.create_table(**definition())
    for table in table_definitions(outbox="outbox", deliveries="deliveries"):
        engine.create_table(**table)
    return engine


def test_the_seeds_pattern_gives_the_oldest_visible_message(
    engine: MemoryDynamoDB, clock: ManualClock
) -> None:
    queue = SeedQueue(engine, clock=clock, page=1)  # what is held fills pages
    for name in ("z", "a"):
        queue.send(name, name.encode())
        clock.advance(1)
    assert queue.receive() == SeedMessage("z", b"z")
    assert queue.receive() == SeedMessage("a", b"a")
    assert queue.receive() is None


def test_the_seeds_pattern_gives_a_message_again_after_its_time_out_but_not_when_deleted(
    engine: MemoryDynamoDB, clock: ManualClock
) -> None:
    queue = SeedQueue(engine, clock=clock)
    queue.send("a", b"")
    queue.receive()
    clock.advance(59)
    assert queue.receive() is None
    clock.advance(1)
    assert queue.receive() == SeedMessage("a", b"")
    queue.delete("a")
    clock.advance(60)
    assert queue.receive() is None


def test_a_consumer_of_the_seeds_pattern_that_is_second_loses_the_race(
    engine: MemoryDynamoDB, clock: ManualClock
) -> None:
    first = SeedQueue(engine, clock=clock)
    first.send("a", b"")
    overtaken = Overtaken(engine)
    overtaken.by = first.receive
    second = SeedQueue(overtaken, clock=clock)
    with pytest.raises(LostRaceError):
        second.receive()


def test_the_seeds_pattern_writes_item_and_index_at_each_step_and_reads_a_page() -> None:
    steps = queue_steps.seed_steps(MemoryDynamoDB(ManualClock()), messages=20)
    assert [steps[step].wru for step in queue_steps.STEPS] == [2, 2, 2]
    assert [steps[step].calls for step in queue_steps.STEPS] == [1, 2, 1]
    item_bytes = queue_steps.BODY_BYTES, 1024
    low, high = (PAGE * size / 4096 / 2 for size in item_bytes)
    assert low < steps["receive"].rru <= high
    assert steps["send"].rru == steps["ack"].rru == 0


def test_a_message_of_a_pulled_topic_costs_three_writes_and_little_reading() -> None:
    steps = queue_steps.fairbox_steps()
    assert 3 <= sum(step.wru for step in steps.values()) <= 3.2
    assert 0 < sum(step.rru for step in steps.values()) <= 0.3
    assert steps["receive"].calls + steps["ack"].calls <= 0.5


def test_claims_that_another_consumer_was_faster_with_are_counted(
    engine: MemoryDynamoDB, clock: ManualClock
) -> None:
    def queue(client: Any, seed: int) -> Queue:
        rng = random.Random(seed)
        return Queue(client, table="outbox", deliveries_table="deliveries", clock=clock, rng=rng)

    faster = queue(engine, 1)
    faster.outbox.create_topic(Topic("jobs", shards=1))
    assert faster.receive("jobs") == []  # looks from the head, as nobody will for a minute
    faster.send_many([Message(topic="jobs", body=b"") for _ in range(5)])
    taken: list[str] = []
    claims = Claims(engine)

    def overtake() -> None:
        taken.extend(r.message.id for r in faster.receive("jobs", max_messages=2))

    overtaken = Overtaken(claims)
    slower = queue(overtaken, 2)
    slower.topic("jobs")  # its rows are read now
    overtaken.by = overtake
    received = slower.receive("jobs")
    assert len(taken) == 2
    assert (claims.tried, claims.lost) == (5, 2)
    assert len(received) == 3
    slower.ack([r.receipt for r in received])
    assert claims.tried == 5  # an acknowledgement is no claim


def test_a_turn_adds_up_what_processes_did_at_the_same_time() -> None:
    first = Done(began=10.0, ended=12.0, acked=["a", "b"], tried=3, lost=1, cpu_seconds=0.5)
    second = Done(began=11.0, ended=14.0, acked=["b", "c"], tried=5, lost=1, cpu_seconds=0.5)
    turn = Turn.of([first, second], engine_cpu_seconds=0.2)
    assert (turn.messages, turn.repeated, turn.seconds) == (3, 1, 4.0)
    assert (turn.rate, turn.lost_share) == (0.75, 0.25)
    assert turn.cpu_ms == pytest.approx(400)


def test_rounds_of_a_turn_are_added_up() -> None:
    rounds = Turn(10, 2.0, 1.0, 0, 20, 5), Turn(30, 2.0, 1.0, 1, 20, 5)
    assert rounds[0] + rounds[1] == Turn(40, 4.0, 2.0, 1, 40, 10)


def test_turns_without_messages_or_with_repeated_ones_are_faults() -> None:
    turns = {"a": Turn(messages=5, seconds=1.0), "b": Turn(), "c": Turn(5, 1.0, repeated=2)}
    assert faults_of("send by 4", turns) == [
        "b, send by 4: no message",
        "c, send by 4: 2 acknowledged again",
    ]


def test_keys_use_all_shards_of_all_partitions_and_the_hashes_do_not_correlate() -> None:
    figures = {figure.name: figure for figure in hashing.figures()}
    cells, dependence = figures["hash.cells_used"], figures["hash.dependence"]
    assert (cells.value, cells.baseline) == (64, 8)
    assert dependence.value < 0.02
    assert dependence.baseline == pytest.approx(1)
    for place in ("cells", "partitions", "shards"):
        assert 1 <= figures[f"hash.max_by_mean.{place}"].value < 1.15


def test_a_crashed_consumers_message_comes_back_and_the_reads_are_counted() -> None:
    late, rru = queue_returns.message_return(20, shards=1)
    assert 0 <= late < 60
    assert rru > 0
    seed_late, seed_rru = queue_returns.seed_return(20)
    assert 0 <= seed_late <= 1
    assert seed_rru > 2


def test_a_receiver_that_waits_is_metered_and_gets_every_message() -> None:
    figures, faults = queue_idle.figures(shards=(1,), minutes=1, messages=3)
    values = {figure.name: figure.value for figure in figures}
    assert faults == []
    assert values["queue.idle.rru_per_minute.1_shards.unordered"] > 0
    assert 0 < values["queue.wait.p50_ms.1_shards.unordered"] < 3000


def test_keys_that_wait_are_held_or_are_hot_are_metered() -> None:
    figures = queue_keys.figures(waiting=(0, 20), in_flight=(10,), messages=300)
    values = {figure.name.removeprefix("queue_keys."): figure.value for figure in figures}
    assert values["messages_a_second.beside_20_waiting"] > 300
    assert values["wru_per_message.beside_20_waiting"] < 2.3
    assert values["messages_a_second.hot_key.10_per_key.hot"] > 300
    assert values["receives_300_in_flight.8_shards"] == 1
    assert values["rru_300_in_flight.8_shards"] <= 5


def test_one_consumer_by_itself_loses_no_claim_on_any_number_of_shards() -> None:
    figures = queue_matrix.figures(consumers=(1,), shards=(1, 8), messages=100)
    lost = [figure.value for figure in figures if "lost" in figure.name]
    assert lost == [0, 0]
    published = {figure.name: figure.value for figure in figures if ".sqs." in figure.name}
    assert published["queue.sqs.fifo.messages_per_second"] == 3000


@pytest.mark.parametrize(("ordering", "most"), [("none", 2.7), ("key", 2.7)])
def test_a_consumer_s_throughput_is_that_of_its_handlers(ordering: Any, most: float) -> None:
    done = consumer.work(4, 0.1, ordering)
    assert 20 < done.rate <= 40
    assert 1 < done.wru <= most
    assert done.lost == 0
