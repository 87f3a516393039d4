"""An audience shard of feeds in simulated time: the shipped code, over engines in memory."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from functools import lru_cache, partial
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ReadTimeoutError
from fairbox import Feed
from fairbox.aws.feed_sockets import ANSWER_SECONDS, FeedSockets
from fairbox.dispatch.parallel import one_by_one
from fairbox.errors import FairboxError
from fairbox.feeds.asking import Asking
from fairbox.feeds.frames import POSTS, Posting
from fairbox.feeds.pushing import Pushing
from fairbox.feeds.ringing import Doorbell, Ringing
from fairbox.tables.calls import Calls
from fairbox.tables.feed_connections import Connection, FeedConnections, FeedLeases
from fairbox.tables.feed_rows import FeedRows
from fairbox.tables.feed_topics import FeedTopics
from fairbox.testing import CostMeter, ManualClock
from fairbox.testing.application import FEEDS, MemoryApplication
from fairbox.testing.memory_sqs import MemorySqs, SqsTrigger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.feeds.pushing import Pushed

POST_SECONDS: Final = (0.008, 0.03)
INVOCATION_SECONDS: Final = 0.03
SENDING_SECONDS: Final = 20.0
ASKING_SECONDS: Final = 0.5
VISIBILITY_SECONDS: Final = "60"

parsed = lru_cache(maxsize=64)(json.loads)


class DueClock(ManualClock):
    """A clock that calls what is due while it advances."""

    def __init__(self) -> None:
        super().__init__(1e6)  # so small that sums of many posts stay exact
        self._due: list[tuple[float, int, Callable[[], object]]] = []

    def at(self, time: float, call: Callable[[], object]) -> None:
        """Call something at a time."""
        heappush(self._due, (time, len(self._due), call))

    def advance(self, seconds: float) -> float:
        """Move forward by `seconds`, and call what is due until then."""
        until = self.now() + seconds
        while self._due and self._due[0][0] <= until:
            time, _, call = heappop(self._due)
            self.set(max(time, self.now()))
            call()
        self.set(max(until, self.now()))
        return self.now()


class Lanes:
    """The client of the sockets, whose posts take time, so many at once.

    Args:
        clock: is moved when all posts of a call of `run` have ended.
        rng: draws the time of a post.
        lanes: posts at a time.
        seconds: of a post of so many bytes; by default 8 to 30 ms.

    Attributes:
        stuck: connections that never answer.
        took: is told connection, frame and time of each that was taken.
    """

    def __init__(
        self,
        clock: DueClock,
        rng: random.Random,
        lanes: int = POSTS,
        seconds: Callable[[bytes], float] | None = None,
    ) -> None:
        self.clock = clock
        self._lanes = [0.0] * lanes
        self._seconds = seconds or (lambda _: rng.uniform(*POST_SECONDS))
        self.stuck: frozenset[str] = frozenset()
        self.took: Callable[[str, bytes, float], None] = lambda *_: None

    def run(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make posts, all of them though one fails, as threads do."""
        self._lanes = [self.clock.now()] * len(self._lanes)
        errors: list[FairboxError] = []
        for call in calls:
            try:
                call()
            except FairboxError as error:
                errors.append(error)
        self.clock.advance(max(0.0, max(self._lanes) - self.clock.now()))
        if errors:
            raise errors[0]

    def post_to_connection(self, *, ConnectionId: str, Data: bytes) -> None:  # noqa: N803 - boto3's
        """Take a frame, or let the caller wait."""
        stuck = ConnectionId in self.stuck
        begin = max(heappop(self._lanes), self.clock.now())
        end = begin + (ANSWER_SECONDS if stuck else self._seconds(Data))
        heappush(self._lanes, end)
        if stuck:
            raise ReadTimeoutError(endpoint_url="sockets")
        self.took(ConnectionId, Data, end)

    def delete_connection(self, *, ConnectionId: str) -> None:  # noqa: N803 - boto3's
        """Close a socket."""


class Audience:
    """Clients of one shard who follow the same topics of a ring; and what they saw.

    Args:
        clients: their number.
        keys: of the topics, in feed `trades`.
        stuck: clients that never answer.
        lanes: posts at a time.
        seconds: of a post, by its frame.
        rate: posts a second.

    Attributes:
        seen: times at which a client got a message, by topic and number.
        counts: frames, messages, clients that were put out, and that asked.
    """

    def __init__(
        self,
        clients: int,
        keys: Sequence[str],
        *,
        stuck: int = 0,
        lanes: int = POSTS,
        seconds: Callable[[bytes], float] | None = None,
        rate: float = inf,
    ) -> None:
        self.clock = DueClock()
        self.rng = random.Random(1)
        self.app = MemoryApplication(clock=self.clock, rng=self.rng, wrap=CostMeter)
        self.app.feeds.create(Feed("trades", "ring", size=512))
        posts = Lanes(self.clock, self.rng, lanes, seconds)
        posts.stuck, posts.took = frozenset(map(str, range(stuck))), self._took
        self._sequence: str | None = None
        self._at: dict[str, list[float]] = defaultdict(list)
        self._positions: dict[tuple[str, str], int] = defaultdict(int)
        self.seen: dict[tuple[str, int], list[float]] = defaultdict(list)
        self.counts = Counter[str]()

        calls = Calls(self.app.client, self.clock, self.rng)
        connections, leases = FeedConnections(calls, FEEDS, 1), FeedLeases(calls, FEEDS)
        sqs = MemorySqs(self.clock, self.rng)
        sqs.create_queue(
            QueueName="q.fifo",
            Attributes={"FifoQueue": "true", "VisibilityTimeout": VISIBILITY_SECONDS},
        )
        self._trigger = SqsTrigger(sqs, "q.fifo")
        self._ringing = Ringing(leases, sqs, "q.fifo", one_by_one)
        self._pushing = Pushing(
            FeedRows(calls, FEEDS),
            FeedTopics(calls, FEEDS),
            connections,
            posting=Posting(FeedSockets(posts), self.clock, self.rng, rate, posts.run),
            ringing=self._ringing,
            run=one_by_one,
        )
        self._connections, self._asking = connections, Asking(calls, FEEDS, connections)
        for client in range(clients):
            self.follow(str(client), keys)

    def follow(self, id_: str, keys: Sequence[str]) -> None:
        """Let a client connect."""
        self._connections.open(id_, Connection("u", frozenset({"trades/*"})))
        self._asking.sync(id_, 1, {f"trades/{key}": None for key in keys})

    def publish(self, key: str, *bodies: str) -> None:
        """Publish messages, and ring for them."""
        numbers = self.app.feeds.publish_many(
            "trades", key, [json.dumps(b).encode() for b in bodies]
        )
        self._at[f"trades/{key}"] += [self.clock.now()] * len(numbers)
        records = self.app.engine.stream(FEEDS).take(self._sequence)
        self._sequence = records[-1]["dynamodb"]["SequenceNumber"]
        self._ringing.ring([r for r in records if r["dynamodb"]["Keys"]["sk"]["S"] == "!"])

    def publish_each(self, seconds: float, count: int, keys: Sequence[str]) -> None:
        """Publish a message each so many seconds, to topics in turn; and visit meanwhile."""
        now = self.clock.now()
        for number in range(count):
            key = keys[number % len(keys)]
            self.clock.at(now + number * seconds, partial(self.publish, key, str(number)))
        self.visit(until=now + count * seconds)

    def visit(self, until: float = 0.0) -> None:
        """Visit while doorbells wait, and until a time."""
        while self._trigger.invoke(self._visit) or self.clock.now() < until:
            self.clock.advance(INVOCATION_SECONDS)

    def units(self) -> tuple[float, float]:
        """Return the RRU and the WRU since the last call."""
        reading = self.app.client.reading()
        self.app.client.reset()
        return reading.rru, reading.wru

    def delays(self) -> list[float]:
        """Return the seconds from each publish to each client that answers, in order."""
        return sorted(
            time - self._at[topic][number - 1]
            for (topic, number), times in self.seen.items()
            for time in times
        )

    def spread(self) -> float:
        """Return the most seconds from the first client that got a message to the last."""
        return max(max(times) - min(times) for times in self.seen.values())

    def _visit(self, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
        doorbells = [
            Doorbell(r["body"], int(r["attributes"]["SentTimestamp"]) / 1000) for r in records
        ]
        try:
            pushed: Pushed = self._pushing.push(0, doorbells, self.clock.now() + SENDING_SECONDS)
        except FairboxError:
            return {"batchItemFailures": [{"itemIdentifier": r["messageId"]} for r in records]}
        self.counts.update(frames=pushed.frames, out=pushed.put_out)
        return {"batchItemFailures": []}

    def _took(self, id_: str, data: bytes, end: float) -> None:
        """Take a frame as its client does."""
        for topic, after, upto, _ in parsed(data)["t"]:
            position, time, last = self._positions[id_, topic], end, upto
            if position < after:  # it asks, and is answered or told all
                self.counts["asked"] += 1
                time, last = end + ASKING_SECONDS, len(self._at[topic])
            for number in range(position + 1, last + 1):
                self.seen[topic, number].append(time)
            self._positions[id_, topic] = max(position, last)
