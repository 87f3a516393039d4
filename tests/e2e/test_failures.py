"""Destinations that refuse: what waits, what does not, what dies, and what keeps its order."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, RetryPolicy
from fairbox.observability.metrics import DEAD, DEAD_COUNT, FAILED, OUTSTANDING_COUNT

from tests.e2e.sink import REFUSES, TAKES
from tests.e2e.stage import Stage, eventually
from tests.support.archive_lines import check_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox import MessageRef

pytestmark = [pytest.mark.engine, pytest.mark.e2e]


def refusing(times: int) -> Callable[[MessageRef], int]:
    """Answer 500 so many times for each message, then take it."""
    seen: dict[MessageRef, int] = defaultdict(int)

    def answer(ref: MessageRef) -> int:
        seen[ref] += 1
        return REFUSES if seen[ref] <= times else TAKES

    return answer


def metric_lines(stage: Stage, function: str, topic: str) -> list[dict[str, Any]]:
    """Return a function's lines of a topic's figures, metrics or not."""
    log = stage.logs / f"{stage.function(function)}.log"
    lines = [json.loads(text) for text in log.read_text().splitlines() if '"service"' in text]
    return [line for line in lines if line.get("topic") == topic]


def test_a_subscription_that_fails_delays_itself_only(stage: Stage) -> None:
    topic, queue = stage.topic("flaky"), stage.queue()
    bus, event_queue = stage.bus()
    stage.sink.script(topic, refusing(3))
    hook = stage.sink.url(topic)
    stage.subscribe(topic, {"queue": f"sqs:{queue.url}", "bus": f"events:{bus}", "hook": hook})
    ref = stage.transact(Message(topic=topic, body=b'{"n": 1}', content_type="application/json"))

    queue.wait_for([ref])
    event_queue.wait_for([ref])
    eventually(lambda: len(stage.sink.calls(topic)) == 4, failing=lambda: stage.sink.calls(topic))
    stage.wait_recorded(topic, [(ref.id, name) for name in ("queue", "bus", "hook")])
    calls = stage.sink.calls(topic)
    assert [call.status for call in calls] == [REFUSES, REFUSES, REFUSES, TAKES]
    # the others had it before the second attempt, and have it once
    assert queue.read()[0].at < calls[1].at
    assert event_queue.read()[0].at < calls[1].at
    assert queue.times()[ref] == event_queue.times()[ref] == 1
    attempts = {d.subscription: d.attempts for d in stage.deliveries(topic)}
    assert attempts == {"queue": 1, "bus": 1, "hook": 4}
    stage.wait_unlisted(topic)

    failed = [line for line in stage.archive(topic) if line["event"] == "failed"]
    for line in failed:
        check_line(line)
    assert [line["attempt"] for line in failed] == [1, 2, 3]
    assert {(line["subscription"], line["destination"]) for line in failed} == {("hook", hook)}
    assert all("500" in line["reason"] for line in failed)


@pytest.mark.extended  # waits for seconds on the running application
def test_the_state_of_a_waiting_message_says_who_lacks_it_and_why(stage: Stage) -> None:
    slow = RetryPolicy(max_attempts=10, base=60, cap=60)
    topic, queue = stage.topic("waiting", retry=slow), stage.queue()
    stage.sink.script(topic, lambda _: REFUSES)
    stage.subscribe(topic, {"queue": f"sqs:{queue.url}", "hook": stage.sink.url(topic)})
    ref = stage.outbox.add(Message(topic=topic, body=b"held"))

    def attempts() -> int:
        stored = stage.outbox.find(ref)
        return 0 if stored is None else stored.state("hook").attempts

    eventually(lambda: attempts() == 1, failing=lambda: stage.outbox.find(ref))
    stored = stage.outbox.find(ref)
    assert stored is not None
    assert stored.pending == frozenset({"hook"})
    (failure,) = stored.state("hook").history
    assert (failure.attempt, "HTTP 500: not now" in failure.error) == (1, True)
    assert stored.state("hook").due >= failure.at + 59_000
    assert stage.outbox.get(ref) == stored.message
    stage.wait_recorded(topic, [(ref.id, "queue")])
    stage.outbox.cancel([ref])
    eventually(
        lambda: [line["event"] for line in stage.archive(topic)].count("cancelled") == 1,
        failing=lambda: stage.archive(topic),
    )
    assert len(stage.sink.calls(topic)) == 1


@pytest.mark.extended  # waits for seconds on the running application
def test_what_never_recovers_dies_with_reason_and_history(stage: Stage) -> None:
    short = RetryPolicy(max_attempts=3, base=0.05, cap=0.2)
    topic, queue = stage.topic("doomed", retry=short), stage.queue()
    stage.sink.script(topic, lambda _: REFUSES)
    stage.subscribe(topic, {"queue": f"sqs:{queue.url}", "hook": stage.sink.url(topic)})
    ref = stage.outbox.add(Message(topic=topic, body=b"doomed", partition_key="k"))

    queue.wait_for([ref])
    eventually(
        lambda: bool(list(stage.outbox.dead(topic))), failing=lambda: stage.sink.calls(topic)
    )
    (letter,) = stage.outbox.dead(topic)
    assert (letter.ref, letter.subscriptions) == (ref, frozenset({"hook"}))
    assert letter.message is not None
    assert (letter.message.body, letter.message.partition_key) == (b"doomed", "k")
    assert "HTTP 500: not now" in letter.reason
    assert letter.stored is not None
    history = letter.stored.state("hook").history
    assert [failure.attempt for failure in history] == [1, 2, 3]
    assert all("HTTP 500" in failure.error for failure in history)
    assert len(stage.sink.calls(topic)) == 3
    assert queue.times()[ref] == 1
    eventually(
        lambda: stage.outbox.outstanding_count(topic) == 0,
        failing=lambda: stage.outbox.find(ref),
    )
    stage.wait_recorded(topic, [(ref.id, "queue")])
    stage.wait_counted(topic)
    eventually(lambda: sum(row.dead for row in stage.rows(topic)) == 1, failing=stage.outbox.listed)

    events = [line["event"] for line in stage.archive(topic)]
    assert sorted(events) == ["added", "dead", "delivered", "failed", "failed", "failed"]
    (told,) = (line for line in stage.archive(topic) if line["event"] == "dead")
    check_line(told)
    assert (told["subscription"], told["attempt"]) == ("hook", 3)
    assert "500" in told["reason"]

    # what alarms look at: the death as it happened, and the dead letters that are there
    written = [
        line for line in metric_lines(stage, "DeliverShard", topic) if "subscription" in line
    ]
    assert sum(line.get(DEAD, 0) for line in written) == 1
    assert sum(line.get(FAILED, 0) for line in written) == 3
    assert stage.invoke("CountOutstanding")[DEAD_COUNT] >= 1
    counted = metric_lines(stage, "CountOutstanding", topic)[-1]
    assert (counted[DEAD_COUNT], counted[OUTSTANDING_COUNT]) == (1, 0)


@pytest.mark.extended  # waits for seconds on the running application
def test_an_ordered_topic_keeps_first_deliveries_in_order_through_failures(stage: Stage) -> None:
    patient = RetryPolicy(max_attempts=100, base=0.05, cap=0.2)
    topic = stage.topic("ordered", ordering="key", retry=patient, shards=2)
    rng = random.Random(7)
    stage.sink.script(topic, lambda _: REFUSES if rng.random() < 0.08 else TAKES)
    stage.subscribe(topic, {"hook": stage.sink.url(topic)})
    keys = {
        stage.outbox.add(Message(topic=topic, body=b"%d" % n, partition_key=f"key-{n % 5}")): n % 5
        for n in range(100)
    }
    eventually(
        lambda: {call.ref for call in stage.sink.taken(topic)} == set(keys),
        failing=lambda: f"{len(set(keys) - {c.ref for c in stage.sink.taken(topic)})} are missing",
    )
    assert any(call.status == REFUSES for call in stage.sink.calls(topic))
    first: dict[int, list[str]] = defaultdict(list)
    for call in stage.sink.taken(topic):
        if call.ref.id not in first[keys[call.ref]]:
            first[keys[call.ref]].append(call.ref.id)
    assert [len(ids) for ids in first.values()] == [20] * 5
    for ids in first.values():
        assert ids == sorted(ids)
    stage.wait_recorded(topic, [(ref.id, "hook") for ref in keys])
    stage.wait_counted(topic)


def test_a_firehose_that_throttles_everything_stalls_nothing_and_loses_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, queue = stage.topic("throttled"), stage.queue()
    stage.subscribe(topic, {"queue": f"sqs:{queue.url}"})
    monkeypatch.setattr(stage.app.firehose, "throttle", range)
    refs = stage.outbox.add_many([Message(topic=topic, body=b"%d" % n) for n in range(50)])
    queue.wait_for(refs)
    stage.wait_recorded(topic, [(ref.id, "queue") for ref in refs])
    stage.wait_counted(topic)
    told = {(ref.id, event) for ref in refs for event in ("added", "delivered")}
    eventually(
        lambda: {(line["id"], line["event"]) for line in stage.archive(topic)} == told,
        failing=lambda: len(stage.archive(topic)),
    )
