"""Everything goes wrong at once: faults, repetitions, and the end of relay and database.

One flow on an application of its own. The database is durable; a proxy before it throttles, leaves
entries unprocessed, conflicts and loses answers; batches of streams and queues repeat. Most of its
time it waits, as for doorbells that a dead database kept from being answered, so that it runs
beside the other tests.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fairbox import Message, MessageRef, Throttled, Unavailable

from local.application import LocalApplication
from local.engines.servers import DynamoDbLocal
from local.faults.proxy import FaultProxy, Faults
from local.triggers.attach import TriggerSettings
from tests.e2e.sink import Sink
from tests.e2e.stage import Queue, Stage, eventually, hard

if TYPE_CHECKING:
    from pathlib import Path

    from local.workspace import Workspace

PRODUCERS = 3
FEWEST = 400  # acknowledged messages; more where the machine is fast
SHARE = 0.06  # of each fault
FASTER_SCHEDULES = 20.0  # a minute takes 3 s


@dataclass
class Flow:
    """The producers' record: messages acknowledged by topic, and the errors that they saw.

    `unsure` are ids of messages that a producer wrote again without knowing whether it had: only
    these may be there twice. The closing of `stack` ends the application.
    """

    stage: Stage = field(init=False)
    queue: Queue = field(init=False)
    pushed: str = ""
    hooked: str = ""
    pulled: str = ""
    sent: dict[str, list[MessageRef]] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    unsure: set[str] = field(default_factory=set)
    injected: Counter[tuple[str, str]] = field(default_factory=Counter)
    ending: threading.Event = field(default_factory=threading.Event)
    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self.sent.values()))


def run(assembly: Path, workspace: Workspace, folder: Path, flow: Flow) -> None:
    """Run the flow; it is over when nothing of the pushed topics is outstanding.

    Args:
        assembly: of the application.
        workspace: of the application.
        folder: for the tables.
        flow: is told what happens.
    """
    every = Faults(throttled=SHARE, conflicted=SHARE, unprocessed=SHARE, lost=SHARE / 2)
    proxies: list[FaultProxy] = []

    def faulty(endpoint: str) -> str:
        proxy = FaultProxy(endpoint, rng=random.Random(3))
        proxy.start()
        flow.stack.callback(proxy.stop)
        proxies.append(proxy)
        return proxy.endpoint

    sink = Sink()
    sink.start()
    flow.stack.callback(sink.stop)
    app = flow.stack.enter_context(
        LocalApplication(
            assembly,
            workspace=workspace,
            durable=folder,
            proxy=faulty,
            attach=hard(TriggerSettings(repeat_share=0.2, speed=FASTER_SCHEDULES)),
            rng=random.Random(5),
        )
    )
    stage = flow.stage = Stage(app, sink, workspace.log, engine=proxies[0].endpoint)
    flow.queue = stage.queue()
    flow.pushed, flow.hooked, flow.pulled = (stage.topic(n) for n in ("pushed", "hooked", "pulled"))
    flow.sent = {name: [] for name in (flow.pushed, flow.hooked, flow.pulled)}
    stage.subscribe(flow.pushed, {"queue": f"sqs:{flow.queue.url}"})
    stage.subscribe(flow.hooked, {"hook": sink.url(flow.hooked), "queue": f"sqs:{flow.queue.url}"})
    proxies[0].set_faults("*", every)
    # a plain `add` whose answer is lost is written again, maybe after its delivery
    proxies[0].set_faults("PutItem", replace(every, lost=0))
    _produce_through_kills(flow)
    for topic in (flow.pushed, flow.hooked):
        _wait_empty(flow, topic)
    flow.injected = proxies[0].injected
    proxies[0].clear()


def _wait_empty(flow: Flow, topic: str) -> None:
    stage = flow.stage
    eventually(
        lambda: flow.ending.is_set() or _left(stage, topic) == 0,
        failing=lambda: (stage.left(topic), stage.rows(topic)),
        seconds=300,
    )


def _produce_through_kills(flow: Flow) -> None:
    """Produce from a few threads while the relay is killed and the database restarted."""
    stopping = threading.Event()
    threads = [
        threading.Thread(target=_produce, args=(flow, number, stopping))
        for number in range(PRODUCERS)
    ]
    for thread in threads:
        thread.start()
    app = flow.stage.app
    _wait_acknowledged(flow, FEWEST // 4)
    eventually(lambda: app.invoker.kill(flow.stage.function("Relay")) > 0, failing=app.pids)
    flow.ended["relay"] += 1
    _wait_acknowledged(flow, FEWEST // 2)
    assert isinstance(app.dynamodb, DynamoDbLocal)
    app.dynamodb.stop()  # killed, it would lose what it has just acknowledged
    flow.ended["engine"] += 1
    before = flow.acknowledged
    time.sleep(2)
    assert flow.acknowledged <= before + PRODUCERS  # nobody is answered
    app.dynamodb.restart()
    _wait_acknowledged(flow, FEWEST)
    stopping.set()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)


def _wait_acknowledged(flow: Flow, number: int) -> None:
    eventually(
        lambda: flow.ending.is_set() or flow.acknowledged >= number,
        failing=lambda: (flow.acknowledged, flow.errors[-3:]),
    )


def _produce(flow: Flow, number: int, stopping: threading.Event) -> None:
    """Write until told to stop; what is not known to be written is repeated until it is."""
    topics = list(flow.sent)
    count = 0
    while not stopping.is_set():
        count += 1
        topic = topics[count % len(topics)]
        delay = 2.0 if count % 10 == 0 else 0.0
        message = Message(topic=topic, body=b"%d:%d" % (number, count), delay=delay)
        while True:
            try:
                ref = _publish(flow.stage, message, transact=count % 3 == 0)
            except (Throttled, Unavailable) as error:
                flow.errors.append(str(error))
                flow.unsure.add(message.id)
                time.sleep(0.2)
            else:
                flow.sent[topic].append(ref)
                break


def _publish(stage: Stage, message: Message, *, transact: bool) -> MessageRef:
    if transact:
        return stage.transact(message, token=message.id)
    return stage.outbox.add(message)


def _left(stage: Stage, topic: str) -> int:
    try:
        return stage.outbox.outstanding_count(topic)
    except (Throttled, Unavailable):
        return -1
