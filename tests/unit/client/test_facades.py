"""The facades: parts over one context, none of which inherits from another."""

from __future__ import annotations

from typing import Any

import pytest
from fairbox import Batches, Message, Outbox, Queue, Topic
from fairbox.client.batch_context import BatchPart
from fairbox.client.outbox_context import OutboxPart
from fairbox.client.queue_context import QueuePart
from fairbox.testing.application import MemoryApplication

FACADES = [(Outbox, OutboxPart), (Queue, QueuePart), (Batches, BatchPart)]


@pytest.mark.parametrize(("facade", "part"), FACADES)
def test_a_facade_lists_its_parts_and_none_inherits_from_another(facade: Any, part: Any) -> None:
    assert len(facade.__bases__) > 1
    assert {base.__bases__ for base in facade.__bases__} == {(part,)}
    assert part.__bases__ == (object,)


@pytest.mark.parametrize(("facade", "part"), FACADES)
def test_no_part_hides_a_method_of_another_or_is_made_past_its_constructor(
    facade: Any, part: Any
) -> None:
    shown = [n for base in facade.__bases__ for n in vars(base) if not n.startswith("__")]
    assert len(shown) == len(set(shown))
    assert not any("__new__" in vars(cls) or "__init__" in vars(cls) for cls in facade.__bases__)


def test_a_queue_over_an_outbox_shares_it_and_its_copies_of_topics() -> None:
    app = MemoryApplication()
    app.outbox.create_topic(Topic("jobs", shards=1))
    queue = Queue.over(app.outbox)
    ref = queue.send(Message(topic="jobs", body=b"1", id=app.ids.next()))
    assert queue.outbox is app.outbox
    assert app.outbox.find(ref) is not None


def test_an_outbox_over_tables_shares_them_and_has_copies_of_topics_of_its_own() -> None:
    app = MemoryApplication()
    other = Outbox.over(app.outbox.tables)
    app.outbox.create_topic(Topic("jobs", shards=1))
    ref = other.add(Message(topic="jobs", body=b"1", id=app.ids.next()))
    assert (other.tables, other.bodies) == (app.outbox.tables, app.bodies)
    assert app.outbox.find(ref) is not None
