"""Batches over HTTP: opened, filled, sealed, settled, watched, listed and cancelled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fairbox.tables.batch_values import COMPLETED_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.functions.api_client import ApiClient, Reply

OWN = "0199c82c-c000-7611-a29f-000000000007"


def post(api: ApiClient, path: str, value: object = None) -> Reply:
    body = None if value is None else json.dumps(value)
    return api.call("POST", path, body, content_type="application/json")


def opened(api: ApiClient, **fields: object) -> str:
    reply = post(api, "/batches", fields)
    assert reply.status == 201
    return str(reply.json["id"])


def added(api: ApiClient, batch: str, count: int, **fields: object) -> list[dict[str, Any]]:
    reply = post(api, f"/batches/{batch}/items", {"count": count, "request_id": "r1"} | fields)
    assert reply.status == 200
    groups: list[dict[str, Any]] = reply.json["groups"]
    return groups


def items_of(groups: Iterable[dict[str, Any]]) -> list[str]:
    return [f"{group['id']}:{index}" for group in groups for index in range(group["size"])]


def completions(api: ApiClient) -> list[Any]:
    found = api.application.outbox.outstanding(COMPLETED_TOPIC)
    return [json.loads(message.body) for message in found]


def test_a_fan_out_is_opened_filled_sealed_and_completed(api: ApiClient) -> None:
    reply = post(api, "/batches", {"user_key": "catalog-7", "metadata": {"a": [1, None]}})
    batch = reply.json["id"]
    assert reply.headers["location"] == f"/batches/{batch}"
    assert (reply.json["state"], reply.json["total"]) == ("open", 0)
    groups = added(api, batch, 10, group_size=4)
    assert [(g["id"], g["size"]) for g in groups] == [
        (f"{batch}:0", 4),
        (f"{batch}:1", 4),
        (f"{batch}:2", 2),
    ]
    items = items_of(groups)
    first = post(api, "/batches/acks", {"items": items[:6] + items[:2]})
    assert (first.status, first.json) == (200, {"changed": 6, "completed": []})
    sealed = post(api, f"/batches/{batch}/seal")
    assert sealed.json == {
        "id": batch,
        "state": "sealed",
        "complete": False,
        "total": 10,
        "pending": 4,
        "acked": 6,
        "failed": 0,
        "exact": True,
        "error": 0,
        "limit": 4,
    }
    failed = post(api, "/batches/fails", {"items": items[6:7], "reason": "no such product"})
    assert failed.json == {"changed": 1, "completed": []}
    last = post(api, "/batches/acks", {"items": items})
    assert last.json == {"changed": 3, "completed": [batch]}
    assert post(api, "/batches/acks", {"items": items}).json == {"changed": 0, "completed": []}
    assert post(api, f"/batches/{batch}/seal").json["complete"] is True
    [message] = completions(api)
    assert (message["id"], message["acked"], message["failed"]) == (batch, 9, 1)
    assert message["metadata"] == {"a": [1, None]}


def test_the_same_id_shows_the_batch_that_is_there(api: ApiClient) -> None:
    first = post(api, "/batches", {"id": OWN, "user_key": "one"})
    again = post(api, "/batches", {"id": OWN, "user_key": "two"})
    assert (first.status, again.status) == (201, 200)
    assert again.json == first.json
    assert again.headers["location"] == f"/batches/{OWN}"


def test_a_batch_is_opened_without_a_body(api: ApiClient) -> None:
    reply = api.call("POST", "/batches")
    assert (reply.status, reply.json["user_key"]) == (201, "")


def test_the_same_request_id_shows_the_same_groups(api: ApiClient) -> None:
    batch = opened(api)
    assert added(api, batch, 10, group_size=4) == added(api, batch, 10, group_size=4)
    assert api.call("GET", f"/batches/{batch}").json["total"] == 10
    other = added(api, batch, 1, request_id="r2")
    assert [g["id"] for g in other] == [f"{batch}:3"]


def test_a_batch_is_shown_with_progress_and_metadata(api: ApiClient) -> None:
    batch = opened(api, user_key="k", metadata={"a": 1})
    items = items_of(added(api, batch, 300, group_size=2))
    post(api, "/batches/acks", {"items": items[:100]})
    shown = api.call("GET", f"/batches/{batch}").json
    assert (shown["total"], shown["acked"], shown["pending"]) == (300, 100, 200)
    assert (shown["user_key"], shown["metadata"]) == ("k", {"a": 1})
    assert (shown["exact"], shown["parent_item"]) == (True, None)
    assert shown["opened_at"] == int(api.application.clock.now() * 1000)
    post(api, "/batches/retries", {"items": []})
    cheap = api.call("GET", f"/batches/{batch}", query={"exact": "false"}).json
    assert cheap["limit"] <= 300
    assert cheap["total"] == 300


def test_progress_of_a_large_batch_may_be_estimated(api: ApiClient) -> None:
    batch = opened(api)
    added(api, batch, 600, group_size=2)
    assert api.call("GET", f"/batches/{batch}", query={"exact": "true"}).json["exact"] is True
    estimate = api.call("GET", f"/batches/{batch}", query={"exact": "false"}).json
    assert (estimate["exact"], estimate["pending"]) == (False, 600)


def test_failed_items_are_listed_with_reasons_and_put_back(api: ApiClient) -> None:
    batch = opened(api)
    items = items_of(added(api, batch, 8, group_size=3))
    post(api, "/batches/fails", {"items": items[2:6], "reason": "broken"})
    first = api.call("GET", f"/batches/{batch}/failed", query={"limit": "3"}).json
    assert first["items"] == [{"id": item, "reason": "broken"} for item in items[2:5]]
    rest = api.call(
        "GET", f"/batches/{batch}/failed", query={"limit": "3", "cursor": first["cursor"]}
    ).json
    assert rest == {"items": [{"id": items[5], "reason": "broken"}], "cursor": None}
    assert post(api, "/batches/retries", {"items": items[2:4]}).json["changed"] == 2
    left = api.call("GET", f"/batches/{batch}/failed").json["items"]
    assert [entry["id"] for entry in left] == items[4:6]


def test_missing_items_come_in_pages(api: ApiClient) -> None:
    batch = opened(api)
    items = items_of(added(api, batch, 25, group_size=4))
    post(api, "/batches/acks", {"items": items[3:9]})
    found: list[str] = []
    query = {"limit": "6"}
    while True:
        page = api.call("GET", f"/batches/{batch}/missing", query=query).json
        found += page["items"]
        if page["cursor"] is None:
            break
        assert len(page["items"]) == 6
        query["cursor"] = page["cursor"]
    assert found == items[:3] + items[9:]


def test_batches_are_listed_by_state_in_pages(api: ApiClient) -> None:
    batches = {opened(api, user_key=f"k{n}") for n in range(5)}
    found: list[str] = []
    query = {"state": "open", "limit": "2"}
    while True:
        page = api.call("GET", "/batches", query=query).json
        found += [batch["id"] for batch in page["batches"]]
        if page["cursor"] is None:
            break
        query["cursor"] = page["cursor"]
    assert sorted(found) == sorted(batches)
    added(api, found[0], 3)
    post(api, f"/batches/{found[0]}/seal")
    [sealed] = api.call("GET", "/batches", query={"state": "sealed"}).json["batches"]
    assert (sealed["id"], sealed["state"], sealed["total"]) == (found[0], "sealed", 3)
    assert found[0] not in {b["id"] for b in api.call("GET", "/batches").json["batches"]}


def test_callbacks_are_opened_shown_and_refused_with_their_field(api: ApiClient) -> None:
    given = {
        "on_complete": "sqs:http://q/orders-a",
        "on_success": "sqs:http://q/orders-b",
        "retry_hours": 3,
    }
    given["on_cancel"] = "sqs:http://q/orders-b"
    reply = post(api, "/batches", given)
    assert (reply.status, reply.json["retry_hours"]) == (201, 3)
    shown = api.call("GET", f"/batches/{reply.json['id']}").json
    assert shown["on_complete"].startswith("fairbox.batches.to.")
    assert shown["on_complete"] != shown["on_success"] == shown["on_cancel"]
    for field, value in (("on_complete", "nowhere"), ("on_success", "ftp:x"), ("retry_hours", 169)):
        refused = post(api, "/batches", given | {field: value})
        assert (refused.status, refused.kind) == (422, "invalid-field")
        assert [error["field"] for error in refused.json["errors"]] == [field]


def test_no_item_of_a_large_cancelled_batch_can_be_acked(api: ApiClient) -> None:
    batch = api.call("POST", "/batches").json["id"]
    add = {"count": 130, "request_id": "r", "group_size": 1}
    post(api, f"/batches/{batch}/items", add)
    assert api.call("DELETE", f"/batches/{batch}").status == 204
    for group in (0, 129):
        reply = post(api, "/batches/acks", {"items": [f"{batch}:{group}:0"]})
        assert (reply.status, reply.kind) == (409, "batch-ended")
    shown = api.call("GET", f"/batches/{batch}").json
    assert (shown["pending"], shown["acked"]) == (130, 0)


def test_a_cancelled_batch_is_not_announced_and_stays_cancelled(api: ApiClient) -> None:
    batch = opened(api)
    items = items_of(added(api, batch, 2))
    for _ in range(2):
        reply = api.call("DELETE", f"/batches/{batch}")
        assert (reply.status, reply.body) == (204, b"")
    ack = post(api, "/batches/acks", {"items": items})
    assert (ack.status, ack.kind, ack.json["items"]) == (409, "batch-ended", items)
    assert api.call("GET", f"/batches/{batch}").json["state"] == "cancelled"


def test_a_nested_batch_settles_the_item_of_its_parent(api: ApiClient) -> None:
    parent = opened(api)
    [item] = items_of(added(api, parent, 1))
    post(api, f"/batches/{parent}/seal")
    child = opened(api, parent_item=item)
    assert api.call("GET", f"/batches/{child}").json["parent_item"] == item
    assert post(api, f"/batches/{child}/seal").json["complete"] is True
    assert api.call("GET", f"/batches/{parent}").json["complete"] is True
