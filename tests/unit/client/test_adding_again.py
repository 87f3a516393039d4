"""Messages added again: what it costs, and what counts and archive know of it."""

from __future__ import annotations

import random
from typing import Final

import pytest
from fairbox import Message, RetryPolicy, Topic
from fairbox.testing import CostMeter
from fairbox.testing.application import MemoryApplication

from tests.support.application import REFUSED, App

BODY: Final = random.Random(7).randbytes(700)  # does not compress: an item of nearly 1 KB


@pytest.mark.parametrize(
    ("new", "call"), [(False, "batch_execute_statement"), (True, "batch_write_item")]
)
def test_an_added_message_costs_one_unit_either_way_and_one_that_is_there_too(
    new: bool, call: str
) -> None:
    app = MemoryApplication(wrap=CostMeter)
    meter: CostMeter = app.client
    app.outbox.create_topic(Topic("jobs"))
    made = [Message(topic="jobs", body=BODY, id=app.ids.next()) for _ in range(100)]
    app.outbox.topic("jobs")
    app.outbox.add_many(made[:1], new=new)
    meter.reset()
    app.outbox.add_many(made[1:], new=new)
    reading = meter.reading()
    assert (reading.wru, reading.rru, reading.calls) == (99, 0, {call: 4})
    meter.reset()
    app.outbox.add_many(made)
    reading = meter.reading()
    assert (reading.wru, reading.calls) == (100, {"batch_execute_statement": 4})


def test_counts_and_archive_know_nothing_of_a_message_that_is_added_again() -> None:
    app = App("a", retry=RetryPolicy(max_attempts=50))
    app.at("a").answer = lambda _: REFUSED
    message = Message(topic="orders", body=b"{}", id=app.ids.next())
    (ref,) = app.outbox.add_many([message])
    app.run(30)
    row, lines = app.row(), len(app.archive.lines)
    item = app.outbox.tables.lanes.get(ref)
    assert item is not None
    app.outbox.add_many([message])
    assert app.mark() == 0  # there is no record in the stream
    assert app.outbox.tables.lanes.get(ref) == item
    assert (app.row(), len(app.archive.lines)) == (row, lines)
