"""Ordered topics: healthy keys beside waiting ones, hot keys, and many keys in flight.

Real code in virtual time: each call takes 5 ms, and one consumer receives and acknowledges.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fairbox import Message, RetryPolicy, Topic

from benchmarks.figures import Figure
from benchmarks.queue_timeline import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox import Received

TOPIC: Final = "jobs"
_OTHER: Final = "others"
_BODY: Final = random.Random(7).randbytes(800)  # does not compress: an item of nearly 1 KB
_HEALTHY_KEYS: Final = 400
_AT_A_CALL: Final = 10
_LONG: Final = 12 * 3_600.0
_SETTLED_SECONDS: Final = 3.0
_SENT_AT_ONCE: Final = 1_000


def figures(
    *,
    waiting: Sequence[int] = (0, 64, 1_000, 5_000),
    in_flight: Sequence[int] = (10, 64, 300, 1_000),
    messages: int = 1_000,
) -> list[Figure]:
    """Return the figures of ordered topics with one shard, and of one with eight.

    Args:
        waiting: numbers of keys that wait after a failure, beside which 400 others are worked off.
        in_flight: numbers of keys that are held meanwhile.
        messages: number of messages for each figure.
    """
    found: list[Figure] = []
    for count in waiting:
        stage = _Keys()
        stage.fail(count)
        found += stage.work(f"beside_{count}_waiting", messages)
    for count in in_flight:
        stage = _Keys()
        stage.hold(count - _AT_A_CALL)
        found += stage.work(f"beside_{count}_in_flight", messages)
    for per_key in (1, 10, 100):
        stage = _Keys()
        stage.send(lambda _: "hot", messages)
        found += stage.work(f"hot_key.{per_key}_per_key", messages, per_key=per_key, sent=messages)
    for name, first in (("before", True), ("among", False)):
        stage = _Keys()
        stage.send(partial(_mixed, messages=messages, first=first), 2 * messages)
        found += stage.work(f"hot_key_{name}_400", messages, per_key=10, sent=2 * messages)
    return [*found, *_one_beside(300)]


def _mixed(number: int, messages: int, *, first: bool) -> str:
    """Return a key: half of the messages are of one, before the others or among them."""
    hot = number < messages if first else number % 2 == 0
    return "hot" if hot else f"healthy-{number % _HEALTHY_KEYS}"


class _Keys:
    """A topic of one shard or more, and its metered consumer."""

    def __init__(self, shards: int = 1) -> None:
        self.stage = Stage()
        self.stage.application.outbox.create_topic(
            Topic(TOPIC, shards=shards, ordering="key", retry=RetryPolicy(max_attempts=1_000))
        )
        self._ids = self.stage.application.ids
        self.queue = self.stage.queue
        self.queue.receive(TOPIC)

    def send(self, key: Callable[[int], str], count: int) -> None:
        """Send messages with the keys of their numbers."""
        made = [
            Message(topic=TOPIC, body=_BODY, partition_key=key(n), id=self._ids.next())
            for n in range(count)
        ]
        for start in range(0, count, _SENT_AT_ONCE):
            self.stage.application.queue.send_many(made[start : start + _SENT_AT_ONCE])

    def receive(self, timeout: float, wanted: int = 100, **more: Any) -> list[Received]:
        return self.queue.receive(TOPIC, wanted, timeout, **more)

    def hold(self, count: int) -> None:
        """Let a consumer hold so many keys for long."""
        self.send("held-{}".format, count)
        self.stage.clock.advance(_SETTLED_SECONDS)
        while count > 0:
            count -= len(self.receive(_LONG))

    def fail(self, count: int) -> None:
        """Let so many keys wait for long."""
        self.send("waiting-{}".format, count)
        self.stage.clock.advance(_SETTLED_SECONDS)
        while count > 0:
            for received in self.receive(_LONG):
                self.queue.nack(received.receipt, _LONG, "why")
                count -= 1

    def work(self, name: str, messages: int, *, per_key: int = 1, sent: int = 0) -> list[Figure]:
        """Work off messages of 400 keys, ten a call; with `sent`, those that were sent."""
        if not sent:
            self.send(lambda n: f"healthy-{n % _HEALTHY_KEYS}", messages)
        self.stage.clock.advance(_SETTLED_SECONDS)
        for _ in range(2):
            self.queue.ack(r.receipt for r in self.receive(30, _AT_A_CALL))
        self.stage.reset()
        began, done, empty = self.stage.clock.now(), Counter[bool](), 0
        wanted = max(_AT_A_CALL, per_key)
        while done.total() < messages // 2 and empty < 1_000:
            received = self.receive(30, wanted, max_per_key=per_key)
            self.queue.ack(r.receipt for r in received)
            done.update(r.message.partition_key == "hot" for r in received)
            empty = 0 if received else empty + 1
        seconds, total = self.stage.clock.now() - began, max(done.total(), 1)
        rates = [
            Figure(f"queue_keys.messages_a_second.{name}{kind}", "messages/s", done[hot] / seconds)
            for hot, kind in ((True, ".hot"), (False, ""))
            if done[hot] or not hot
        ]
        return [
            *rates,
            Figure(f"queue_keys.wru_per_message.{name}", "WRU", 1 + self.stage.wru / total),
            Figure(f"queue_keys.rru_per_message.{name}", "RRU", self.stage.rru / total),
        ]


def _one_beside(count: int) -> list[Figure]:
    """Return the reads and receives until the one message is found beside so many held ones."""
    found = []
    for shards in (1, 8):
        keys = _Keys(shards)
        keys.stage.application.outbox.create_topic(Topic(_OTHER))
        keys.send("held-{}".format, count)
        keys.stage.clock.advance(_SETTLED_SECONDS)
        held = 0
        while held < count:
            held += len(keys.receive(_LONG, _AT_A_CALL))
        keys.send("one-{}".format, 1)
        keys.stage.clock.advance(1)
        keys.queue.receive(_OTHER)  # reads the copy of the topics, which serves for a while
        keys.stage.reset()
        receives = 1
        while not keys.receive(_LONG, _AT_A_CALL):
            receives += 1
        found += [
            Figure(f"queue_keys.rru_{count}_in_flight.{shards}_shards", "RRU", keys.stage.rru),
            Figure(f"queue_keys.receives_{count}_in_flight.{shards}_shards", "receives", receives),
        ]
    return found
