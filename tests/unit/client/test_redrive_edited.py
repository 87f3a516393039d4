"""A dead letter that is edited on its way back: one, whole or not at all."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import (
    BodyTooLarge,
    DeadLettersUnreadable,
    InvalidInput,
    Message,
    MessagesOutstanding,
    Topic,
)
from fairbox.client.outbox import Outbox
from fairbox.dispatch.ports import TAKEN
from fairbox.testing.application import DELIVERIES, OUTBOX

from tests.support.application import REFUSED, THROTTLED, App
from tests.support.dead_letters import killed, lying, opened

if TYPE_CHECKING:
    from fairbox import MessageRef

LARGE = bytes(range(256)) * 4000


def received(app: App) -> list[Message]:
    return [stored.message for stored in app.at("a").received]


def unchanged(app: App) -> tuple[Any, Any]:
    return app.engine.items(OUTBOX), app.engine.items(DELIVERIES)


def test_it_comes_back_with_the_new_content_under_its_own_ref() -> None:
    app = App("a")
    (ref,) = killed(app, partition_key="k", headers={"old": "1"})
    app.writes()
    result = app.outbox.redrive(
        "orders", [ref], body=b"better", headers={"new": "2"}, content_type="text/plain"
    )
    assert (result.refs, app.writes()) == ((ref,), {"transact_write_items": 1})
    app.run(5)
    (message,) = received(app)
    assert (message.id, message.partition_key, message.body) == (ref.id, "k", b"better")
    assert (dict(message.headers), message.content_type) == ({"new": "2"}, "text/plain")
    assert (app.dead(), app.row().dead) == ([], 0)
    assert [e["id"] for e in app.events("redriven")] == [ref.id]


def test_what_is_not_given_stays_as_it_was() -> None:
    app = App("a")
    (ref,) = killed(app, body=b"x" * 5000, headers={"a": "b"})
    app.outbox.redrive("orders", [ref.id], content_type="text/plain")
    app.run(5)
    (message,) = received(app)
    assert (message.body, dict(message.headers)) == (b"x" * 5000, {"a": "b"})
    assert message.content_type == "text/plain"


@pytest.mark.parametrize("before", [b"small", b"x" * 5000, LARGE], ids=["plain", "packed", "away"])
@pytest.mark.parametrize(
    "after", [b"tiny", b"y" * 6000, LARGE[1:]], ids=["plain", "packed", "away"]
)
def test_a_body_of_any_kind_takes_the_place_of_any_other(before: bytes, after: bytes) -> None:
    app = App("a")
    (ref,) = killed(app, body=before)
    app.outbox.redrive("orders", [ref], body=after)
    app.run(5)
    assert [message.body for message in received(app)] == [after]
    assert app.bodies.expired == set(app.bodies.objects)
    assert len(app.bodies.objects) == (before == LARGE) + (after == LARGE[1:])


def test_headers_of_an_offloaded_body_change_without_it() -> None:
    app = App("a")
    (ref,) = killed(app, body=LARGE)
    app.outbox.redrive("orders", [ref], headers={"h": "1"})
    assert app.bodies.expired == set()
    app.run(5)
    assert [(m.body, dict(m.headers)) for m in received(app)] == [(LARGE, {"h": "1"})]
    (key,) = app.bodies.objects
    assert key.startswith(f"bodies/orders/{ref.id}-")


def test_it_may_die_and_be_edited_again() -> None:
    app = App("a")
    (ref,) = killed(app, body=LARGE)
    app.at("a").answer = lambda _: REFUSED
    app.outbox.redrive("orders", [ref], body=LARGE[1:])
    app.run(300)
    app.outbox.redrive("orders", [ref], body=LARGE[2:])
    app.at("a").answer = lambda _: TAKEN
    app.run(5)
    assert [message.body for message in received(app)] == [LARGE[2:]]
    assert len(app.bodies.objects) == 3
    assert app.bodies.expired == set(app.bodies.objects)


def test_its_batch_item_is_pending_again_by_the_same_transaction() -> None:
    app = App("a")
    batch, (item, _) = opened(app, 2)
    (ref,) = killed(app, batch_item=item)
    app.outbox.redrive("orders", [ref], body=b"better")
    assert app.batches.progress(batch).pending == 2
    app.run(30)
    assert app.batches.progress(batch).acked == 1


def test_its_deduplication_key_neither_stops_it_nor_is_free() -> None:
    app = App("a", dedup_window=3600)
    app.at("a").answer = lambda _: REFUSED
    ref = app.outbox.add(Message(topic="orders", body=b"1", dedup_key="k", id=app.ids.next()))
    app.run(300)
    app.at("a").answer = lambda _: TAKEN
    app.outbox.redrive("orders", [ref], body=b"2")
    again = app.outbox.add(Message(topic="orders", body=b"3", dedup_key="k", id=app.ids.next()))
    assert again == ref
    app.run(5)
    assert [message.body for message in received(app)] == [b"2"]


@pytest.mark.parametrize("named", [None, [], "two"])
def test_content_is_for_one_id_alone(named: Any) -> None:
    app = App("a")
    refs = killed(app, 2)
    before = unchanged(app)
    with pytest.raises(InvalidInput) as caught:
        app.outbox.redrive("orders", refs if named == "two" else named, body=b"x")
    assert (caught.value.field, unchanged(app)) == ("ids", before)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"body": "text"}, "body"),
        ({"headers": {"a": 1}}, "headers"),
        ({"content_type": ""}, "content_type"),
    ],
)
def test_content_that_no_message_takes_changes_nothing(
    given: Any, field: str, dry_run: bool
) -> None:
    app = App("a")
    refs = killed(app)
    before = unchanged(app)
    with pytest.raises(InvalidInput) as caught:
        app.outbox.redrive("orders", refs, dry_run=dry_run, **given)
    assert caught.value.field.startswith(field)
    assert unchanged(app) == before


def test_a_body_too_large_for_an_item_is_refused_where_there_is_no_bucket() -> None:
    app = App("a")
    refs = killed(app)
    noise = random.Random(1).randbytes(400_000)
    before = unchanged(app)
    outbox = Outbox(
        app.client, table=OUTBOX, deliveries_table=DELIVERIES, clock=app.clock, rng=app.rng
    )
    with pytest.raises(BodyTooLarge):
        outbox.redrive("orders", refs, body=noise)
    assert unchanged(app) == before


def test_what_others_still_lack_is_not_edited_under_their_hands() -> None:
    app = App("a", "b")
    app.at("b").answer = lambda _: THROTTLED
    (ref,) = killed(app)
    before = unchanged(app)
    with pytest.raises(MessagesOutstanding) as caught:
        app.outbox.redrive("orders", [ref], body=LARGE)
    assert (caught.value.refs, unchanged(app)) == ((ref,), before)
    assert app.bodies.expired == set(app.bodies.objects) != set()
    assert [m.message.body for m in lying(app)] == [b"0"]


def test_what_nothing_can_read_is_not_edited() -> None:
    app = App("a")
    junk = app.ids.next()
    app.put_junk(junk)
    app.repair()
    with pytest.raises(DeadLettersUnreadable):
        app.outbox.redrive("orders", [f"orders/0/0/{junk}"], body=b"x")
    assert len(app.dead()) == 1


def test_a_dry_run_stores_no_body() -> None:
    app = App("a")
    refs = killed(app)
    before = unchanged(app)
    result = app.outbox.redrive("orders", refs, body=LARGE, dry_run=True)
    assert (result.refs, unchanged(app), app.bodies.objects) == (tuple(refs), before, {})


def test_a_message_edited_in_its_queue_keeps_its_count_of_edits_in_death() -> None:
    app = App("a")
    app.outbox.create_topic(Topic("jobs", shards=1))
    ref = app.outbox.add(Message(topic="jobs", body=LARGE, id=app.ids.next()))
    app.queue.edit(ref, body=LARGE[1:])
    (held,) = app.queue.receive("jobs")
    app.queue.bury(held.receipt)
    app.outbox.redrive("jobs", [ref], body=LARGE[2:])
    assert body_of(app, ref) == LARGE[2:]
    assert len(app.bodies.objects) == 3


def body_of(app: App, ref: MessageRef) -> bytes:
    message = app.outbox.get(ref)
    assert message is not None
    return message.body
