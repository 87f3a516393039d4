"""An orphan of batches end to end: reported, reaped, erased."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from fairbox import BatchEnded, Batches, Subscription, Topic
from fairbox.tables.batch_values import ORPHANED_TOPIC
from fairbox.testing import ManualClock

from tests.e2e.stage import eventually

if TYPE_CHECKING:
    from fairbox.model.clock import Clock

    from tests.e2e.stage import Queue, Stage

pytestmark = [pytest.mark.engine, pytest.mark.e2e, pytest.mark.timeout(300)]

DAY = 24 * 3600.0


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


@pytest.mark.extended  # waits; test_clean_orphans.py has it in memory
def test_an_orphan_is_reported_by_a_dry_run_and_reaped_by_a_run(stage: Stage) -> None:
    orphaned = listening(stage, ORPHANED_TOPIC)
    long_ago = batches_of(stage, ManualClock(time.time() - 20 * DAY))
    for _ in range(5):  # the schedule of its own may come between
        orphan = long_ago.open(user_key="lost").id
        long_ago.add(orphan, 300, request_id="r", group_size=3)
        long_ago.ack([f"{orphan}:70:1"])
        dry = stage.invoke("CleanOrphans", {"dry_run": True})
        if orphan in dry["reaped"]:
            break
    assert dry["dry_run"]
    assert stage.invoke("CleanOrphans", {})["dry_run"] is False
    batches = batches_of(stage)
    assert batches.progress(orphan).state == "reaped"

    def messages() -> list[dict[str, object]]:
        bodies = (json.loads(arrived.body) for arrived in orphaned.read())
        return [body for body in bodies if body["id"] == orphan]

    eventually(lambda: bool(messages()), failing=messages)
    (message,) = messages()
    assert [message[k] for k in ("user_key", "total", "acked", "pending")] == ["lost", 300, 1, 299]
    eventually(
        lambda: stage.invoke("CleanOrphans", {})["finished"] and _gone(stage, orphan),
        failing=lambda: "not erased",
    )
    with pytest.raises(BatchEnded):
        batches.ack([f"{orphan}:0:0"])
    assert batches.progress(orphan).state == "reaped"


def _gone(stage: Stage, batch: str) -> bool:
    """Whether nothing but the root is left."""
    pages = stage.dynamodb.get_paginator("scan").paginate(
        TableName=stage.app.env["FAIRBOX_BATCHES_TABLE"]
    )
    items = [item for page in pages for item in page["Items"]]
    return [i["sk"]["S"] for i in items if i["pk"]["S"].startswith(batch)] == ["root"]
