"""The account after a storm of faults, repetitions and killed processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.stage import BUSINESS_TABLE
from tests.e2e.storm import FEWEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from tests.e2e.storm import Flow

# the simulation has every fault of it
pytestmark = [pytest.mark.engine, pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.extended]


@pytest.fixture(scope="module")
def flow(storm: Future[Flow]) -> Iterator[Flow]:
    flow = storm.result(timeout=590)
    with flow.stack:
        yield flow


def test_the_storm_was_one(flow: Flow) -> None:
    assert flow.ended == {"relay": 1, "engine": 1}
    for fault in ("throttled", "conflicted", "unprocessed", "lost"):
        assert sum(n for (name, _), n in flow.injected.items() if name == fault) > 0, fault


def test_every_acknowledged_message_arrives(flow: Flow) -> None:
    pushed, hooked = flow.pushed, flow.hooked
    flow.queue.wait_for(flow.sent[pushed] + flow.sent[hooked])
    assert {call.ref for call in flow.stage.sink.taken(hooked)} >= set(flow.sent[hooked])


def test_a_message_is_there_for_every_business_row_and_no_other(flow: Flow) -> None:
    pages = flow.stage.app.clients["dynamodb"].get_paginator("scan")
    rows = [row for page in pages.paginate(TableName=BUSINESS_TABLE) for row in page["Items"]]
    known = {ref.id: topic for topic, refs in flow.sent.items() for ref in refs}
    assert len(rows) > FEWEST // 10
    assert {row["id"]["S"]: row["topic"]["S"] for row in rows}.items() <= known.items()


def test_the_ledger_has_each_delivery_once(flow: Flow) -> None:
    pushed, hooked, pulled = flow.pushed, flow.hooked, flow.pulled
    wanted = {pushed: ("queue",), hooked: ("queue", "hook"), pulled: ()}
    for topic, names in wanted.items():
        expected = [(ref.id, name) for ref in flow.sent[topic] for name in names]
        flow.stage.wait_recorded(topic, expected)
        found = [(d.id, d.subscription) for d in flow.stage.deliveries(topic)]
        sure = [place for place in found if place[0] not in flow.unsure]
        assert set(found) == set(expected)
        assert len(sure) == len(set(sure))


def test_counts_are_exact_at_the_latest_after_repair(flow: Flow) -> None:
    # the tail of a batch that came and went in one invocation may have been counted once more:
    # nothing was written for the whole, and repair corrects a row that was wrong twice; a third
    # run takes off the index what the others listed
    for _ in range(3):
        flow.stage.invoke("Repair")
    pushed, hooked, pulled = flow.pushed, flow.hooked, flow.pulled
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
    for name in app.template.of_type("AWS::SQS::Queue"):
        if "DeadLetters" in name:
            url = app.template.ref(name)
            asked: dict[str, Any] = app.clients["sqs"].get_queue_attributes(
                QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"]
            )
            assert asked["Attributes"]["ApproximateNumberOfMessages"] == "0", name
