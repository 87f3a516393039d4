"""Events and ledger rows of each change of an item."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, MessageRef, Subscription, Topic
from fairbox.dispatch.stream.message_events import archive_line, events_of
from fairbox.model.epochs import Epoch
from fairbox.model.topic_states import TopicState
from fairbox.tables.stored_messages import Failure, Offloaded, StoredMessage, SubscriptionState
from fairbox.tables.stream_records import Change

if TYPE_CHECKING:
    from fairbox.tables.stream_records import ChangeKind

ID = "0198f3c2-7d7e-7abc-8def-0123456789ab"
ID_TIME = 0x0198F3C27D7E
AT = ID_TIME + 5000
TOPIC = TopicState(
    Topic("orders", ordering="key"),
    (Epoch(0, 8, 0),),
    tuple(Subscription("orders", n, f"sqs:http://q/{n}") for n in "ab"),
)
FRESH = StoredMessage(
    Message(topic="orders", body=b"{}", partition_key="k", id=ID),
    MessageRef("orders", 0, 3, ID),
    "ready",
    2,
)
FAILED = SubscriptionState(1, AT, (Failure(1, AT - 7, "no"),))
DEAD = replace(FAILED, dead=True)


def told(
    kind: ChangeKind,
    old: StoredMessage | None,
    new: StoredMessage | None,
    topic: TopicState | None = TOPIC,
) -> list[dict[str, Any]]:
    change = Change(kind, old, new, "77", "event", AT)
    return [json.loads(archive_line(event, topic)) for event in events_of(change, topic)]


def kinds(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(line["event"], line.get("subscription", "")) for line in lines]


def test_an_insert_tells_that_it_was_added_at_the_time_of_its_id() -> None:
    assert told("INSERT", None, FRESH) == [
        {
            "event": "added",
            "at": ID_TIME,
            "topic": "orders",
            "epoch": 0,
            "shard": 3,
            "id": ID,
            "event_id": "event:added",
            "partition_key": "k",
            "content_type": "application/octet-stream",
            "headers": {},
            "size": 2,
            "batch_item": None,
            "ordering": "key",
            "body": "{}",
            "body_encoding": "utf-8",
        }
    ]


def test_a_time_of_the_stream_says_that_it_is_a_whole_second() -> None:
    ahead = "0299f3c2-7d7e-7abc-8def-0123456789ab"  # no clock made this id
    unknown = replace(FRESH, message=replace(FRESH.message, id=ahead))
    unknown = replace(unknown, ref=replace(FRESH.ref, id=ahead))
    failed = replace(FRESH, states={"a": replace(FAILED, dead=True)})
    lines = told("INSERT", None, FRESH) + told("INSERT", None, unknown)
    lines += told("MODIFY", FRESH, failed) + told("REMOVE", FRESH, None)
    assert [(line["event"], line.get("precision")) for line in lines] == [
        ("added", None),
        ("added", "s"),
        ("failed", None),
        ("dead", "s"),
        ("delivered", "s"),
        ("delivered", "s"),
    ]


def test_a_redrive_is_no_second_add() -> None:
    assert kinds(told("INSERT", None, replace(FRESH, redriven=True))) == [("redriven", "")]


def test_bodies_that_are_no_text_are_base64_and_offloaded_ones_an_address() -> None:
    binary = replace(FRESH, message=replace(FRESH.message, body=b"\xff\x00"))
    (line,) = told("INSERT", None, binary)
    assert (line["body"], line["body_encoding"]) == ("/wA=", "base64")
    away = replace(FRESH, offloaded=Offloaded("bucket", "bodies/x"))
    (line,) = told("INSERT", None, away)
    assert (line["body"], line["body_uri"]) == (None, "s3://bucket/bodies/x")


def test_without_bodies_an_add_has_all_but_the_body() -> None:
    (whole,) = told("INSERT", None, FRESH)
    (event,) = events_of(Change("INSERT", None, FRESH, "77", "event", AT), TOPIC)
    line = json.loads(archive_line(event, TOPIC, bodies=False))
    assert line == whole | {"body": None, "body_encoding": None}


def test_a_delete_without_mark_is_a_delivery_to_who_lacked_it() -> None:
    assert kinds(told("REMOVE", FRESH, None)) == [("delivered", "a"), ("delivered", "b")]
    one = replace(FRESH, pending=frozenset("b"), states={"b": FAILED})
    (line,) = told("REMOVE", one, None)
    assert (line["subscription"], line["attempt"], line["destination"]) == (
        "b",
        2,
        "sqs:http://q/b",
    )
    assert line["at"] == AT


def test_the_dead_are_not_delivered_by_the_delete() -> None:
    partly = replace(FRESH, states={"a": DEAD})
    assert kinds(told("REMOVE", partly, None)) == [("delivered", "b")]
    assert told("REMOVE", replace(partly, gone="dead", pending=frozenset("a")), None) == []


@pytest.mark.parametrize("gone", ["cancelled", "purged", "expired"])
def test_a_marked_delete_tells_its_mark_and_no_delivery(gone: Any) -> None:
    (line,) = told("REMOVE", replace(FRESH, gone=gone, reason="why"), None)
    assert line["event"] == gone
    assert line.get("reason") == (None if gone == "expired" else "why")
    assert told("MODIFY", FRESH, replace(FRESH, gone=gone)) == []


def test_one_update_tells_who_took_it_and_who_refused() -> None:
    after = replace(FRESH, pending=frozenset("b"), states={"b": FAILED})
    lines = told("MODIFY", FRESH, after)
    assert kinds(lines) == [("failed", "b"), ("delivered", "a")]
    assert (lines[0]["at"], lines[0]["attempt"], lines[0]["reason"]) == (AT - 7, 1, "no")


def test_only_new_failures_are_told() -> None:
    before = replace(FRESH, states={"b": FAILED})
    again = SubscriptionState(2, AT, (*FAILED.history, Failure(2, AT, "still no")))
    lines = told("MODIFY", before, replace(FRESH, states={"b": again}))
    assert [(line["event"], line["attempt"]) for line in lines] == [("failed", 2)]


def test_a_death_tells_its_last_failure_and_that_it_died() -> None:
    after = replace(FRESH, pending=frozenset("b"), states={"b": DEAD}, gone="dead")
    lines = told("MODIFY", FRESH, after)
    assert kinds(lines) == [("failed", "b"), ("dead", "b"), ("delivered", "a")]
    assert lines[1]["reason"] == "max_attempts: no"


def test_a_purge_delivers_to_nobody() -> None:
    before = replace(FRESH, pending=frozenset("x"))
    assert told("MODIFY", before, replace(before, gone="purged", reason="removed")) == []


def test_on_a_pulled_topic_a_delete_is_a_delivery_to_who_pulled() -> None:
    pulled = replace(TOPIC, subscriptions=())
    assert kinds(told("REMOVE", FRESH, None, pulled)) == [("delivered", "pull")]
    assert kinds(told("REMOVE", FRESH, None, None)) == [("delivered", "pull")]


def test_a_delivery_is_never_before_its_message() -> None:
    change = Change("REMOVE", FRESH, None, "77", "event", ID_TIME - 400)
    assert {event.at for event in events_of(change, TOPIC)} == {ID_TIME}


def test_no_two_events_of_a_record_share_an_id_and_lines_have_no_breaks() -> None:
    after = replace(FRESH, pending=frozenset("b"), states={"a": DEAD, "b": FAILED})
    change = Change("MODIFY", FRESH, after, "77", "event", AT)
    events = list(events_of(change, TOPIC))
    assert len({event.event_id for event in events}) == len(events) == 3
    assert not any(b"\n" in archive_line(event, TOPIC) for event in events)
