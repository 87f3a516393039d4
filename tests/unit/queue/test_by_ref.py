"""Messages settled by their refs: released, reset, buried and deleted, whoever holds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import (
    MessageRef,
    MessagesClaimed,
    MessagesNotFound,
    Queue,
    StaleReceipt,
    TopicIsPushed,
    Unavailable,
    UnknownTopic,
)
from fairbox.testing import Fault

from tests.unit.dispatch.stream.test_pulled_topics import TOPICS, Pulled

if TYPE_CHECKING:
    from fairbox import Received

HOURS = 12 * 3600
Settle = Callable[[Queue, MessageRef], None]
bury: Settle = partial(Queue.bury, reason="of no use")
delete: Settle = partial(Queue.delete, reason="of no use")
BACK, GONE = (Queue.release, Queue.reset), (bury, delete)
GIVES_BACK = pytest.mark.parametrize(("settle", "count"), [(Queue.release, 2), (Queue.reset, 1)])
REMOVES = pytest.mark.parametrize("settle", GONE, ids=["bury", "delete"])
ALL = pytest.mark.parametrize("settle", [*BACK, *GONE], ids=["release", "reset", "bury", "delete"])


class Desk(Pulled):
    """The application with pulled topics, and with an operator's queue beside the consumer's."""

    def __init__(self) -> None:
        super().__init__()
        self.operator = Queue.over(self.outbox)

    def take(self, topic: str, timeout: float = HOURS, per_key: int = 1) -> list[Received]:
        self.clock.advance(3)  # a consumer's copies are so old at most
        return self.queue.receive(topic, 10, timeout, max_per_key=per_key)

    def one(self, topic: str, timeout: float = HOURS) -> Received:
        (received,) = self.take(topic, timeout)
        return received

    def held(self, topic: str, **more: Any) -> tuple[MessageRef, str]:
        """Send a message and receive it; return its ref and its receipt."""
        (ref,) = self.send(topic, **more)
        return ref, self.one(topic).receipt

    def told(self, kind: str) -> list[tuple[str, str]]:
        self.run(5)
        return [(event["id"], event["reason"]) for event in self.events(kind)]


@pytest.fixture
def app() -> Desk:
    return Desk()


@TOPICS
@GIVES_BACK
@pytest.mark.parametrize("state", ["held", "waiting", "crashed"])
def test_it_comes_back_at_once(
    app: Desk, state: str, settle: Settle, count: int, topic: str
) -> None:
    (ref,) = app.send(topic)
    receipt = app.one(topic, timeout=1 if state == "crashed" else HOURS).receipt
    if state != "crashed":
        app.queue.nack(receipt, 3600 if state == "waiting" else 0)
        assert len(app.take(topic)) == (state == "held")
    app.clock.advance(1)
    settle(app.operator, ref)
    again = app.one(topic)
    assert (again.message.id, again.receive_count) == (ref.id, count)
    app.queue.ack(again.receipt)
    assert app.lying() == []


@TOPICS
@ALL
class TestAll:
    def test_its_receipt_is_stale(self, app: Desk, settle: Settle, topic: str) -> None:
        ref, receipt = app.held(topic)
        settle(app.operator, ref)
        app.clock.advance(1)
        extend = partial(app.queue.extend, seconds=60)
        for call in (app.queue.nack, app.queue.release, app.queue.bury, extend):
            with pytest.raises(StaleReceipt):
                call(receipt)
        if settle in GONE:  # which counts as acknowledged until the time-out
            app.queue.ack(receipt)
            app.clock.advance(HOURS)
        with pytest.raises(StaleReceipt):
            app.queue.ack(receipt)
        assert len(app.lying()) == (settle in BACK)

    def test_an_ack_in_the_middle_wins(self, app: Desk, settle: Settle, topic: str) -> None:
        ref, receipt = app.held(topic)
        read = app.faulty.batch_get_item

        def then_ack(**request: Any) -> Any:
            found = read(**request)
            if vars(app.faulty).pop("batch_get_item", None):
                app.queue.ack(receipt)
            return found

        vars(app.faulty)["batch_get_item"] = then_ack
        with pytest.raises(MessagesNotFound):
            settle(app.operator, ref)
        assert (app.lying(), app.dead()) == ([], [])


@TOPICS
class TestGone:
    def test_a_buried_one_is_dead_and_redriven_anew(self, app: Desk, topic: str) -> None:
        ref, _ = app.held(topic)
        bury(app.operator, ref)
        (letter,) = app.outbox.dead(topic)
        assert (letter.ref, letter.reason) == (ref, "of no use")
        assert app.told("dead") == [(ref.id, "max_attempts: of no use")]
        assert app.queue.stats(topic).dead == 1
        app.outbox.redrive(topic)
        assert app.one(topic).receive_count == 1

    def test_a_deleted_one_leaves_as_a_cancelled_one_does(self, app: Desk, topic: str) -> None:
        batch = app.batches.open()
        (group,) = app.batches.add(batch.id, 1, request_id="r")
        ref, _ = app.held(topic, batch_item=next(iter(group.item_ids())))
        with pytest.raises(MessagesClaimed, match="fairbox message release"):
            app.operator.cancel([ref])
        delete(app.operator, ref)
        assert app.told("cancelled") == [(ref.id, "of no use")]
        assert (app.lying(), app.dead(), app.queue.stats(topic).ready) == ([], [], 0)
        assert app.batches.progress(batch.id).pending == 1

    @pytest.mark.parametrize("waits", [False, True])
    def test_what_was_not_held(self, app: Desk, topic: str, waits: bool) -> None:
        buried, deleted = app.send(topic, 2)
        for received in app.take(topic) if waits else ():
            app.queue.nack(received.receipt, 3600)
        (free,) = app.send(topic)
        bury(app.operator, buried)
        with pytest.raises(MessagesNotFound) as refused:
            app.operator.delete([buried, deleted])
        assert refused.value.missing == (buried,)
        app.writes()
        for settle in BACK:
            settle(app.operator, free)
        assert app.writes() == {}
        assert [letter.ref for letter in app.outbox.dead(topic)] == [buried]
        assert app.one(topic).message.id == free.id


@ALL
@pytest.mark.parametrize("held", [False, True])
def test_a_delayed_one(app: Desk, settle: Settle, held: bool) -> None:
    (ref,) = app.send("none", delay=100)
    if held:
        app.clock.advance(100)
        app.one("none")
    settle(app.operator, ref)
    assert len(app.dead()) == (settle is bury)
    assert len(app.lying()) == (settle in BACK)
    assert len(app.take("none")) == (settle in BACK and held)


class TestKeys:
    @REMOVES
    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_the_key_goes_on_without_it(self, app: Desk, settle: Settle, place: int) -> None:
        refs = app.send("key", 4, partition_key="k")
        held = app.take("key", per_key=3)
        settle(app.queue, refs[place])  # the consumer's own process knows it at once
        app.queue.ack([r.receipt for r in held[:place]])
        more = (app.queue.receive("key", max_per_key=9) for _ in range(3))
        ids = [received.message.id for several in more for received in several]
        assert ids == [ref.id for ref in refs[place + 1 :]]

    @ALL
    def test_what_an_ack_that_crashed_has_marked_is_done(self, app: Desk, settle: Settle) -> None:
        ref, receipt = app.held("key")
        app.faulty.next("batch_write_item", *[Fault.TIMEOUT_UNAPPLIED] * 9)
        with pytest.raises(Unavailable):
            app.queue.ack(receipt)
        with pytest.raises(MessagesNotFound):
            settle(app.operator, ref)
        assert (app.take("key"), app.dead()) == ([], [])

    @pytest.mark.parametrize("fails", [False, True])
    def test_those_of_its_key_behind_it_come_back_with_it(self, app: Desk, fails: bool) -> None:
        refs = app.send("key", 3, partition_key="k")
        first, second, third = app.take("key", per_key=3)
        if fails:
            app.queue.nack(second.receipt, 3600)
        app.operator.reset(refs[1])
        with pytest.raises(StaleReceipt):
            app.queue.ack(third.receipt)
        app.queue.ack(first.receipt)
        again = app.take("key", per_key=3)
        assert [(r.message.id, r.receive_count) for r in again] == [(r.id, 1) for r in refs[1:]]

    @REMOVES
    def test_a_key_beside_the_row_goes_on_behind_it(self, app: Desk, settle: Settle) -> None:
        (ref, after), *_ = [app.send("key", 2, partition_key=f"k{n}") for n in range(40)]
        while received := app.take("key"):
            for one in received:  # the first waits longest, and so is among those set aside
                app.queue.nack(one.receipt, 9000 if one.message.id == ref.id else 3600)
        settle(app.operator, ref)
        assert app.one("key").message.id == after.id


@pytest.mark.parametrize(("topic", "error"), [("orders", TopicIsPushed), ("no", UnknownTopic)])
def test_other_topics_are_refused_before_anything_is_done(
    app: Desk, topic: str, error: type[Exception]
) -> None:
    ref, _ = app.held("none")
    other = replace(ref, topic=topic)
    for call in (app.operator.release, app.operator.reset, app.operator.delete):
        with pytest.raises(error):
            call([ref, other])
    with pytest.raises(error):
        app.operator.bury(other)
    assert app.take("none") == []
