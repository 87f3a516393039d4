"""Batches end to end: one announcement, never early, though the functions are killed; orphans."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from fairbox import BatchEnded
from fairbox.batches.models import ORPHANED_TOPIC
from fairbox.testing import ManualClock

from tests.e2e.fanout import FAILED, ITEMS, Fanout, batches_of, listening, run
from tests.e2e.stage import eventually

if TYPE_CHECKING:
    from tests.e2e.stage import Stage

pytestmark = [pytest.mark.engine, pytest.mark.e2e, pytest.mark.timeout(300)]

DAY = 24 * 3600.0


@pytest.fixture(scope="module")
def fanout(stage: Stage) -> Fanout:
    return run(stage)


@pytest.mark.extended  # test_redrive completes a fan-out; the simulation kills
def test_both_functions_were_killed_again_and_again_with_work_in_hand(fanout: Fanout) -> None:
    assert fanout.killed["AckBatches"] > 2
    assert fanout.killed["CascadeBatches"] > 0
    assert fanout.failed_messages > 0


@pytest.mark.extended  # test_redrive completes a fan-out; the simulation kills
def test_nothing_is_announced_while_an_item_is_pending(fanout: Fanout) -> None:
    assert fanout.early == []
    before = fanout.before_last
    assert before is not None
    assert (before.state, before.pending, before.total) == ("sealed", 1, ITEMS)


@pytest.mark.extended  # test_redrive completes a fan-out; the simulation kills
def test_each_batch_is_announced_exactly_once(fanout: Fanout) -> None:
    time.sleep(3)  # for a second one
    messages = {body["id"]: body for body in fanout.announced()}
    assert len(fanout.announced()) == len(messages) == 2
    nested, parent = messages[fanout.batch], messages[fanout.parent]
    assert (nested["user_key"], nested["metadata"]) == ("pages", {"run": 7})
    assert [nested[k] for k in ("total", "acked", "failed")] == [ITEMS, ITEMS - FAILED, FAILED]
    # an item that stands for a batch with failures has failed
    assert [parent[k] for k in ("total", "acked", "failed")] == [2, 1, 1]


@pytest.mark.extended  # test_redrive completes a fan-out; the simulation kills
def test_progress_is_exact_at_the_end(fanout: Fanout) -> None:
    found = fanout.batches.progress(fanout.batch)
    assert (found.state, found.pending, found.exact) == ("complete", 0, True)
    assert (found.total, found.acked, found.failed) == (ITEMS, ITEMS - FAILED, FAILED)


@pytest.mark.extended  # test_redrive completes a fan-out; the simulation kills
def test_no_ack_is_put_aside_and_garbage_is_dropped(fanout: Fanout) -> None:
    app = fanout.stage.app
    queues = [name for name in app.template.of_type("AWS::SQS::Queue") if name.startswith("Acks")]
    assert len(queues) == 2

    def waiting() -> dict[str, str]:
        asked = {
            name: app.clients["sqs"].get_queue_attributes(
                QueueUrl=app.template.ref(name), AttributeNames=["All"]
            )["Attributes"]
            for name in queues
        }
        kinds = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        return {f"{n} {kind}": asked[n][kind] for n in queues for kind in kinds}

    eventually(lambda: set(waiting().values()) == {"0"}, failing=waiting)


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
