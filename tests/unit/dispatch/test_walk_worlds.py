"""Worlds of one shard: pauses, outages, failed writes, lost doorbells; nothing stays for ever."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from fairbox import RetryPolicy, Subscription, Throttled, Unavailable, UnknownSubscription
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.testing import Fault

from tests.support.application import App

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.tables.stored_messages import StoredMessage

HOUR = 3600
NAMES = "abcde"
ANSWERS = [
    Outcome("unreachable", "away"),
    Outcome("refused", "HTTP 500", fault="destination"),
    Outcome("refused", "no", fault="message"),
    Outcome("throttled", "slow", retry_after=5),
    Outcome("gone", "HTTP 410"),
]


def until_written(deed: Callable[..., object], *given: object, **named: object) -> None:
    """Do it again while faults keep it from being written."""
    while True:
        try:
            deed(*given, **named)
        except (Throttled, Unavailable):
            continue
        except UnknownSubscription:
            pass  # an earlier try was written
        return


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
            until_written(app.add, rng.randrange(1, 30), delay=delay)
        elif deed < 0.36:
            until_written(app.outbox.pause_subscription, "orders", name)
        elif deed < 0.42:
            until_written(app.outbox.resume_subscription, "orders", name)
        elif deed < 0.44 and len(self.names) > 1:
            until_written(app.outbox.remove_subscription, "orders", name)
            again = Subscription("orders", name, f"sqs:http://q/orders-{name}")
            until_written(app.outbox.add_subscription, again)
        else:
            self.fail(name)
        self.work(rng.choice([1, 5, 20, 61, 300]))

    def fail(self, name: str) -> None:
        """Let a destination, the table, or a process fail; or end a destination's failure."""
        app, rng = self.app, self.rng
        fault = rng.random()
        if fault < 0.2:
            self.mood[name] = rng.choice(ANSWERS)
        elif fault < 0.4:
            self.mood.pop(name, None)
        elif fault < 0.5:
            self.fail_writes()
        elif fault < 0.56 and self.lossy:
            rng.choice([app.doorbells.now, app.doorbells.later]).clear()
        elif fault < 0.62 and self.lossy and (records := app.records()):
            app._relayed = records[-1]["dynamodb"]["SequenceNumber"]
        elif fault < 0.66 and self.lossy:
            self.mood["kill"] = TAKEN

    def fail_writes(self) -> None:
        """Let some of the next writes fail, among them all that write one outcome."""
        for operation in ("update_item", "delete_item", "batch_write_item", "transact_write_items"):
            some = self.rng.choices([Fault.THROTTLED, None], [4, 1], k=self.rng.choice([2, 20, 60]))
            self.app.faulty.next(operation, *some)

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
            except (Throttled, Unavailable):
                continue  # what failed comes again
            if int(app.clock.now()) % 60 < 10:
                app.sweep()
                self.check_doorbells()

    def check_doorbells(self) -> None:
        """No doorbell multiplies: few name a message, and few ask for walks."""
        bells = [*self.app.doorbells.now, *self.app.doorbells.later]
        named = Counter(ref.id for bell in bells for ref in bell.refs)
        assert max(named.values(), default=0) <= len(self.names) + 4
        assert sum(not bell.refs for bell in bells) <= 10 * len(self.names)

    def end(self) -> None:
        self.mood.clear()
        for name in self.names:
            until_written(self.app.outbox.resume_subscription, "orders", name)
        self.work(1800)
        for _ in range(2 if self.lossy else 0):
            self.app.repair()
            self.work(1800)


@pytest.mark.parametrize(
    ("seed", "lossy"),
    [(seed, lossy) for lossy in (False, True) for seed in (0, 1, 4, 17, 25, 62, 71)],
)
def test_whatever_happens_nothing_stays_outstanding(seed: int, lossy: bool) -> None:
    """Without losses within half an hour, the longest quiet period twice; else by repair."""
    world = World(seed, lossy=lossy)
    for _ in range(30):
        world.step()
    world.end()
    assert not world.app.lying()
