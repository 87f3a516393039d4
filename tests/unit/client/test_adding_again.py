"""Messages added again: what it costs, and what counts and archive know of it."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from fairbox import Message, Queue, RetryPolicy, Topic
from fairbox.errors import InvalidInput
from fairbox.testing import CostMeter
from fairbox.testing.application import MemoryApplication

from tests.support.application import REFUSED, App

if TYPE_CHECKING:
    from collections.abc import Callable

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


def test_a_large_body_stays_though_its_id_is_added_again_with_another() -> None:
    app = App("a")
    first, second = (bytes(range(n, 256)) * 4000 for n in (0, 1))
    id_ = app.ids.next()
    for body in (first, second):
        app.outbox.add_many([Message(topic="orders", body=body, id=id_)])
    app.run(5)
    assert [m.message.body for m in app.at("a").received] == [first]


WAYS: Final[dict[str, Callable[[MemoryApplication, list[Message]], Any]]] = {
    "add_many": lambda app, given: app.outbox.add_many(given),
    "new": lambda app, given: app.outbox.add_many(given, new=True),
    "send_many": lambda app, given: Queue.over(app.outbox).send_many(given),
    "replay": lambda app, given: app.outbox.replay(given, cursor="r", position=0, to=2),
}


def keyed(ids: str, keys: tuple[str | None, ...]) -> tuple[MemoryApplication, list[Message]]:
    app = MemoryApplication()
    app.outbox.create_topic(Topic("jobs", max_outstanding=1, dedup_window=60))
    start = "0198f7a2-0000-7000-8000-00000000000"
    return app, [
        Message(topic="jobs", body=b"%d" % number, id=start + digit, dedup_key=key)
        for number, (digit, key) in enumerate(zip(ids, keys, strict=True), 1)
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("keys", [(None, None), ("a", "a"), (None, "a"), ("a", None)])
def test_the_first_with_an_id_in_a_call_stays(way: str, keys: tuple[str | None, ...]) -> None:
    app, given = keyed("11", keys)
    WAYS[way](app, given)
    assert [message.body for message in app.outbox.outstanding("jobs")] == [b"1"]


@pytest.mark.parametrize(("ids", "keys"), [("11", "ab"), ("12", "aa"), ("11", (None, None))])
def test_a_transaction_takes_an_id_and_a_key_once(ids: str, keys: tuple[str | None, ...]) -> None:
    app, given = keyed(ids, keys)
    app.outbox.create_topic(Topic("jobs", max_outstanding=None))
    for call in (partial(app.outbox.transact, []), app.outbox.transact_items):
        with pytest.raises(InvalidInput, match="messages"):
            call(*given)
