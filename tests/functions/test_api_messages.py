"""Listing, showing and cancelling messages over HTTP."""

from __future__ import annotations

import base64
import json
import random
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from fairbox.dispatch.burials import Burials
from fairbox.dispatch.ports import Outcome
from fairbox.model.messages import Message, MessageRef
from fairbox.model.topics import RetryPolicy, Subscription, Topic
from fairbox.tables.keys import PK, SK, lane_pk

from tests.functions.api_client import read_event

if TYPE_CHECKING:
    from tests.functions.api_client import ApiClient


def add(api: ApiClient, count: int, topic: str = "orders", **fields: Any) -> list[str]:
    refs = []
    for n in range(count):
        api.application.clock.advance(0.01)
        values = {"body": str(n).encode(), "id": api.application.ids.next(), **fields}
        refs.append(str(api.application.outbox.add(Message(topic=topic, **values))))
    return refs


def refs_of_all_pages(api: ApiClient, topic: str, **query: str) -> list[list[str]]:
    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        reply = api.page(topic, **query, **cursor)
        assert reply.status == 200
        pages.append([m["ref"] for m in reply.json["messages"]])
        if reply.json["cursor"] is None:
            return pages
        cursor = {"cursor": reply.json["cursor"]}


def flat(pages: list[list[str]]) -> list[str]:
    return list(chain.from_iterable(pages))


def die(api: ApiClient, topic: str, count: int) -> list[str]:
    """Make a topic whose messages die at the first failure, and let so many die."""
    application = api.application
    application.outbox.create_topic(Topic(topic, shards=4, retry=RetryPolicy(max_attempts=1)))
    application.outbox.add_subscription(Subscription(topic, "billing", f"sqs:http://q/{topic}"))
    application.destinations[f"sqs:http://q/{topic}"].answer = lambda _: Outcome(
        "refused", "no such account"
    )
    refs = add(api, count, topic)
    application.run(5)
    return refs


def test_outstanding_messages_are_listed_in_order_of_ids_across_shards(api: ApiClient) -> None:
    refs = add(api, 25)
    pages = refs_of_all_pages(api, "orders", limit="10")
    assert [len(page) for page in pages] == [10, 10, 5]
    assert flat(pages) == refs


def test_a_page_that_is_exactly_full_is_the_last(api: ApiClient) -> None:
    refs = add(api, 10)
    assert refs_of_all_pages(api, "orders", limit="10") == [refs]


def test_messages_added_between_pages_are_found_and_none_twice(api: ApiClient) -> None:
    first = add(api, 4)
    reply = api.page("orders", limit="3").json
    late = add(api, 2)
    api.application.outbox.cancel([MessageRef.parse(first[0])])
    rest = api.page("orders", limit="3", cursor=reply["cursor"]).json
    assert [m["ref"] for m in reply["messages"] + rest["messages"]] == first + late


def test_waiting_and_due_messages_are_in_one_list_each(api: ApiClient) -> None:
    soon = add(api, 3, delay=60)
    late = add(api, 3, delay=3600)
    ready = add(api, 2)
    assert flat(refs_of_all_pages(api, "orders", state="outstanding", limit="1")) == ready
    assert flat(refs_of_all_pages(api, "orders", state="waiting", limit="2")) == soon + late
    api.application.clock.advance(600)
    assert flat(refs_of_all_pages(api, "orders", limit="1")) == ready + soon
    assert flat(refs_of_all_pages(api, "orders", state="waiting")) == late
    states = {m["ref"]: m["state"] for m in api.page("orders").json["messages"]}
    assert set(states.values()) == {"outstanding"}


def test_dead_letters_are_listed_with_reason_and_history(api: ApiClient) -> None:
    refs = die(api, "poison", 7)
    assert flat(refs_of_all_pages(api, "poison", state="dead", limit="3")) == refs
    (first, *_) = api.page("poison", state="dead").json["messages"]
    assert (first["state"], first["reason"]) == ("dead", "no such account")
    assert first["pending"] == ["billing"]
    assert first["died_at"] >= first["added_at"]
    (state,) = first["subscriptions"]
    assert (state["subscription"], state["attempts"], state["dead"]) == ("billing", 1, True)
    assert state["history"][0]["error"] == "no such account"
    assert api.page("poison").json["messages"] == []
    assert [str(letter.ref) for letter in api.application.outbox.dead("poison")] == refs


def test_an_item_that_nothing_can_read_is_listed_and_shown_raw(api: ApiClient) -> None:
    application = api.application
    message_id = application.ids.next()
    item = {PK: {"S": lane_pk("ready", "orders", 0, 1)}, SK: {"S": message_id}, "?": {"S": "x"}}
    Burials(application.tables).bury_raw(item, "no version")
    (shown,) = api.page("orders", state="dead").json["messages"]
    assert (shown["reason"], shown["body_omitted"], shown["body"]) == (
        "no version",
        "unreadable",
        None,
    )
    assert json.loads(shown["raw"])["?"] == {"S": "x"}
    assert api.call("GET", f"/messages/{shown['ref']}").json == shown


def test_deliveries_are_listed_from_the_ledger_by_time(api: ApiClient) -> None:
    application = api.application
    application.outbox.add_subscription(Subscription("orders", "billing", "sqs:http://q/b"))
    application.outbox.add_subscription(Subscription("orders", "audit", "sqs:http://q/a"))
    application.clock.set(1_760_000_100.0)
    early = add(api, 5)
    application.run()
    application.clock.set(1_760_003_600.0)
    late = add(api, 5)
    application.run()
    every = flat(refs_of_all_pages(api, "orders", state="delivered", limit="3"))
    assert sorted(every) == sorted([*early, *late] * 2)
    assert every[:10] != every[10:]
    deliveries = api.page("orders", state="delivered").json["messages"]
    assert {d["subscription"] for d in deliveries} == {"audit", "billing"}
    assert [d["delivered_at"] for d in deliveries] == sorted(d["delivered_at"] for d in deliveries)
    for since in ("1760003000000", "2025-10-09T09:43:20+00:00", "2025-10-09T09:43:20Z"):
        found = api.page("orders", state="delivered", since=since).json["messages"]
        assert {d["ref"] for d in found} == set(late)
    found = api.page("orders", state="delivered", until="1760003000000").json["messages"]
    assert {d["ref"] for d in found} == set(early)


def test_bodies_are_text_or_base64(api: ApiClient) -> None:
    add(api, 1, body="grüezi".encode())
    add(api, 1, body=b"\xff\x00")
    text, binary = api.page("orders").json["messages"]
    assert (text["body"], text["body_encoding"]) == ("grüezi", "utf-8")
    assert (base64.b64decode(binary["body"]), binary["body_encoding"]) == (b"\xff\x00", "base64")
    assert (text["size"], binary["size"]) == (7, 2)


def test_a_page_ends_before_it_outgrows_an_answer(api: ApiClient) -> None:
    refs = add(api, 5, body=b"x" * 1_500_000)
    pages = refs_of_all_pages(api, "orders")
    assert [len(page) for page in pages] == [2, 2, 1]
    assert flat(pages) == refs


def test_a_body_that_fits_no_answer_is_left_out_and_said_so(api: ApiClient) -> None:
    (large,) = add(api, 1, body=b"\xff" * 4_000_000)
    (larger,) = add(api, 1, body=b"x" * 5_000_000)
    for ref in (large, larger):
        shown = api.call("GET", f"/messages/{ref}")
        assert len(shown.body) < 1000
        assert (shown.json["body"], shown.json["body_omitted"]) == (None, "too large")
    assert refs_of_all_pages(api, "orders") == [[large, larger]]


def test_a_large_answer_goes_as_base64_which_escapes_nothing_twice(api: ApiClient) -> None:
    (ref,) = add(api, 1, body=b'"' * 2_000_000)
    response = api.app.resolve(api.event("GET", f"/messages/{ref}"), None)
    assert response["isBase64Encoded"]
    assert len(json.dumps(response)) < 6_000_000
    assert api.call("GET", f"/messages/{ref}").json["body"] == '"' * 2_000_000


@pytest.mark.parametrize("delay", [0, 30])
def test_a_message_is_shown_and_cancelled_by_its_ref(api: ApiClient, delay: int) -> None:
    (ref,) = add(api, 1, delay=delay)
    for written in (ref, quote(ref, safe="")):
        shown = api.call("GET", f"/messages/{written}")
        assert (shown.status, shown.json["ref"]) == (200, ref)
    assert shown.json["state"] == ("waiting" if delay else "outstanding")
    reply = api.call("DELETE", f"/messages/{ref}", query={"reason": "ordered twice"})
    assert (reply.status, reply.body) == (204, b"")
    assert api.application.outbox.outstanding_count("orders") == 0
    for method in ("GET", "DELETE"):
        again = api.call(method, f"/messages/{ref}")
        assert (again.status, again.kind) == (404, "unknown-message")
    api.application.run()
    assert b'"reason":"ordered twice"' in b"".join(api.application.archive.lines)


def test_a_message_is_skipped_for_one_subscription(api: ApiClient) -> None:
    outbox = api.application.outbox
    for name in ("billing", "crm"):
        outbox.add_subscription(Subscription("orders", name, f"sqs:http://q/{name}"))
        outbox.pause_subscription("orders", name)
    (ref,) = add(api, 1)
    for name, status, kind in (
        ("crm", 204, None), ("crm", 204, None), ("other", 404, "unknown-subscription"),
    ):  # fmt: skip
        reply = api.call("DELETE", f"/messages/{ref}", query={"subscription": name, "reason": "r"})
        assert (reply.status, reply.kind if kind else None) == (status, kind)
    outbox.resume_subscription("orders", "billing")
    api.application.run(90)
    assert len(api.application.destinations["sqs:http://q/billing"].ids) == 1
    assert api.application.destinations["sqs:http://q/crm"].ids == []
    query = {"subscription": "billing"}
    reply = api.call("DELETE", f"/messages/{ref}", query=query)
    assert (reply.status, reply.kind) == (404, "unknown-message")


def test_a_dead_letter_is_shown_and_not_cancelled(api: ApiClient) -> None:
    (ref,) = die(api, "poison", 1)
    assert api.call("GET", f"/messages/{ref}").json["state"] == "dead"
    reply = api.call("DELETE", f"/messages/{ref}")
    assert (reply.status, reply.kind) == (409, "conflict")


def test_a_real_event_lists_messages(api: ApiClient) -> None:
    refs = add(api, 3)
    reply = api.send(read_event("http_api_get_messages"))
    assert [m["ref"] for m in reply.json["messages"]] == refs[:2]


def test_a_body_that_cannot_be_fetched_hides_no_message(api: ApiClient) -> None:
    (ref,) = add(api, 1, body=b"small")
    (gone,) = add(api, 1, body=random.Random(3).randbytes(500_000))
    api.application.outbox._context.tables.bodies = None
    shown = api.page("orders").json["messages"]
    assert [m["ref"] for m in shown] == [ref, gone]
    assert [m["body_omitted"] for m in shown] == [None, "unavailable"]
