"""A fan-out whose acks come through the queue while the functions of batches are killed.

Several producers ack the items of a nested batch in any order, with repeats, garbage between them,
while `ack_batches` and `cascade_batches` get SIGKILL again and again. One item is held back until
all others are done, to see that nothing is announced early.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairbox import Batches, Subscription, Topic
from fairbox.batches.ack_messages import pack
from fairbox.batches.models import COMPLETED_TOPIC

from tests.e2e.stage import Queue, Stage, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairbox import Progress
    from fairbox.model.clock import Clock

GROUPS = 130
GROUP_SIZE = 30
ITEMS = GROUPS * GROUP_SIZE
FAILED = 50
PRODUCERS = 4
REPEATED = 0.2
KILLS = 4
HURRY_SECONDS = 5
"""After which messages of a killed window come again; deployed, six times the time limit."""
GARBAGE = (
    "no json",
    '{"acks": 7}',
    '{"acks": ["no id", "0198f7a2-0000-7000-8000-00000000dead:0:0"]}',
)


@dataclass
class Fanout:
    """The events of a fan-out.

    Attributes:
        batch, parent: the nested batch of many items, and the one of two items that it settles.
        early: messages that were there while an item was pending.
        before_last: the progress when all but one item were done.
        killed: processes killed, by function.
        failed_messages: messages that came again because a window was cut off.
    """

    stage: Stage
    batches: Batches
    completed: Queue
    batch: str = ""
    parent: str = ""
    early: list[str] = field(default_factory=list)
    before_last: Progress | None = None
    killed: Counter[str] = field(default_factory=Counter)
    failed_messages: int = 0

    def announced(self) -> list[dict[str, Any]]:
        """Return the completion messages that arrived for the two batches, repeats too."""
        bodies = [json.loads(arrived.body) for arrived in self.completed.read()]
        return [body for body in bodies if body["id"] in (self.batch, self.parent)]


def batches_of(stage: Stage, clock: Clock | None = None) -> Batches:
    """Return the library's batches over the stage's tables."""
    env = stage.app.env
    return Batches(
        stage.dynamodb,
        table=env["FAIRBOX_BATCHES_TABLE"],
        outbox_table=env["FAIRBOX_OUTBOX_TABLE"],
        deliveries_table=env["FAIRBOX_DELIVERIES_TABLE"],
        clock=clock,
    )


def listening(stage: Stage, topic: str) -> Queue:
    """Return a queue that gets what is published on a topic of batches."""
    queue = stage.queue()
    stage.outbox.create_topic(Topic(topic))
    stage.outbox.add_subscription(Subscription(topic, "test", f"sqs:{queue.url}"))
    return queue


def run(stage: Stage) -> Fanout:
    """Run the fan-out to the announcement of both batches."""
    fanout = Fanout(stage, batches_of(stage), listening(stage, COMPLETED_TOPIC))
    url = stage.app.env["FAIRBOX_ACK_QUEUE_URL"]
    hurry = {"VisibilityTimeout": str(HURRY_SECONDS)}
    stage.app.clients["sqs"].set_queue_attributes(QueueUrl=url, Attributes=hurry)
    items = _open(fanout)
    failed, *rest = items[:FAILED], *items[FAILED:]
    last = rest.pop()
    stopping = threading.Event()
    killers = [
        threading.Thread(target=_kill, args=(fanout, name, stopping))
        for name in ("AckBatches", "CascadeBatches")
    ]
    producers = [
        threading.Thread(target=_produce, args=(stage, url, rest[n::PRODUCERS], n))
        for n in range(PRODUCERS)
    ]
    for thread in (*killers, *producers):
        thread.start()
    fanout.batches.fail(failed, "refused")
    fanout.batches.seal(fanout.batch)
    _wait_for_all_but_one(fanout)
    stopping.set()
    for thread in (*killers, *producers):
        thread.join(60)
    _send(stage, url, [last, last])
    eventually(lambda: len(fanout.announced()) > 1, failing=fanout.announced)
    fanout.failed_messages = sum(
        getattr(trigger, "counts", Counter())["failed_messages"]
        for trigger in stage.app.triggers
        if "AckQueue" in trigger.name
    )
    return fanout


def _open(fanout: Fanout) -> list[str]:
    """Open both batches; return the items of the nested one, in no order."""
    batches = fanout.batches
    fanout.parent = batches.open(user_key="catalog").id
    batches.add(fanout.parent, 2, request_id="r")
    batches.ack([f"{fanout.parent}:0:1"])
    batches.seal(fanout.parent)
    nested = batches.open(user_key="pages", metadata={"run": 7}, parent_item=f"{fanout.parent}:0:0")
    fanout.batch = nested.id
    groups = batches.add(nested.id, ITEMS, request_id="r", group_size=GROUP_SIZE)
    items = [item for group in groups for item in group.item_ids()]
    random.Random(7).shuffle(items)
    return items


def _wait_for_all_but_one(fanout: Fanout) -> None:
    def done() -> bool:
        fanout.early += [body["id"] for body in fanout.announced()]
        fanout.before_last = fanout.batches.progress(fanout.batch)
        return fanout.before_last.pending == 1

    eventually(done, failing=lambda: (fanout.before_last, fanout.killed))
    time.sleep(2)  # what is wrong with it would be announced by then
    done()


def _produce(stage: Stage, url: str, items: Sequence[str], number: int) -> None:
    """Send every item at least once, some twice, in messages of any size."""
    rng = random.Random(number)
    for chunk in _chunks([*items, *rng.sample(items, int(len(items) * REPEATED))], rng):
        _send(stage, url, chunk)
    for body in GARBAGE:
        stage.app.clients["sqs"].send_message(QueueUrl=url, MessageBody=body)


def _chunks(items: Sequence[str], rng: random.Random) -> Iterator[Sequence[str]]:
    start = 0
    while start < len(items):
        size = rng.choice((1, 5, 30, 60))
        yield items[start : start + size]
        start += size


def _send(stage: Stage, url: str, ids: Sequence[str]) -> None:
    for body in pack(ids):
        stage.app.clients["sqs"].send_message(QueueUrl=url, MessageBody=body)


def _kill(fanout: Fanout, name: str, stopping: threading.Event) -> None:
    """Kill the function's busy processes at random moments, so many times."""
    function = fanout.stage.function(name)
    pool, rng = fanout.stage.app.invoker.pool(function), random.Random(name)
    while fanout.killed[name] < KILLS and not stopping.wait(0.005):
        if not pool._busy:
            continue
        stopping.wait(rng.uniform(0.1, 1.2))  # a start takes most of that
        if pool._busy and pool.kill():
            fanout.killed[name] += 1
            stopping.wait(0.5)
