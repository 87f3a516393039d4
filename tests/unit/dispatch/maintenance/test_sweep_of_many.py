"""A sweep of very many overdue shards: fair, bounded, and all of them in the time that it tells."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, MessageRef, Subscription, Topic
from fairbox.aws.sqs_queues import decode
from fairbox.dispatch.maintenance.shard_sweep import HEADS_A_SECOND, PERIOD_SECONDS, Sweep
from fairbox.dispatch.parallel import THREADS, in_threads
from fairbox.model.clock import milliseconds
from fairbox.model.epochs import Epoch
from fairbox.model.ids import IdGenerator
from fairbox.model.topic_states import TopicState
from fairbox.tables.lanes import ShardPage
from fairbox.tables.shard_rows import BUCKETS, ShardRow, bucket, shard_item
from fairbox.tables.stored_messages import StoredMessage
from fairbox.testing import ManualClock
from fairbox.testing.doorbell_queues import DoorbellQueues

from tests.support.application import App

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairbox.dispatch.ports import Doorbell

READ_SECONDS = 0.01
RING_SECONDS = 0.02
LIMIT = 50.0  # of an invocation's 60 s


class Threads:
    """Runs calls as sixteen threads would, each of whose calls takes its time, on one clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.took = 0.0

    def __call__(self, calls: Sequence[Callable[[], None]]) -> None:
        free = [0.0] * THREADS
        for call in calls:
            self.took = 0.0
            call()
            free.sort()
            free[0] += self.took
        self.clock.advance(max(free))


class Overdue:
    """A store whose shards are all overdue, and a queue that counts; calls take their time."""

    def __init__(self, shards: dict[str, int], read: float = READ_SECONDS) -> None:
        self.clock = ManualClock()
        self.doorbells = DoorbellQueues(self.clock)
        self.run = Threads(self.clock)
        self.read = read
        self.rung: list[Doorbell] = []
        self.rings = Counter[int]()
        self.heads: list[float] = []
        generator = IdGenerator(self.clock, lambda bits: 1 << (bits - 1))
        self.old = generator.next()
        self.clock.advance(3600)
        self.rows = [
            ShardRow(topic, 0, n, ready=1, next_check=1)
            for topic, count in shards.items()
            for n in range(count)
        ]
        self.rows.sort(key=lambda row: bucket(row.topic, 0, row.shard))
        self.topics = {
            name: TopicState(
                Topic(name), (Epoch(0, 8, 0),), (Subscription(name, "a", "sqs:http://q/a"),)
            )
            for name in shards
        }

    def refresh(self) -> None:
        pass

    def get(self, name: str) -> TopicState:
        return self.topics[name]

    def listed(self, until: int) -> Iterator[ShardRow]:
        return iter(self.rows)

    def page(self, lane: str, topic: str, epoch: int, shard: int, **_: Any) -> ShardPage:
        self.run.took += self.read
        self.heads.append(self.clock.now())
        ref = MessageRef(topic, epoch, shard, self.old)
        message = Message(topic=topic, body=b"", id=self.old)
        return ShardPage(None, (StoredMessage(message, ref, "ready", 0),), (), None)

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - the SDK's
        self.run.took += RING_SECONDS
        self.rings[len(Entries)] += 1
        self.rung += [decode(entry["MessageBody"]) for entry in Entries]
        return self.doorbells.sqs.send_message_batch(QueueUrl=QueueUrl, Entries=Entries)

    def sweep(self) -> Sweep:
        doorbells = self.doorbells.of(self.clock, lambda _: self)
        tables: Any = SimpleNamespace(topic_cache=self, rows=self, lanes=self)
        return Sweep(tables, doorbells, self.clock, run=self.run)


def places(doorbells: Sequence[Doorbell]) -> set[tuple[str, int]]:
    return {(d.topic, d.shard) for d in doorbells}


@pytest.mark.extended  # size
def test_twenty_thousand_shards_are_visited_in_one_run_ten_doorbells_a_call() -> None:
    world = Overdue({f"t{n}": 20 for n in range(1000)})
    began = world.clock.now()
    report = world.sweep().run(deadline=began + LIMIT)
    assert (report.looked, report.rung, report.remaining) == (20_000, 20_000, 0)
    assert (report.unfinished, report.seconds_to_all) == (False, 0)
    assert places(world.rung) == {(f"t{n}", s) for n in range(1000) for s in range(20)}
    assert set(world.rings) == {10}
    assert world.clock.now() - began < LIMIT
    busiest = Counter(int(at) for at in world.heads).most_common(1)[0][1]
    assert busiest <= HEADS_A_SECOND + 160


@pytest.mark.extended  # 20,000 shards
def test_what_a_run_does_not_reach_the_next_ones_do_in_the_time_that_was_told() -> None:
    world = Overdue({f"t{n}": 20 for n in range(1000)}, read=0.2)
    sweep = world.sweep()
    began = world.clock.now()
    report = sweep.run(deadline=began + LIMIT)
    assert report.unfinished
    assert report.looked + report.remaining == 20_000
    assert len({bucket(d.topic, 0, d.shard) for d in world.rung}) == len(BUCKETS)
    told = began + report.seconds_to_all + PERIOD_SECONDS
    runs = 1
    while len(places(world.rung)) < 20_000:
        world.clock.advance(max(0.0, began + runs * PERIOD_SECONDS - world.clock.now()))
        sweep.run(deadline=world.clock.now() + LIMIT)
        runs += 1
        assert runs < 20
    assert world.clock.now() <= told
    assert len(world.rung) - 20_000 < report.looked, "few are visited twice before others"


def test_a_process_that_begins_anew_begins_elsewhere() -> None:
    world = Overdue({"a": 1000, "b": 1000}, read=0.2)
    firsts = []
    for _ in range(6):
        world.rung.clear()
        world.sweep().run(deadline=world.clock.now() + 1)
        firsts.append(frozenset(places(world.rung)))
        world.clock.advance(60)
    assert len(set(firsts)) == len(firsts)


def test_a_topic_of_a_thousand_shards_starves_no_small_one() -> None:
    world = Overdue({"big": 1000} | {f"t{n:02d}": 2 for n in range(100)}, read=0.2)
    sweep = world.sweep()
    sweep.run(deadline=world.clock.now() + 3.9)
    small = {place for place in places(world.rung) if place[0] != "big"}
    assert len(small) == 200
    assert len(world.rung) < 1200, "the run ended early"


def test_new_shards_come_before_those_that_were_checked() -> None:
    world = Overdue({"a": 400}, read=0.2)
    sweep = world.sweep()
    sweep.run(deadline=world.clock.now() + 1)
    first = places(world.rung)
    assert 0 < len(first) < 400
    world.rows.append(ShardRow("a", 1, 0, ready=1, next_check=1))
    world.rung.clear()
    sweep.run(deadline=world.clock.now() + 1000)
    assert not places(world.rung) & first - {("a", 0)}
    assert len(world.rung) == 401 - len(first)


class SmallPages:
    """A client whose queries answer ten rows a page."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def query(self, **request: Any) -> Any:
        return self._client.query(**request, Limit=10)


def test_the_index_is_listed_bucket_by_bucket_in_turn() -> None:
    app = App("a")
    for n in range(200):
        row = ShardRow("orders", 0, n, ready=1, next_check=1)
        app.engine.put_item(TableName="outbox", Item=shard_item(row))
    app.tables.calls.client = SmallPages(app.client)
    listed = list(islice(app.tables.rows.listed(milliseconds(app.clock)), 80))
    turns = Counter(bucket("orders", 0, row.shard) for row in listed)
    assert turns == dict.fromkeys("01234567", 10)
    assert len({row.shard for row in app.tables.rows.listed(milliseconds(app.clock))}) == 200


def test_threads_of_a_sweep_share_nothing_that_breaks() -> None:
    app = App("a", shards=64)
    app.add(300)
    app.mark()
    app.clock.advance(100)
    lock = threading.Lock()  # the memory engine is not threaded
    read = app.tables.lanes.page

    def locked(*args: Any, **more: Any) -> ShardPage:
        with lock:
            return read(*args, **more)

    app.tables.lanes.page = locked  # type: ignore[method-assign]
    report = Sweep(app.tables, app.doorbells, app.clock, run=in_threads).run(deadline=app.deadline)
    assert report.rung == report.looked == len(app.outbox.listed())
