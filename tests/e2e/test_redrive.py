"""Dead letters come back and are delivered, by library and over HTTP, each with its batch item."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fairbox import Batches, Message, Outbox, RetryPolicy
from fairbox.tables.batch_values import COMPLETED_TOPIC

from tests.e2e.sink import REFUSES, TAKES
from tests.e2e.stage import Stage, eventually
from tests.e2e.test_http_api import call

if TYPE_CHECKING:
    from fairbox import MessageRef

pytestmark = [pytest.mark.engine, pytest.mark.e2e]

SHORT = RetryPolicy(max_attempts=2, base=0.05, cap=0.2)


@pytest.mark.extended  # tests/unit/client/test_redrive.py redrives in memory
def test_a_fan_out_of_messages_survives_death_and_redrive_and_completes_once(stage: Stage) -> None:
    env = stage.app.env
    tables = (env["FAIRBOX_OUTBOX_TABLE"], env["FAIRBOX_DELIVERIES_TABLE"])
    batches = Batches(
        stage.dynamodb,
        table=env["FAIRBOX_BATCHES_TABLE"],
        outbox_table=tables[0],
        deliveries_table=tables[1],
    )
    outbox = Outbox(
        stage.dynamodb,
        table=tables[0],
        deliveries_table=tables[1],
        batches_table=env["FAIRBOX_BATCHES_TABLE"],
    )
    topic = stage.topic("riding", retry=SHORT)
    sick: set[MessageRef] = set()
    stage.sink.script(topic, lambda ref: REFUSES if ref in sick else TAKES)
    stage.subscribe(topic, {"hook": stage.sink.url(topic)})
    batch = batches.open().id
    groups = batches.add(batch, 12, request_id="r", group_size=4)
    items = [item for group in groups for item in group.item_ids()]
    messages = [Message(topic=topic, body=b"x", batch_item=item) for item in items]
    state = outbox.topic(topic)
    sick.update(state.ref(message) for message in messages[:3])
    outbox.add_many(messages)

    def settled() -> tuple[int, int]:
        progress = batches.progress(batch)
        return progress.acked, progress.failed

    eventually(lambda: settled() == (9, 3), failing=lambda: batches.progress(batch))
    assert {f.id for f in batches.failed(batch)} == set(items[:3])
    assert {letter.ref for letter in outbox.dead(topic)} == sick
    dead = sorted(sick, key=lambda ref: ref.id)
    sick.clear()
    assert outbox.redrive(topic, dead[:1]).refs == (dead[0],)
    status, _, answer = call(stage, "POST", f"/topics/{topic}/redrive", {"limit": 10})
    assert (status, answer["refs"]) == (200, [str(ref) for ref in dead[1:]])
    eventually(lambda: settled() == (12, 0), failing=lambda: batches.progress(batch))
    assert {call.ref for call in stage.sink.taken(topic)} >= set(dead)
    batches.seal(batch)

    def told() -> int:
        """Count completion messages, delivered by now or not, for others may have subscribed."""
        lines = stage.archive(COMPLETED_TOPIC)
        return sum(x["event"] == "added" and x["partition_key"] == batch for x in lines)

    eventually(lambda: told() == 1, failing=told)
    assert batches.progress(batch).complete
    stage.wait_recorded(topic, [(ref.id, "hook") for ref in dead])
    stage.wait_counted(topic)
    eventually(lambda: not sum(row.dead for row in stage.rows(topic)), failing=stage.outbox.listed)
    assert outbox.outstanding_count(topic) == 0
    assert told() == 1
