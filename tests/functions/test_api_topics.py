"""Topics, subscriptions and figures over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fairbox.model.messages import Message
from fairbox.model.topics import RetryPolicy, Subscription, Topic

from tests.functions.api_client import read_event

if TYPE_CHECKING:
    from tests.functions.api_client import ApiClient, Reply


def put(api: ApiClient, path: str, value: object) -> Reply:
    return api.call("PUT", path, json.dumps(value), content_type="application/json")


def test_a_topic_is_created_once_and_then_brought_up_to_date(api: ApiClient) -> None:
    reply = api.send(read_event("http_api_put_topic"))
    assert reply.status == 201
    assert (reply.json["name"], reply.json["shards"], reply.json["dedup_window"]) == (
        "invoices",
        4,
        600,
    )
    assert api.send(read_event("http_api_put_topic")).status == 200
    changed = put(api, "/topics/invoices", {"retry": {"max_attempts": 3, "cap": 60}})
    assert (changed.status, changed.json["dedup_window"]) == (200, 600)
    changed = put(api, "/topics/invoices", {"dedup_window": None})
    topic = api.application.outbox.topic("invoices").topic
    assert topic == Topic("invoices", shards=4, retry=RetryPolicy(max_attempts=3, cap=60))
    assert api.call("GET", "/topics/invoices").json == changed.json


def test_weights_are_set_shown_and_refused_by_their_names(api: ApiClient) -> None:
    value: dict[str, Any] = {"weight": 2.5, "mini_batch": 4, "tenant_weights": {"acme": 3}}
    reply = put(api, "/topics/jobs", value)
    assert reply.status == 201
    assert {name: reply.json[name] for name in value} == value
    assert api.application.outbox.topic("jobs").topic == Topic("jobs", **value)
    for field, wrong in (("weight", 0), ("mini_batch", 0), ("tenant_weights.acme", 101)):
        name, _, tenant = field.partition(".")
        refused = put(api, "/topics/jobs", {name: {tenant: wrong} if tenant else wrong})
        assert refused.status == 422
        assert refused.json["errors"][0]["field"] == field


def test_a_full_topic_answers_429_and_when_to_come_again(api: ApiClient) -> None:
    made = put(api, "/topics/jobs", {"max_outstanding": 1})
    assert (made.status, made.json["max_outstanding"]) == (201, 1)
    first, refused = (api.post("jobs", {"body": b}) for b in "ab")
    assert first.status == 202
    assert (refused.status, refused.json["type"]) == (429, "urn:fairbox:problem:topic-full")
    assert refused.headers["retry-after"] == "10"
    assert api.application.outbox.outstanding_count("jobs") == 1


def test_the_retention_of_messages_is_set_changed_and_removed(api: ApiClient) -> None:
    assert put(api, "/topics/jobs", {}).json["message_retention"] is None
    for wanted in (60, 86_400, None):
        assert put(api, "/topics/jobs", {"message_retention": wanted}).status == 200
        assert api.call("GET", "/topics/jobs").json["message_retention"] == wanted
        assert api.application.outbox.topic("jobs").topic.message_retention == wanted
    put(api, "/topics/jobs", {"message_retention": 60})
    refused = put(api, "/topics/jobs/subscriptions/a", {"destination": "sqs:http://q/q"})
    assert (refused.status, refused.json["type"]) == (409, "urn:fairbox:problem:conflict")
    assert "message_retention" in refused.json["detail"]


def test_what_becomes_of_a_key_whose_message_died_is_set_and_shown(api: ApiClient) -> None:
    assert put(api, "/topics/jobs", {"ordering": "key"}).json["on_dead"] == "skip"
    reply = put(api, "/topics/jobs", {"ordering": "key", "on_dead": "block"})
    assert (reply.status, reply.json["on_dead"]) == (200, "block")
    assert api.call("GET", "/topics/jobs").json["on_dead"] == "block"
    assert api.application.outbox.topic("jobs").topic.on_dead == "block"
    for path, value in (
        ("/topics/jobs", {"ordering": "key", "on_dead": "wait"}),
        ("/topics/plain", {"on_dead": "block"}),
    ):
        refused = put(api, path, value)
        assert refused.status == 422
        assert refused.json["errors"][0]["field"] == "on_dead"


def test_a_delay_on_an_ordered_topic_is_refused(api: ApiClient) -> None:
    put(api, "/topics/jobs", {"ordering": "key"})
    refused = api.post("jobs", {"body": "", "partition_key": "k", "delay": 1})
    assert refused.status == 422
    assert refused.json["errors"][0]["field"] == "delay"


def test_a_topic_without_a_body_takes_the_defaults(api: ApiClient) -> None:
    assert api.call("PUT", "/topics/plain").status == 201
    assert api.application.outbox.topic("plain").topic == Topic("plain")


def test_what_only_a_resize_may_change_is_a_conflict_and_changes_nothing(api: ApiClient) -> None:
    before = api.application.outbox.topic("orders")
    for value in ({"shards": 16}, {"shards": 4, "ordering": "key"}):
        reply = put(api, "/topics/orders", value)
        assert (reply.status, reply.kind) == (409, "conflict")
    assert api.application.outbox.topic("orders") == before


def post(api: ApiClient, path: str, value: object) -> Reply:
    return api.call("POST", path, json.dumps(value), content_type="application/json")


def test_a_resize_is_taken_and_its_progress_shown(api: ApiClient) -> None:
    reply = post(api, "/topics/orders/resize", {"shards": 16})
    assert reply.status == 202
    newest = api.application.outbox.topic("orders").epochs[-1]
    assert reply.json == {
        "topic": "orders", "epoch": 1, "shards": 16, "before": 4, "begins_at": newest.since,
        "changed": True,
    }  # fmt: skip
    assert post(api, "/topics/orders/resize", {"shards": 16}).json["changed"] is False
    epochs = api.call("GET", "/topics/orders/epochs").json["epochs"]
    assert [(e["number"], e["shards"], e["phase"]) for e in epochs] == [
        (0, 4, "current"),
        (1, 16, "announced"),
    ]


def test_a_resize_that_cannot_be_is_refused(api: ApiClient) -> None:
    for value, status in (({"shards": 0}, 422), ({"shards": 1001}, 422), ({}, 422)):
        assert post(api, "/topics/orders/resize", value).status == status
    assert post(api, "/topics/nothing/resize", {"shards": 2}).status == 404
    assert api.call("GET", "/topics/nothing/epochs").status == 404
    post(api, "/topics/orders/resize", {"shards": 16})
    reply = post(api, "/topics/orders/resize", {"shards": 8})
    assert (reply.status, reply.kind) == (409, "conflict")


def test_topics_are_listed_by_name_with_their_subscriptions(api: ApiClient) -> None:
    put(api, "/topics/a-first", {})
    put(api, "/topics/orders/subscriptions/billing", {"destination": "sqs:https://q/a"})
    first, orders = api.call("GET", "/topics").json["topics"]
    assert (first["name"], first["pushed"], orders["pushed"]) == ("a-first", False, True)
    assert [s["name"] for s in orders["subscriptions"]] == ["billing"]
    assert orders["epochs"] == [{"number": 0, "shards": 4, "since": 0}]


def test_a_subscription_is_in_force_when_the_call_answers(api: ApiClient) -> None:
    path = "/topics/orders/subscriptions/billing"
    before = api.application.clock.now()
    value: dict[str, Any] = {
        "destination": "sqs:http://q/one",
        "max_attempts": 3,
        "timeout": 5,
        "weight": 2,
    }
    reply = put(api, path, value)
    assert reply.status == 201
    since = int(before * 1000)
    stands = {"circuit": "closed", "next_probe_at": None, "error": None, "paused_at": None}
    rest = {"max_in_flight": None, "rate": None, "pause_reason": None, **stands}
    assert reply.json == {"topic": "orders", "name": "billing", "since": since, **value, **rest}
    assert api.application.clock.now() - before >= 2
    assert put(api, path, {"destination": "sqs:http://q/two"}).status == 200
    (subscription,) = api.application.outbox.topic("orders").subscriptions
    assert subscription == Subscription("orders", "billing", "sqs:http://q/two")
    gone = api.call("DELETE", path)
    assert (gone.status, gone.body) == (204, b"")
    assert not api.application.outbox.topic("orders").pushed
    assert api.call("DELETE", path).kind == "unknown-subscription"


def test_a_subscription_is_paused_shown_and_resumed(api: ApiClient) -> None:
    path = "/topics/orders/subscriptions/billing"
    put(api, path, {"destination": "sqs:http://q/one", "max_in_flight": 3, "rate": 2.5})
    paused = put(api, f"{path}/pause", {"reason": "new system"})
    assert (paused.status, paused.json["pause_reason"]) == (200, "new system")
    assert paused.json["paused_at"] is not None
    assert (paused.json["max_in_flight"], paused.json["rate"]) == (3, 2.5)
    (topic,) = api.call("GET", "/topics").json["topics"]
    assert topic["subscriptions"] == [paused.json]
    resumed = api.call("DELETE", f"{path}/pause")
    assert (resumed.status, resumed.json["paused_at"], resumed.json["pause_reason"]) == (
        200,
        None,
        None,
    )
    assert api.call("PUT", f"{path}/pause").json["pause_reason"] == ""
    for method in ("PUT", "DELETE"):
        nobody = api.call(method, "/topics/orders/subscriptions/nobody/pause")
        assert nobody.kind == "unknown-subscription"
        assert api.call(method, "/topics/none/subscriptions/a/pause").kind == "unknown-topic"
    assert put(api, f"{path}/pause", {"reason": "x" * 201}).kind == "invalid-field"
    assert put(api, path, {"destination": "sqs:http://q/one", "rate": 0}).kind == "invalid-field"


def test_the_figures_count_what_lies_where(api: ApiClient) -> None:
    application = api.application
    application.outbox.create_topic(Topic("idle"))
    for delay in (0, 0, 0, 3600):
        message_id = application.ids.next()
        application.outbox.add(Message(topic="orders", body=b"", delay=delay, id=message_id))
    application.mark()
    application.clock.advance(90)
    reply = api.send(read_event("http_api_get_stats"))
    assert reply.status == 200
    idle, orders = reply.json["topics"]
    assert idle == {
        "topic": "idle",
        "outstanding": 0,
        "waiting": 0,
        "dead": 0,
        "oldest_age_seconds": 0.0,
        "delivered_per_second": 0.0,
    }
    assert (orders["outstanding"], orders["waiting"], orders["dead"]) == (4, 1, 0)
    assert 90 <= orders["oldest_age_seconds"] < 91
    assert reply.json["total"] == {k: v for k, v in orders.items() if k != "topic"}


def test_the_rate_is_that_of_the_minute_that_ended_half_a_minute_ago(api: ApiClient) -> None:
    application = api.application
    for second in range(150):
        message = Message(topic="orders", body=b"", id=application.ids.next())
        application.outbox.mark_delivered([application.outbox.add(message)])
        if second % 20 == 0:
            application.mark()
        application.clock.advance(1)
    application.mark()
    reply = api.send(read_event("http_api_get_stats"))
    (orders,) = reply.json["topics"]
    assert orders["delivered_per_second"] == 1.0
    assert reply.json["total"]["delivered_per_second"] == 1.0


def test_a_whole_number_may_be_written_with_a_fraction_of_nought(api: ApiClient) -> None:
    given = '{"shards": 3.0, "dedup_window": 60.0}'
    reply = api.call("PUT", "/topics/whole", given, content_type="application/json")
    assert (reply.status, reply.json["shards"], reply.json["dedup_window"]) == (201, 3, 60)
    reply = api.call("PUT", "/topics/parts", '{"shards": 2.5}', content_type="application/json")
    assert (reply.status, reply.fields) == (422, ["shards"])
