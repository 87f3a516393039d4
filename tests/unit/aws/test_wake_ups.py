"""Doorbells for later that merge: no wake-up is lost, whichever clocks ring and pass on."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from fairbox.aws.sqs_queues import SqsDoorbells, decode
from fairbox.dispatch.ports import Doorbell
from fairbox.model.clock import milliseconds
from fairbox.testing import ManualClock
from fairbox.testing.doorbell_queues import DoorbellQueues
from fairbox.testing.memory_sqs import SqsFaults

SKEW = 0.49
LATEST = 6.0


class Skewed:
    def __init__(self, clock: ManualClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self.sleep = clock.sleep

    def now(self) -> float:
        return self._clock.now() + self._seconds


@dataclass
class Bells:
    """Processes that ring, pass on and visit; each event has a number, so that order is known."""

    seed: int
    rung: list[tuple[int, Doorbell]] = field(default_factory=list)
    visits: list[tuple[int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.clock = ManualClock(1_760_000_000 + self.rng.random())
        self.queues = DoorbellQueues(self.clock)
        self.queues.sqs.faults = SqsFaults(duplicates=0.1, disorder=0.2)
        clocks = [Skewed(self.clock, seconds) for seconds in (-SKEW, SKEW)]
        self.processes: list[tuple[Skewed, SqsDoorbells]] = [(c, self.queues.of(c)) for c in clocks]
        self.events = 0

    def run(self, rounds: int) -> None:
        """Ring a few times within two seconds, and then not for a while."""
        for _ in range(rounds):
            times = self.rng.choices(range(15), k=self.rng.randint(2, 4))
            for step in range(85):
                for _ in range(times.count(step)):
                    self.ring()
                self.clock.advance(0.1)
                self.answer()

    def ring(self) -> None:
        clock, doorbells = self.rng.choice(self.processes)
        ahead = self.rng.choice([0.001, 0.05, 0.2, 1.0])
        doorbell = Doorbell(
            "orders",
            0,
            0,
            not_before=milliseconds(clock) + round(ahead * 1000),
        )
        self.events += 1
        self.rung.append((self.events, doorbell))
        doorbells.ring([doorbell])

    def answer(self) -> None:
        for trigger in (self.queues.forwards, self.queues.visits):
            while records := trigger.receive():
                for record in records:
                    doorbell = decode(record["body"])
                    if trigger is self.queues.visits:
                        self.events += 1
                        self.visits.append((self.events, self.clock.now()))
                    else:
                        self.rng.choice(self.processes)[1].pass_on(doorbell)
                trigger.settle(records, {"batchItemFailures": []})

    def lost(self) -> list[Doorbell]:
        """Return the doorbells after which no visit came that was neither early nor late."""
        return [
            doorbell
            for number, doorbell in self.rung
            if not any(
                later > number and -2 * SKEW <= at - doorbell.not_before / 1000 <= LATEST
                for later, at in self.visits
            )
        ]


@pytest.mark.parametrize("seed", range(12))
def test_every_doorbell_is_followed_by_a_visit_in_its_time(
    seed: int,
) -> None:
    bells = Bells(seed)
    bells.run(20)
    assert not bells.lost()
    assert len(bells.visits) < len(bells.rung)


def test_a_doorbell_for_now_is_its_own_and_one_that_names_messages_too() -> None:
    queues = DoorbellQueues(ManualClock())
    queues.ring([Doorbell("orders", 0, 1)] * 3)
    assert len(queues.now) == 3
