"""Competing consumers lose few claims, and hand out all that is ready; exact, by a seed."""

from __future__ import annotations

import random

import pytest
from fairbox import Message, Outbox, Queue, Topic
from fairbox.testing.application import DELIVERIES, OUTBOX, MemoryApplication

from benchmarks.queue_contention import Contention, Stage, _Client


@pytest.mark.parametrize(
    ("seed", "most"), [(1, 0.05), pytest.param(2, 0.06, marks=pytest.mark.extended)]
)
def test_sixteen_consumers_of_eight_shards_lose_few_claims(seed: int, most: float) -> None:
    done = Contention(16, messages=4000, backlog=8000, shards=8, seed=seed).run()
    assert done.lost_share <= most
    assert done.wru / done.messages <= 3.2
    assert done.rru / done.messages <= 0.2


def test_sixteen_consumers_of_one_shard_write_little() -> None:
    done = Contention(16, messages=3000, backlog=6000, shards=1).run()
    assert done.wru / done.messages <= 3.5


def test_a_consumer_by_itself_takes_messages_in_order_and_loses_none() -> None:
    done = Contention(1, messages=500, backlog=1000, shards=1).run()
    assert (done.lost_share, done.passed_over) == (0, 0)
    assert done.wru / done.messages <= 3.25


@pytest.mark.parametrize("shards", [1, 4])
def test_as_many_receives_as_messages_hand_out_all_that_are_ready(shards: int) -> None:
    for seed in range(5):
        app = MemoryApplication(rng=random.Random(seed))
        app.outbox.create_topic(Topic("jobs", shards=shards))
        app.queue.receive("jobs")
        ready = 10
        app.queue.send_many(
            [Message(topic="jobs", body=b"x", id=app.ids.next()) for _ in range(ready)]
        )
        app.clock.advance(3)
        stage = Stage(app.clock, random.Random(seed))
        client = _Client(app.client, stage)
        received: list[str] = []

        def consume(number: int) -> None:
            outbox = Outbox(
                client,  # noqa: B023 - runs within the loop
                table=OUTBOX,
                deliveries_table=DELIVERIES,
                clock=app.clock,  # noqa: B023
                rng=random.Random(number),
            )
            got = Queue.over(outbox).receive("jobs", 1, 600)
            received.extend(one.message.id for one in got)  # noqa: B023

        for number in range(ready):
            stage.enter(lambda number=number: consume(number))  # type: ignore[misc]
        stage.run()
        assert len(received) == len(set(received)) == ready
