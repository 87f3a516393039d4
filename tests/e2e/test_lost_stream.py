"""A stream that lost records: the table still has the messages, so repair and sweep find them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message
from fairbox.model.ids import IdGenerator
from fairbox.testing import ManualClock

from local.triggers.streams import StreamTrigger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from local.triggers.reader import Entry
    from tests.e2e.stage import Stage

pytestmark = [pytest.mark.engine, pytest.mark.e2e]

OVERDUE_SECONDS = 120  # the sweep rings for what is over a minute old


@contextmanager
def losing(stage: Stage, topic: str, lost: list[str]) -> Iterator[None]:
    """Lose each stream record of a topic's shards before any function sees it."""
    triggers = [t for t in stage.app.triggers if isinstance(t, StreamTrigger)]
    heard: dict[StreamTrigger, Any] = {trigger: trigger.hear for trigger in triggers}

    def hear(trigger: StreamTrigger, entries: Sequence[Entry]) -> None:
        kept = [entry for entry in entries if topic not in entry[0].partition_key]
        lost.extend(e[0].item_key for e in entries if topic in e[0].partition_key)
        heard[trigger](kept)

    for trigger in triggers:
        trigger.hear = partial(hear, trigger)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for trigger in triggers:
            del trigger.hear


@pytest.mark.extended  # waits for repair and sweep
def test_what_the_stream_lost_is_delivered_after_repair_and_sweep(stage: Stage) -> None:
    topic, queue = stage.topic("forgotten"), stage.queue()
    stage.subscribe(topic, {"queue": f"sqs:{queue.url}"})
    ids = IdGenerator(ManualClock(time.time() - OVERDUE_SECONDS))
    lost: list[str] = []
    with losing(stage, topic, lost):
        made = [Message(topic=topic, body=b"%d" % n, id=ids.next()) for n in range(8)]
        refs = stage.outbox.add_many(made)
        shown = stage.topic("shown")
        stage.subscribe(shown, {"queue": f"sqs:{queue.url}"})
        after = stage.outbox.add(Message(topic=shown, body=b"the stream goes on"))
        queue.wait_for([after])
    assert len(lost) >= len(refs)  # each mapping hears of them
    assert set(queue.times()) == {after}  # nobody was told
    assert not [row for row in stage.outbox.listed() if row.topic == topic]

    stage.invoke("Repair")
    stage.invoke("Sweep")
    queue.wait_for(refs)
    stage.wait_recorded(topic, [(ref.id, "queue") for ref in refs])
    stage.invoke("Repair")
    stage.wait_counted(topic)
    stage.wait_unlisted(topic)
