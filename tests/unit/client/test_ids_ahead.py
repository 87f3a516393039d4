"""Ids whose time has not come: refused at every door, and what is stored is served all the same."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import InvalidInput, Message, MessageRef, Outbox
from fairbox.cloudevents import envelope
from fairbox.model.ids import IdGenerator, new_id
from fairbox.testing import ManualClock
from fairbox.testing.application import DELIVERIES, OUTBOX

from tests.support.application import App

if TYPE_CHECKING:
    from collections.abc import Callable

YEAR = 365 * 86_400
LAST = "ffffffff-ffff-7fff-bfff-fffffffffffe"  # of the year 10889

DOORS: dict[str, Callable[[Outbox, Message], object]] = {
    "add": lambda outbox, message: outbox.add(message),
    "add_many": lambda outbox, message: outbox.add_many([message]),
    "transact_items": lambda outbox, message: outbox.transact_items(message),
    "transact": lambda outbox, message: outbox.transact([], message),
    "replay": lambda outbox, m: outbox.replay([m], cursor="c", position=0, to=1),
}


def ahead(clock: ManualClock, seconds: float) -> str:
    """Return an id of so many seconds from now."""
    other = ManualClock(clock.now() + seconds)
    return IdGenerator(other, random.Random(1).getrandbits).next()


@pytest.mark.parametrize("door", DOORS)
def test_an_id_over_five_minutes_ahead_is_refused_and_nothing_is_written(door: str) -> None:
    app = App("a")
    for seconds in (301, 177 * YEAR):
        late = Message(topic="orders", body=b"x", id=ahead(app.clock, seconds))
        with pytest.raises(InvalidInput, match="id: expected an id whose time is at most 300 s"):
            DOORS[door](app.outbox, late)
    assert app.lying() == []
    DOORS[door](app.outbox, Message(topic="orders", body=b"x", id=ahead(app.clock, 299)))


def test_after_is_refused_as_an_id_is() -> None:
    with pytest.raises(InvalidInput, match="after: expected an id whose time is at most 300 s"):
        Message(topic="orders", body=b"x", after=ahead(ManualClock(), 100 * YEAR))
    assert new_id() < ahead(ManualClock(), 100 * YEAR)  # and the process goes on as before


def stored(app: App, message_id: str, **more: Any) -> MessageRef:
    """Let a producer whose own clock is wrong add a message; the relay's invocation is lost."""
    wrong = ManualClock(int(message_id[:8] + message_id[9:13], 16) / 1000)
    outbox = Outbox(app.client, table=OUTBOX, deliveries_table=DELIVERIES, clock=wrong)
    ref = outbox.add(Message(topic="orders", body=b"x", id=message_id, **more))
    app._relayed = app.records()[-1]["dynamodb"]["SequenceNumber"]
    return ref


@pytest.mark.parametrize("ordering", ["none", "key"])
@pytest.mark.parametrize("years", [1, 177, None])
def test_what_is_stored_is_delivered_marked_and_listed_within_a_day(
    years: int | None, ordering: Any
) -> None:
    app = App("a", ordering=ordering)
    ref = stored(app, LAST if years is None else ahead(app.clock, years * YEAR))
    for _ in range(24):
        app.repair()
        app.run(3600, step=60)
    assert [m.ref for m in app.at("a").received] == [ref]
    assert app.lying() == []
    assert [delivery.ref for delivery in app.outbox.delivered("orders")] == [ref]
    now = app.clock.now() * 1000
    assert all(event["at"] <= now for kind in ("added", "delivered") for event in app.events(kind))


def test_an_id_of_no_year_can_be_shown() -> None:
    app = App("a")
    stored(app, LAST)
    (found,) = app.outbox.outstanding("orders")
    assert found.time.year == 9999
    assert b'"time"' not in envelope(next(iter(app.outbox.stored("ready", "orders"))))
