"""Feeds in simulated time: publishers, clients, sockets and faults around the shipped code."""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from functools import partial
from math import inf
from random import Random
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError
from fairbox import Feed, Feeds
from fairbox.client.feed_positions import FeedPositions
from fairbox.errors import FairboxError, Unavailable
from fairbox.runtime.feed_application import FeedsApplication
from fairbox.settings import AUDIENCE_SHARDS, FEEDS_QUEUE_URL, FEEDS_TABLE, FEEDS_URL, Settings
from fairbox.tables.feed_connections import Connection
from fairbox.testing.application import FEEDS, MemoryApplication
from fairbox.testing.memory_sqs import SqsTrigger, redrive
from fairbox_simulation.load.functions import _Queue
from fairbox_simulation.load.threads import Threads
from fairbox_simulation.load.timeline import Timeline, TimelineClock

from local.cloudformation.resources import queue_attributes
from tests.functions.api_client import load_handler
from tests.functions.running import Context
from tests.support.deployment import function_specifications, queue_with, variable

RING, SNAPSHOT, INBOX = "trades/btc", "prices/eur", "inbox/u7"
KEPT = {RING: 8, SNAPSHOT: 1, INBOX: inf}
LIMIT, WINDOW, HEAD = 64, 16, {"S": "!"}


class Crash(BaseException):
    """The end of a process."""


def attempt(call: Any, *given: Any, **named: Any) -> list[Any]:
    """Return a call's result in a list, which is empty where it failed or its process ended."""
    try:
        return [call(*given, **named)]
    except (Crash, FairboxError):
        return []


class FeedsWorld:
    """Three topics and who follows them; odd seeds lose requests, answers and frames unseen."""

    def __init__(self, seed: int) -> None:
        self.rng, self.lossy, self.harm = Random(seed), seed % 2 == 1, 1.0 if seed % 4 else 0.2
        self.calm, self.bad, self.counts = False, Counter[str](), Counter[str]()
        self.clock = TimelineClock()
        self.timeline = Timeline(self.clock)
        app = MemoryApplication(clock=self.clock, rng=self.rng)
        app.feeds.create(Feed("trades", "ring", size=8))
        app.feeds.create(Feed("prices"))
        app.feeds.create(Feed("inbox", "private", limit=LIMIT, window=WINDOW))
        self.topics = app.feeds._publishing._topics  # as they stand, and in no time
        self.stream, self.ringing, sqs = app.engine.stream(FEEDS), False, app.doorbells.sqs
        doorbells = queue_with(variable("FAIRBOX_FEEDS_QUEUE_URL"))
        given = queue_attributes(doorbells)
        sqs.create_queue(QueueName="dead.fifo", Attributes={"FifoQueue": "true"})
        given["RedrivePolicy"] = redrive("dead.fifo", doorbells["RedrivePolicy"]["maxReceiveCount"])
        sqs.create_queue(QueueName="bells.fifo", Attributes=given)
        queue, trigger = sqs.queues["bells.fifo"], SqsTrigger(sqs, "bells.fifo")
        self.timeline.sources.append(_Queue(self.timeline, queue, trigger, 2, self._visit))
        self.visits: Any = load_handler("feeds_visit")
        self.services = (app.engine, sqs, self)
        settings = {FEEDS_TABLE: FEEDS, FEEDS_QUEUE_URL: "bells.fifo", FEEDS_URL: "wss://feeds"}
        self.settings = Settings(settings | {AUDIENCE_SHARDS: str(self.rng.randint(1, 2))})
        self.published, self.sockets = defaultdict[str, dict[int, str]](dict), dict[str, Any]()
        self.clients = [Client(self) for _ in range(self.rng.randint(2, 3))]

    def fault(self, chance: float, name: str, *, unseen: bool = False) -> bool:
        hit = not self.calm and self.lossy >= unseen and self.rng.random() < chance * self.harm
        self.counts[name] += hit
        return hit

    def run(self) -> FeedsWorld:
        for _ in range(3):
            self.calm, seconds = False, self.rng.uniform(10, 120)
            for topic in (RING, RING, SNAPSHOT, INBOX):
                self.timeline.start(self._publish, topic, seconds / 9)
            self.timeline.start(self._trouble)
            self.timeline.sleep(seconds)
            self.calm = True  # no later message shows what is missing now
            self.timeline.sleep(900 if self.lossy else 420)
            self._judge()
        return self

    def _publish(self, topic: str, pause: float) -> None:
        feeds = Feeds(process := Process(self), table=FEEDS, clock=self.clock, rng=self.rng)
        while process.ends and not self.calm:
            ids = [f"{self.rng.random()}" for _ in range(self.rng.choice((1, 1, 2, 2, 3, 3, 16)))]
            bodies = [b"0"] * len(ids)
            for numbers in attempt(feeds.publish_many, *topic.split("/"), bodies, ids=ids):
                self.published[topic] |= zip(numbers, (f'"{id_}",0' for id_ in ids), strict=True)
            self.clock.sleep(self.rng.expovariate(1 / self.rng.choice((0.1, 1, pause))))

    def ring(self) -> None:
        self.bad["over the limit"] += self.topics.state(INBOX).depth > LIMIT + 15
        while not self.ringing and len(self.stream):  # one invocation at a time
            self.ringing = True
            self.clock.sleep(self.rng.uniform(0.02, 0.3))
            records = self.stream.take(limit=self.rng.randint(1, 12))
            process = Process(self, function_specifications()["feeds_ring"].timeout)
            process.ringing._run = process.run
            heads = [one for one in records if one["dynamodb"]["Keys"]["sk"] == HEAD]
            if attempt(process.ringing.ring, heads):
                self.stream.trim(records[-1]["dynamodb"]["SequenceNumber"])
            self.ringing = False

    def _visit(self, trigger: SqsTrigger, records: list[Any]) -> None:
        self.counts["doorbells twice"] += records[0]["attributes"]["ApproximateReceiveCount"] > "1"
        context = Context.of("feeds_visit")
        seconds = context.get_remaining_time_in_millis() / 1000
        process, handler = Process(self, seconds), self.visits.handler.__wrapped__
        process.pushing._run = process.pushing._posting._run = process.run
        self.visits.application = lambda: process
        for answer in attempt(handler, {"Records": records}, context):
            trigger.settle(records, answer)

    def post_to_connection(self, *, ConnectionId: str, Data: bytes) -> None:  # noqa: N803 - boto3's
        socket = self.sockets[ConnectionId]
        self.counts["gone"] += not socket.open
        if not socket.open or len(socket.inbox) > 6 or self.fault(0.2, "posts refused"):
            response: Any = {"ResponseMetadata": {"HTTPStatusCode": 429 if socket.open else 410}}
            raise ClientError(response, "PostToConnection")
        end, frame = self.topics.state(INBOX).acknowledged + WINDOW, json.loads(Data)["t"]
        self.bad["over the window"] += any(one[0] == INBOX and one[2] > end for one in frame)
        socket.client.send(socket, Data.decode())

    def delete_connection(self, *, ConnectionId: str) -> None:  # noqa: N803 - boto3's
        self.counts["put out"] += 1
        if self.fault(0.2, "not closed", unseen=True):
            raise ReadTimeoutError(endpoint_url="aws")
        if self.sockets[ConnectionId].open:
            self.sockets[ConnectionId].client.close()

    def _trouble(self) -> None:
        while self.harm == 1 and not self.calm:
            client, kind = self.rng.choice(self.clients), self.rng.randrange(4)
            if kind == 0:
                client.socket.dead = self.lossy
            elif kind == 1:
                client.socket.reads = self.clock.now() + self.rng.uniform(5, 60)
            elif client.socket.open:
                client.close()
                if kind == 2:  # for good
                    self.clients[self.clients.index(client)] = Client(self)
            self.clock.sleep(self.rng.expovariate(1 / 15))

    def _judge(self) -> None:
        for client in self.clients:
            for topic, position in client.positions.positions.items():
                self.bad["not level"] += position != self.topics.state(topic).head.last
                self.bad["received + told is not all"] += position != client.at.get(topic)
        for topic in (RING, INBOX):
            head, there = self.topics.state(topic).head, dict[int, str]()
            for bundle in self.topics.after(topic, 0, head):
                there |= enumerate(bundle.messages, bundle.first)
            self.bad["published once, and there twice"] += len({*there.values()}) < len(there)
            self.bad["acknowledged, and lost"] += not self.published[topic].items() <= there.items()


class Process(FeedsApplication):
    """A process and its boto3 clients: each call takes time, and may be its last one."""

    def __init__(self, world: FeedsWorld, seconds: float = inf) -> None:
        super().__init__(world.settings, lambda *_, **__: self)
        self.clock: Any = world.clock
        self.rng, self.world, self.ends = world.rng, world, world.clock.now() + seconds

    def __getattr__(self, name: str) -> Any:
        service = next(service for service in self.world.services if hasattr(service, name))
        return partial(self._call, getattr(service, name))

    def _call(self, method: Any, **request: Any) -> Any:
        frozen = self.world.fault(0.003, "frozen")
        lag = self.rng.uniform(20, 100) if frozen else self.rng.expovariate(25)
        self.clock.sleep(min(lag, self.ends - self.clock.now()))
        self._crash()
        answer = method(**request)
        if (request.get("Item") or request.get("Key", {})).get("sk") == HEAD:
            self.world.timeline.start(self.world.ring)
        self._crash()
        if self.world.fault(0.02, "answers lost"):
            raise ReadTimeoutError(endpoint_url="aws")
        return answer

    def _crash(self) -> None:
        if self.ends <= self.clock.now() or self.world.fault(0.005, "crashes"):
            self.ends = 0.0  # for its other threads too
            raise Crash

    def run(self, calls: Any) -> None:
        done: list[list[Any]] = []
        calls = sorted(calls, key=lambda call: str(call.args[0]))  # those of a set have no order
        work = [partial(lambda call: done.append(attempt(call)), call) for call in calls]
        Threads(self.world.timeline).run_all(work)
        if not all(done):
            raise Unavailable("threads", "one failed") if self.ends else Crash


class Client:
    """A client, whose `FeedPositions` is driven as its docstring says; `at`: what it was told."""

    def __init__(self, world: FeedsWorld) -> None:
        self.world, self.at = world, dict[str, int]()
        self.positions = FeedPositions(dict.fromkeys(KEPT), clock=world.clock, rng=world.rng)
        self.socket: Any = SimpleNamespace(open=False)
        self.task = world.timeline.start(self._live)

    def send(self, socket: Any, text: str) -> None:
        if socket.open and not socket.dead:
            lag = self.world.rng.expovariate(20)
            socket.reads = max(socket.reads, self.world.clock.now()) + lag
            socket.inbox.append((socket.reads, text))
            self.world.timeline.wake(self.task)

    def close(self) -> None:
        self.socket.open = False
        self.world.timeline.wake(self.task)

    def _live(self) -> None:
        world, rng = self.world, self.world.rng
        world.clock.sleep(rng.uniform(0, 20))
        while self in world.clients:
            id_, connections = f"c{rng.getrandbits(64)}", Process(world).connections
            if attempt(connections.open, id_, Connection("u7", frozenset(KEPT))):
                self.socket = SimpleNamespace(client=self, id=id_, open=True, dead=False, reads=0.0)
                self.socket.inbox, world.sockets[id_] = deque(), self.socket
                self.positions.opened()
                while self.socket.open:
                    self._act()
                if rng.random() < 0.7:
                    world.timeline.start(attempt, connections.close, id_)  # `$disconnect`
            world.counts["reconnects"] += 1
            world.clock.sleep(self.positions.closed())

    def _act(self) -> None:
        now, due, inbox = self.world.clock.now(), self.positions.due(), self.socket.inbox
        arrives = inbox[0][0] if inbox else inf
        if arrives <= now:
            self._take(inbox.popleft()[1])
        elif due > now:
            self.world.timeline.park(min(due, arrives))
        elif (request := self.positions.act()) is not None:
            self.world.timeline.start(attempt, self._ask, self.socket, request)
        else:
            self.close()

    def _ask(self, socket: Any, request: str) -> None:
        if not self.world.fault(0.04, "requests lost", unseen=True):
            answer = Process(self.world).requests.answer(socket.id, request)
            if not self.world.fault(0.03, "answers lost", unseen=True):
                self.send(socket, answer)

    def _take(self, text: str) -> None:
        world, updates = self.world, self.positions.received(text)
        for topic, after, *_ in json.loads(text).get("t", ()):
            if self.positions.positions[topic] is not None:
                self.at.setdefault(topic, after)
        for update in updates:
            topic, numbers = update.topic, [message.number for message in update.messages]
            due = range(self.at[topic] + 1, (update.position or 0) + 1)
            lost, self.at[topic] = {*due} - {*numbers}, due.stop - 1
            world.counts.update(received=len(numbers), told=len(lost) * (topic == RING))
            world.bad["received + told is not all"] += len(lost) != update.lost or update.reset
            world.bad["twice or out of order"] += numbers != sorted({*numbers} & {*due})
            kept_from = world.topics.state(topic).head.last - KEPT[topic]
            world.bad["told lost, and is there"] += max(lost, default=-inf) > kept_from
