"""Destinations that fail, hang, throttle, want no more, and come back; pauses by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fairbox import Message, RetryPolicy
from fairbox.observability.metrics import OPEN_CIRCUITS, PAUSED_SUBSCRIPTIONS

from tests.e2e.sink import REFUSES, TAKES
from tests.e2e.stage import Stage, eventually
from tests.e2e.test_http_api import call

if TYPE_CHECKING:
    from fairbox import MessageRef

pytestmark = [pytest.mark.engine, pytest.mark.e2e]

PATIENT = RetryPolicy(max_attempts=10, base=0.05, cap=0.5)
THROTTLES = 429
GONE = 410
MESSAGES = 40
ASKED = 5
LEARNT = 2.5


def publish(stage: Stage, topic: str, count: int = MESSAGES) -> set[MessageRef]:
    return {stage.outbox.add(Message(topic=topic, body=b"%d" % n)) for n in range(count)}


def wait_taken(stage: Stage, topic: str, refs: set[MessageRef]) -> None:
    def missing() -> int:
        return len(refs - {taken.ref for taken in stage.sink.taken(topic)})

    eventually(lambda: not missing(), failing=lambda: f"{missing()} of {topic} are missing")


@pytest.mark.parametrize("how", ["fails", pytest.param("hangs", marks=pytest.mark.extended)])
def test_a_destination_that_takes_nothing_is_probed_and_gets_all_when_it_is_back(
    stage: Stage, how: str
) -> None:
    topic, queue = stage.topic(how, retry=PATIENT, shards=2), stage.queue()
    down = [True]
    stage.sink.script(topic, lambda _: REFUSES if down[0] else TAKES)
    if how == "hangs":
        stage.sink.hangs[topic] = 1.5
    stage.subscribe(
        topic, {"hook": stage.sink.url(topic), "queue": f"sqs:{queue.url}"}, timeout=1.0
    )
    refs = publish(stage, topic)
    queue.wait_for(refs)

    def circuit() -> str:
        return stage.outbox.topic(topic).status("hook").circuit

    eventually(lambda: circuit() == "open", failing=lambda: len(stage.sink.calls(topic)))
    status = stage.outbox.topic(topic).status("hook")
    assert ("no answer in 1 s" if how == "hangs" else "HTTP 500") in status.reason
    assert stage.outbox.topic(topic).status("queue").ready
    # it compares the version once a second
    eventually(
        lambda: stage.invoke("CountOutstanding")[OPEN_CIRCUITS] >= 1,
        failing=lambda: stage.outbox.topic(topic).status("hook"),
    )
    down[0] = False
    wait_taken(stage, topic, refs)
    eventually(lambda: circuit() == "closed", failing=circuit)
    assert list(stage.outbox.dead(topic)) == []
    assert max(queue.times().values()) == 1
    refused = [one for one in stage.sink.calls(topic) if one.status == REFUSES]
    assert len(refused) < MESSAGES, "while it was open there were probes only"
    stage.wait_recorded(topic, [(ref.id, "hook") for ref in refs])


@pytest.mark.extended  # waits; tests/unit/model/test_subscription_status.py has the rule
def test_a_receiver_that_wants_no_more_is_paused_until_somebody_resumes_it(stage: Stage) -> None:
    topic = stage.topic("gone", retry=PATIENT, shards=2)
    gone = [True]
    stage.sink.script(topic, lambda _: GONE if gone[0] else TAKES)
    stage.subscribe(topic, {"hook": stage.sink.url(topic)}, max_in_flight=1)
    refs = publish(stage, topic)
    eventually(
        lambda: stage.outbox.topic(topic).status("hook").paused,
        failing=lambda: stage.sink.calls(topic),
    )
    path = f"/topics/{topic}/subscriptions/hook/pause"
    (shown,) = (
        subscription
        for one in call(stage, "GET", "/topics")[2]["topics"]
        if one["name"] == topic
        for subscription in one["subscriptions"]
    )
    assert shown["pause_reason"].startswith("HTTP 410")
    assert stage.invoke("CountOutstanding")[PAUSED_SUBSCRIPTIONS] >= 1
    refused = len(stage.sink.calls(topic))
    assert refused <= 2, "others learn of it when they begin"
    gone[0] = False
    status, _, resumed = call(stage, "DELETE", path)
    assert (status, resumed["paused_at"]) == (200, None)
    wait_taken(stage, topic, refs)
    assert all(found.attempts == 1 for found in stage.deliveries(topic))
