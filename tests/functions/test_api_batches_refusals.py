"""Bad input to the routes of batches: a problem, and nothing changed."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import BatchBusy
from fairbox.api.batch_models import MAX_ADD_GROUPS, MAX_GROUPS, MAX_ITEMS
from fairbox.client.batches import Batches
from fairbox.settings import Settings
from fairbox.testing.application import BATCHES, DELIVERIES, OUTBOX

from tests.functions.api_client import ApiClient, Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.testing.application import MemoryApplication

NOBODY = "0199c82c-c000-7611-a29f-000000000000"
SETTLE = ["acks", "fails", "retries"]


def post(api: ApiClient, path: str, value: object = None) -> Reply:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return api.call("POST", path, body, content_type="application/json")


def snapshot(application: MemoryApplication) -> list[Any]:
    return [application.engine.items(table) for table in (OUTBOX, DELIVERIES, BATCHES)]


@pytest.fixture
def batch(application: MemoryApplication) -> str:
    """Six items in groups of four; the first is acked, the second failed."""
    made = application.batches.open().id
    application.batches.add(made, 6, request_id="r", group_size=4)
    application.batches.ack([f"{made}:0:0"])
    application.batches.fail([f"{made}:0:1"])
    return made


@pytest.fixture
def ended(application: MemoryApplication) -> dict[str, str]:
    """Batches that take nothing more, by state."""
    made = {state: application.batches.open().id for state in ("sealed", "complete", "cancelled")}
    for other in made.values():
        application.batches.add(other, 1, request_id="r")
    application.batches.seal(made["sealed"])
    application.batches.seal(made["complete"])
    application.batches.ack([f"{made['complete']}:0:0"])
    application.batches.cancel(made["cancelled"])
    return made


@pytest.fixture(autouse=True)
def _nothing_changes(
    application: MemoryApplication, batch: str, ended: dict[str, str]
) -> Iterator[None]:
    assert batch
    assert ended
    before = snapshot(application)
    yield
    assert snapshot(application) == before


@pytest.mark.parametrize("verb", SETTLE)
def test_every_id_that_was_never_issued_is_named(api: ApiClient, batch: str, verb: str) -> None:
    unknown, malformed = f"{batch}:2:0", f"{batch}:0:-1"
    for kind, bad in (
        ("unknown-items", [unknown]),
        ("invalid-field", [malformed]),
        ("invalid-field", [unknown, malformed]),
    ):
        reply = post(api, f"/batches/{verb}", {"items": [f"{batch}:0:1", *bad]})
        assert (reply.status, reply.kind) == (422, kind)
        assert sorted(reply.json["items"]) == sorted(bad)


def test_bad_ids_among_thousands_are_all_named(api: ApiClient, batch: str) -> None:
    bad = [f"{NOBODY}:0:{index}" for index in range(MAX_ITEMS - 1)]
    reply = post(api, "/batches/acks", {"items": [f"{batch}:0:2", *bad]})
    assert reply.status == 422
    assert sorted(reply.json["items"]) == sorted(bad)


@pytest.mark.parametrize(("letter", "length"), [("\x01", 60), ("é", 210)])
def test_garbage_of_the_longest_kind_fits_an_answer(
    api: ApiClient, letter: str, length: int
) -> None:
    items = [f"{number}{letter * length}" for number in range(MAX_ITEMS)]
    body = json.dumps({"items": items}, ensure_ascii=False)
    event = api.event("POST", "/batches/acks", body, content_type="application/json")
    response = api.app.resolve(event, None)
    assert response["statusCode"] == 422
    assert len(json.dumps(response)) < 6_000_000
    assert len(json.loads(base64.b64decode(response["body"]))["items"]) == MAX_ITEMS


@pytest.mark.parametrize("verb", SETTLE)
def test_items_of_a_cancelled_batch_are_a_conflict(
    api: ApiClient, batch: str, ended: dict[str, str], verb: str
) -> None:
    gone = f"{ended['cancelled']}:0:0"
    reply = post(api, f"/batches/{verb}", {"items": [f"{batch}:0:1", f"{batch}:1:0", gone]})
    assert (reply.status, reply.kind) == (409, "batch-ended")
    assert reply.json["items"] == [gone]


@pytest.mark.parametrize("verb", SETTLE)
def test_a_hundred_thousand_ids_in_one_call_are_refused_with_the_limit(
    api: ApiClient, batch: str, verb: str
) -> None:
    for count in (MAX_ITEMS + 1, 100_000):
        items = [f"{batch}:0:{index % 4}" for index in range(count)]
        reply = post(api, f"/batches/{verb}", {"items": items})
        assert (reply.status, reply.kind) == (413, "too-large")
        assert reply.fields in (["items"], ["body"])
        if reply.fields == ["items"]:
            assert str(MAX_ITEMS) in reply.json["detail"]


def test_ids_of_too_many_groups_are_refused_with_the_limit(api: ApiClient, batch: str) -> None:
    items = [f"{batch}:{group}:0" for group in range(MAX_GROUPS + 1)]
    reply = post(api, "/batches/acks", {"items": items})
    assert (reply.status, reply.fields) == (413, ["items"])
    assert str(MAX_GROUPS) in reply.json["detail"]


NAMED: dict[str, list[tuple[Any, str]]] = {
    "POST /batches/acks": [
        ({}, "items"),
        ({"items": "one"}, "items"),
        ({"items": [None]}, "items.0"),
        ({"items": [], "colour": "red"}, "colour"),
        ([], "$"),
    ],
    "POST /batches/fails": [({"items": ["x"], "reason": 7}, "reason")],
    "POST /batches/{batch}/items": [
        ({"count": 0, "request_id": "n"}, "count"),
        ({"count": True, "request_id": "n"}, "count"),
        ({"count": MAX_ADD_GROUPS + 1, "request_id": "n", "group_size": 1}, "count"),
        ({"request_id": "n"}, "count"),
        ({"count": 1, "request_id": "a\nb"}, "request_id"),
        ({"count": 1, "request_id": "n", "group_size": 7169}, "group_size"),
    ],
    "POST /batches": [
        ({"metadata": {"x": "y" * 4096}}, "metadata"),
        ({"metadata": {"x": "\ud800"}}, "metadata"),
        ({"user_key": "a\nb"}, "user_key"),
        ({"parent_item": "nothing"}, "parent_item"),
        ({"id": NOBODY.upper()}, "id"),
    ],
    "GET /batches": [({"state": "asleep"}, "state"), ({"limit": "101"}, "limit")],
    "GET /batches/{batch}": [({"exact": "perhaps"}, "exact")],
    "GET /batches/{batch}/missing": [
        ({"limit": "10001"}, "limit"),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "A" * 2001}, "cursor"),
        ({"state": "open"}, "state"),
    ],
    "GET /batches/{batch}/failed": [({"limit": "0"}, "limit"), ({"cursor": ""}, "cursor")],
}
"""By route: a body or a query that is wrong, and the field that is named."""


@pytest.mark.parametrize(
    ("route", "value", "field"), [(route, *one) for route, all_ in NAMED.items() for one in all_]
)
def test_a_field_that_is_not_what_it_takes_is_named(
    api: ApiClient, batch: str, route: str, value: Any, field: str
) -> None:
    method, path = route.replace("{batch}", batch).split()
    reply = post(api, path, value) if method == "POST" else api.call(method, path, query=value)
    assert (reply.status, reply.fields) == (422, [field])


def test_an_add_with_other_values_is_a_conflict(api: ApiClient, batch: str) -> None:
    for value in ({"count": 5, "group_size": 4}, {"count": 6, "group_size": 3}):
        reply = post(api, f"/batches/{batch}/items", value | {"request_id": "r"})
        assert (reply.status, reply.kind) == (409, "request-conflict")


@pytest.mark.parametrize(
    ("state", "kind"),
    [("sealed", "batch-sealed"), ("complete", "batch-ended"), ("cancelled", "batch-ended")],
)
def test_an_add_after_the_end_is_a_conflict(
    api: ApiClient, ended: dict[str, str], state: str, kind: str
) -> None:
    reply = post(api, f"/batches/{ended[state]}/items", {"count": 1, "request_id": "late"})
    assert (reply.status, reply.kind) == (409, kind)


def test_seal_twice_answers_the_same_and_seal_after_cancel_is_a_conflict(
    api: ApiClient, ended: dict[str, str]
) -> None:
    first = api.call("POST", f"/batches/{ended['sealed']}/seal")
    again = api.call("POST", f"/batches/{ended['sealed']}/seal")
    assert (first.status, first.json) == (200, again.json)
    gone = api.call("POST", f"/batches/{ended['cancelled']}/seal")
    assert (gone.status, gone.kind) == (409, "batch-ended")


def test_a_parent_item_that_is_not_pending_is_unknown(api: ApiClient, batch: str) -> None:
    for item in (f"{batch}:0:0", f"{batch}:9:0", f"{NOBODY}:0:0"):
        reply = post(api, "/batches", {"parent_item": item})
        assert (reply.status, reply.kind) == (422, "unknown-items")
        assert reply.json["items"] == [item]


@pytest.mark.parametrize("name", [NOBODY, NOBODY.upper(), "x", "é", "x" * 300])
def test_a_batch_that_is_not_there_is_404_on_every_route(api: ApiClient, name: str) -> None:
    path = f"/batches/{name}"
    replies = [
        api.call("GET", path),
        api.call("GET", path, query={"exact": "false"}),
        api.call("DELETE", path),
        post(api, f"{path}/items", {"count": 1, "request_id": "r"}),
        api.call("POST", f"{path}/seal"),
        api.call("GET", f"{path}/missing"),
        api.call("GET", f"{path}/failed"),
    ]
    assert [(r.status, r.kind) for r in replies] == [(404, "unknown-batch")] * len(replies)


def cursor(*fields: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


def test_a_cursor_of_another_list_is_refused(api: ApiClient, batch: str) -> None:
    path = f"/batches/{batch}/missing"
    taken = api.call("GET", path, query={"limit": "1"}).json["cursor"]
    for forged in (
        cursor(f"missing {batch}", f"{NOBODY}:0:0"),
        cursor(f"missing {batch}", 7),
        cursor(f"missing {batch}"),
        cursor(f"failed {batch}", f"{batch}:0:0"),
    ):
        reply = api.call("GET", path, query={"cursor": forged})
        assert (reply.status, reply.fields) == (422, ["cursor"])
    assert api.call("GET", path, query={"cursor": taken}).status == 200
    place = f"0:1:{NOBODY}"
    for forged in (taken, cursor("batches sealed", place), cursor("batches open", "0:1:x")):
        reply = api.call("GET", "/batches", query={"cursor": forged})
        assert (reply.status, reply.fields) == (422, ["cursor"])
    assert (
        api.call("GET", "/batches", query={"cursor": cursor("batches open", place)}).status == 200
    )


def test_an_unknown_parameter_is_422_on_every_route(api: ApiClient, batch: str) -> None:
    path = f"/batches/{batch}"
    for method, route in (
        ("POST", "/batches"),
        ("GET", "/batches"),
        *(("POST", f"/batches/{verb}") for verb in SETTLE),
        ("GET", path),
        ("DELETE", path),
        ("POST", f"{path}/items"),
        ("POST", f"{path}/seal"),
        ("GET", f"{path}/missing"),
        ("GET", f"{path}/failed"),
    ):
        reply = api.call(method, route, query={"verbose": "1"})
        assert (reply.status, reply.fields) == (422, ["verbose"])


def test_a_body_that_is_no_json_is_refused(api: ApiClient, batch: str) -> None:
    for path in ("/batches", f"/batches/{batch}/items", "/batches/acks"):
        assert post(api, path, b"{").status == 400
        assert api.call("POST", path, "x", content_type="text/plain").status == 415


def test_what_stays_busy_is_to_be_sent_again(
    api: ApiClient, batch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [f"{batch}:0:2", f"{batch}:1:0"]

    def busy(_: list[str]) -> None:
        raise BatchBusy(left)

    monkeypatch.setattr(api.application.batches, "ack", busy)
    reply = post(api, "/batches/acks", {"items": left})
    assert (reply.status, reply.kind, reply.json["left"]) == (503, "batch-busy", left)
    assert int(reply.headers["retry-after"]) > 0


def test_without_a_batches_table_only_the_routes_of_batches_fail(
    application: MemoryApplication,
) -> None:
    api = ApiClient(application, batches=lambda: Batches.from_env(Settings({})))
    assert api.call("GET", "/batches").status == 500
    assert api.call("GET", "/topics").status == 200
