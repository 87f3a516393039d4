"""Worlds of one shard: pauses, outages, lost doorbells, killed visits; nothing stays for ever."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from fairbox import RetryPolicy, Subscription
from fairbox.dispatch.ports import TAKEN, Outcome

from tests.support.application import App

if TYPE_CHECKING:
    from fairbox.model.stored_messages import StoredMessage

HOUR = 3600
NAMES = "abcde"
ANSWERS = [
    Outcome("unreachable", "away"),
    Outcome("refused", "HTTP 500", fault="destination"),
    Outcome("refused", "no", fault="message"),
    Outcome("throttled", "slow", retry_after=5),
    Outcome("gone", "HTTP 410"),
]


class Killed(BaseException):
    """The process ends in the middle of a call."""


class World:
    """One world, by a seed."""

    def __init__(self, seed: int, *, lossy: bool) -> None:
        self.lossy = lossy
        self.rng = random.Random(seed)
        self.names = list(NAMES[: self.rng.choice([1, 2, 3, 5])])
        self.app = App(*self.names, retry=RetryPolicy(max_attempts=1000, cap=60))
        self.mood: dict[str, Outcome] = {}
        self.ids: set[str] = set()
        for name in self.names:
            self.watch(name)

    def watch(self, name: str) -> None:
        at = self.app.at(name)
        at.quick = self.rng.random() < 0.6

        def answer(_: StoredMessage) -> Outcome:
            if self.rng.random() < 0.002 * ("kill" in self.mood):
                raise Killed
            if name in self.mood and self.rng.random() < 0.9:
                return self.mood[name]
            return TAKEN

        at.answer = answer

    def step(self) -> None:
        app, rng = self.app, self.rng
        name = rng.choice(self.names)
        deed = rng.random()
        if deed < 0.3:
            delay = rng.choice([0, 0, 0, 2, 30, 1200])
            self.ids |= {r.id for r in app.add(rng.randrange(1, 30), delay=delay)}
        elif deed < 0.36:
            app.outbox.pause_subscription("orders", name)
        elif deed < 0.42:
            app.outbox.resume_subscription("orders", name)
        elif deed < 0.5:
            self.mood[name] = rng.choice(ANSWERS)
        elif deed < 0.58:
            self.mood.pop(name, None)
        elif deed < 0.62 and self.lossy:
            rng.choice([app.doorbells.now, app.doorbells.later]).clear()
        elif deed < 0.65 and self.lossy:
            app._relayed = app.records()[-1]["dynamodb"]["SequenceNumber"] if self.ids else None
        elif deed < 0.67 and self.lossy:
            self.mood["kill"] = TAKEN
        elif deed < 0.69 and len(self.names) > 1:
            app.outbox.remove_subscription("orders", name)
            app.outbox.add_subscription(Subscription("orders", name, f"sqs:orders-{name}"))
        self.work(rng.choice([1, 5, 20, 61, 300]))

    def work(self, seconds: int) -> None:
        app = self.app
        end = app.clock.now() + seconds
        while app.clock.now() < end:
            app.clock.advance(min(10, end - app.clock.now()))
            try:
                app.relay()
                app.mark()
                app.visit()
            except Killed:
                self.mood.pop("kill", None)
            if int(app.clock.now()) % 60 < 10:
                app.sweep()
                self.check_doorbells()

    def check_doorbells(self) -> None:
        """No doorbell multiplies: few name a message, and few ask for walks."""
        bells = [*self.app.doorbells.now, *self.app.doorbells.later]
        named = Counter(ref.id for bell in bells for ref in bell.refs)
        assert max(named.values(), default=0) <= len(self.names) + 1
        assert sum(not bell.refs for bell in bells) <= 10 * len(self.names)

    def end(self) -> None:
        self.mood.clear()
        for name in self.names:
            self.app.outbox.resume_subscription("orders", name)
        self.work(1800)
        for _ in range(2 if self.lossy else 0):
            self.app.repair()
            self.work(1800)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lossy", [False, True])
def test_whatever_happens_nothing_stays_outstanding(seed: int, lossy: bool) -> None:
    """Without losses within half an hour, the longest quiet period twice; else by repair."""
    world = World(seed, lossy=lossy)
    for _ in range(30):
        world.step()
    world.end()
    assert not world.app.lying()
