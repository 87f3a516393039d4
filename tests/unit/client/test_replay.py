"""Replaying in steps: each once, in whatever way a step is repeated."""

from __future__ import annotations

import pytest
from fairbox import Message, Topic
from fairbox.errors import InvalidInput, Unavailable
from fairbox.testing.faults import Fault, FaultyDynamoDB

from tests.support.application import App


def made(app: App, count: int, topic: str = "orders") -> list[Message]:
    return [Message(topic=topic, body=b"%d" % n, id=app.ids.next()) for n in range(count)]


def test_a_step_publishes_and_moves_the_cursor() -> None:
    app = App("a")
    assert app.outbox.replay_position("r#0") == 0
    messages = made(app, 3)
    step = app.outbox.replay(messages, cursor="r#0", position=0, to=3)
    assert [ref.id for ref in step.added] == [m.id for m in messages]
    assert (step.position, step.outstanding) == (3, ())
    assert app.outbox.replay_position("r#0") == 3
    assert app.outbox.replay_position("r#1") == 0
    app.run(5)
    assert sorted(app.at("a").ids) == [m.id for m in messages]


def test_the_same_step_again_writes_nothing_even_after_the_delivery() -> None:
    app = App("a")
    messages = made(app, 3)
    app.outbox.replay(messages, cursor="r", position=0, to=3)
    app.run(5)
    again = app.outbox.replay(messages, cursor="r", position=0, to=3)
    assert (again.position, again.added) == (3, ())
    app.run(5)
    assert len(app.at("a").ids) == 3


def test_who_comes_late_is_told_where_the_cursor_stands() -> None:
    app = App("a")
    first, second = made(app, 2), made(app, 2)
    app.outbox.replay(first, cursor="r", position=0, to=2)
    app.outbox.replay(second, cursor="r", position=2, to=4)
    assert app.outbox.replay(second, cursor="r", position=2, to=4).position == 4
    assert app.outbox.replay(first, cursor="r", position=0, to=2).position == 4
    app.run(5)
    assert len(app.at("a").ids) == 4


def test_what_is_outstanding_stays_as_it_is_and_the_rest_goes_in() -> None:
    app = App("a")
    messages = made(app, 4)
    app.outbox.add(messages[2])
    step = app.outbox.replay(messages, cursor="r", position=0, to=4)
    assert [ref.id for ref in step.outstanding] == [messages[2].id]
    assert len(step.added) == 3
    assert len(app.lying()) == 4


def test_a_deduplication_key_that_was_seen_leaves_its_message_out() -> None:
    app = App("a")
    app.outbox.create_topic(Topic("orders", shards=1, dedup_window=600))
    known, new = (
        Message(topic="orders", body=b"1", dedup_key=key, id=app.ids.next()) for key in "ab"
    )
    app.outbox.add(known)
    step = app.outbox.replay([known, new], cursor="r", position=0, to=2)
    assert ([r.id for r in step.outstanding], [r.id for r in step.added]) == ([known.id], [new.id])


def test_an_answer_that_was_lost_is_no_second_step() -> None:
    app = App("a")
    messages = made(app, 3)
    faulty = FaultyDynamoDB(app.engine, app.rng)
    app.outbox.tables.calls.client = faulty
    for _ in range(8):
        faulty.next("transact_write_items", Fault.APPLIED_THEN_TIMEOUT)
    with pytest.raises(Unavailable):
        app.outbox.replay(messages, cursor="r", position=0, to=3)
    step = app.outbox.replay(messages, cursor="r", position=0, to=3)
    assert step.position == 3
    assert len(app.lying()) == 3


def test_a_step_that_goes_nowhere_or_is_too_long_is_refused() -> None:
    app = App("a")
    with pytest.raises(InvalidInput, match="to"):
        app.outbox.replay(made(app, 1), cursor="r", position=3, to=3)
    with pytest.raises(InvalidInput, match="99"):
        app.outbox.replay(made(app, 100), cursor="r", position=0, to=100)


def test_it_costs_two_units_a_message_and_two_for_the_cursor() -> None:
    app = App("a")
    messages = made(app, 10)
    app.outbox.replay(messages[:1], cursor="r", position=0, to=1)
    app.meter.reset()
    app.outbox.replay(messages[1:], cursor="r", position=1, to=10)
    assert app.meter.reading().wru == 2 * 9 + 2
