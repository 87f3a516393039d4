"""Everything goes wrong at once: faults, repetitions, and a kill -9 of relay and database.

One flow, and what must hold after it. The database is durable; a proxy before it throttles,
leaves entries unprocessed, conflicts and loses answers; batches of streams and queues repeat.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, MessageRef, Throttled, Unavailable

from local.application import LocalApplication
from local.engines import DynamoDbLocal
from local.faults import FaultProxy, Faults
from local.triggers.attach import TriggerSettings
from tests.e2e.stage import BUSINESS_TABLE, Queue, Stage, eventually, hard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from local.workspace import Workspace
    from tests.e2e.sink import Sink

pytestmark = [pytest.mark.engine, pytest.mark.e2e, pytest.mark.timeout(600)]

PRODUCERS = 3
FEWEST = 400  # acknowledged messages; more where the machine is fast
SHARE = 0.06  # of each fault
FASTER_SCHEDULES = 20.0  # a minute takes 3 s


@dataclass
class Flow:
    """What the producers did: messages acknowledged by topic, and errors that they saw.

    `unsure` are ids of messages that a producer wrote again without knowing whether it had: only
    these may be there twice.
    """

    stage: Stage
    queue: Queue
    sent: dict[str, list[MessageRef]] = field(default_factory=dict)
    killed: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    unsure: set[str] = field(default_factory=set)
    injected: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self.sent.values()))


@pytest.fixture(scope="module")
def flow(
    assembly: Path, workspace: Workspace, sink: Sink, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flow]:
    """Run the flow once; it is over when every acknowledged message has arrived."""
    every = Faults(throttled=SHARE, conflicted=SHARE, unprocessed=SHARE, lost=SHARE / 2)
    proxies: list[FaultProxy] = []
    settings = TriggerSettings(repeat_share=0.2, speed=FASTER_SCHEDULES)
    with ExitStack() as stack:

        def faulty(endpoint: str) -> str:
            proxy = FaultProxy(endpoint, rng=random.Random(3))
            proxy.start()
            stack.callback(proxy.stop)
            proxies.append(proxy)
            return proxy.endpoint

        app = stack.enter_context(
            LocalApplication(
                assembly,
                workspace=workspace,
                durable=tmp_path_factory.mktemp("durable"),
                proxy=faulty,
                attach=hard(settings),
                rng=random.Random(5),
            )
        )
        stage = Stage(app, sink, workspace.log, engine=proxies[0].endpoint)
        flow = Flow(stage, stage.queue())
        for name in ("pushed", "hooked", "pulled"):
            flow.sent[stage.topic(name)] = []
        pushed, hooked, _ = flow.sent
        stage.subscribe(pushed, {"queue": f"sqs:{flow.queue.url}"})
        stage.subscribe(hooked, {"hook": sink.url(hooked), "queue": f"sqs:{flow.queue.url}"})
        proxies[0].set_faults("*", every)
        # a plain `add` whose answer is lost is written again, maybe after its delivery
        proxies[0].set_faults("PutItem", replace(every, lost=0))
        _run(flow)
        _wait_arrived(flow)
        flow.injected = proxies[0].injected
        proxies[0].clear()
        yield flow


def _run(flow: Flow) -> None:
    """Produce from a few threads while relay and database are killed."""
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
    flow.killed["relay"] += 1
    _wait_acknowledged(flow, FEWEST // 2)
    assert isinstance(app.dynamodb, DynamoDbLocal)
    app.dynamodb.kill()
    flow.killed["engine"] += 1
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
    eventually(lambda: flow.acknowledged >= number, failing=lambda: (number, flow.errors[-3:]))


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


def _wait_arrived(flow: Flow) -> None:
    """Wait until nothing of the pushed topics is outstanding, then for the ledger."""
    stage = flow.stage
    for topic in list(flow.sent)[:2]:
        eventually(
            lambda topic=topic: _left(stage, topic) == 0,  # type: ignore[misc] # its default
            failing=lambda topic=topic: (  # type: ignore[misc] # its default
                _left(stage, topic),
                stage.rows(topic),
            ),
            seconds=300,
        )


def _left(stage: Stage, topic: str) -> int:
    try:
        return stage.outbox.outstanding_count(topic)
    except (Throttled, Unavailable):
        return -1


def test_the_storm_was_one(flow: Flow) -> None:
    assert flow.killed == {"relay": 1, "engine": 1}
    assert flow.errors  # producers noticed that the database was away
    for fault in ("throttled", "conflicted", "unprocessed", "lost"):
        assert sum(n for (name, _), n in flow.injected.items() if name == fault) > 0, fault


def test_every_acknowledged_message_arrives(flow: Flow) -> None:
    pushed, hooked, _ = flow.sent
    flow.queue.wait_for(flow.sent[pushed] + flow.sent[hooked])
    assert {call.ref for call in flow.stage.sink.taken(hooked)} >= set(flow.sent[hooked])


def test_a_message_is_there_for_every_business_row_and_no_other(flow: Flow) -> None:
    pages = flow.stage.app.clients["dynamodb"].get_paginator("scan")
    rows = [row for page in pages.paginate(TableName=BUSINESS_TABLE) for row in page["Items"]]
    known = {ref.id: topic for topic, refs in flow.sent.items() for ref in refs}
    assert len(rows) > FEWEST // 10
    assert {row["id"]["S"]: row["topic"]["S"] for row in rows}.items() <= known.items()


def test_the_ledger_has_each_delivery_once(flow: Flow) -> None:
    pushed, hooked, pulled = flow.sent
    wanted = {pushed: ("queue",), hooked: ("queue", "hook"), pulled: ()}
    for topic, names in wanted.items():
        expected = [(ref.id, name) for ref in flow.sent[topic] for name in names]
        flow.stage.wait_recorded(topic, expected)
        found = [(d.id, d.subscription) for d in flow.stage.deliveries(topic)]
        sure = [place for place in found if place[0] not in flow.unsure]
        assert set(found) == set(expected)
        assert len(sure) == len(set(sure))


def test_counts_are_exact(flow: Flow) -> None:
    pushed, hooked, pulled = flow.sent
    for topic in flow.sent:
        flow.stage.wait_counted(topic)
    for topic in (pushed, hooked):
        flow.stage.wait_unlisted(topic)
    rows = flow.stage.rows(pulled)
    assert sum(row.outstanding for row in rows) == len(flow.sent[pulled])
    due = [ref for ref in flow.sent[pulled] if ref.due is not None]
    assert sum(row.later for row in rows) == len(due) > 0


def test_the_archive_tells_each_event_once(flow: Flow) -> None:
    for topic, refs in flow.sent.items():
        lines = flow.stage.archive(topic)
        added = [line["id"] for line in lines if line["event"] == "added"]
        assert set(added) == {ref.id for ref in refs}
        sure = [one for one in added if one not in flow.unsure]
        assert len(sure) == len(set(sure))
        assert not [line for line in lines if line["event"] in ("dead", "purged", "expired")]


def test_no_doorbell_was_given_up(flow: Flow) -> None:
    app = flow.stage.app
    for name, url in app.resources.items():
        if name.startswith("Doorbells") and "DeadLetters" in name:
            asked: dict[str, Any] = app.clients["sqs"].get_queue_attributes(
                QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"]
            )
            assert asked["Attributes"]["ApproximateNumberOfMessages"] == "0", name
