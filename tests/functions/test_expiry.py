"""The sweep's handler, in the environment of the template, removes what is older than it may be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fairbox import Message, PartitionedQueue, Queue, Topic
from fairbox.model.ids import IdGenerator
from fairbox.observability.metrics import EXPIRED

from tests.functions.api_client import read_event
from tests.functions.running import Functions

KEPT = 120
ORDERINGS = pytest.mark.parametrize("ordering", ["none", "key"])


class Story:
    """The functions, with messages that `mark_delivered` reads and the sweep removes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.functions = Functions(monkeypatch)
        self.clock, self.outbox = self.functions.clock, self.functions.outbox
        self.queue = Queue.over(self.outbox)
        self._ids = IdGenerator(self.clock)
        self._marked: str | None = None

    def send(self, topic: str, count: int = 1, **more: Any) -> None:
        """Send messages of one key."""
        for _ in range(count):
            made = Message(topic=topic, body=b"{}", partition_key="k", id=self._ids.next(), **more)
            self.outbox.add(made)

    def mark(self) -> list[dict[str, Any]]:
        """Let `mark_delivered` read the stream; return what it puts into the archive."""
        table = self.functions.engine.stream(self.functions.tables["outbox"])
        records = table.take(self._marked)
        self._marked = records[-1]["dynamodb"]["SequenceNumber"] if records else self._marked
        images = [(r["dynamodb"].get("NewImage") or r["dynamodb"]["OldImage"], r) for r in records]
        self.functions.invoke("mark_delivered", {"Records": [r for i, r in images if "z" in i]})
        return self.functions.firehose.lines

    def sweep(self) -> Any:
        """Sweep once."""
        return self.functions.invoke("sweep", read_event("clock_sweep"))


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Story:
    return Story(monkeypatch)


@ORDERINGS
def test_what_is_too_old_is_removed_counted_and_told(
    story: Story, ordering: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = PartitionedQueue("jobs", 2)
    queue.create(story.outbox, shards=1, ordering=ordering, message_retention=KEPT)
    story.send("jobs__p1", 30)
    story.mark()
    story.functions.invoke("count_outstanding", read_event("clock_count_outstanding"))  # ranks
    assert story.sweep()["expired"] == 0
    story.clock.advance(KEPT + 61)
    story.send("jobs__p1")
    capsys.readouterr()
    assert story.sweep()["expired"] == 30
    lines = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    figures = [(x.get("topic"), x.get("partition"), x[EXPIRED]) for x in lines if EXPIRED in x]
    assert figures == [("jobs__p1", "1", 30), (None, None, 30)]
    events = [line["event"] for line in story.mark()]
    assert (events.count("expired"), events.count("delivered")) == (30, 0)
    assert story.outbox.outstanding_count("jobs__p1") == 1
    assert story.queue.stats("jobs__p1").ready == 1
    assert story.sweep()["expired"] == 0


@ORDERINGS
def test_an_item_of_a_batch_fails_with_its_message(story: Story, ordering: Any) -> None:
    story.outbox.create_topic(Topic("jobs", shards=1, ordering=ordering, message_retention=KEPT))
    batch = story.functions.batch(1)
    story.send("jobs", batch_item=f"{batch}:0:0")
    story.mark()
    story.clock.advance(KEPT + 61)
    assert story.sweep()["expired"] == 1
    story.functions.invoke("cascade_batches", story.functions.stream())
    progress = story.functions.batches.progress(batch)
    assert (progress.complete, progress.failed) == (True, 1)
