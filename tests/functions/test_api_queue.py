"""The queue over HTTP: receive, acknowledge, give back, extend; what is refused changes nothing."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from fairbox import Message, MessageRef, Queue, RetryPolicy, Subscription, Throttled, Topic
from fairbox.api import queue_routes as queueing
from fairbox.api.responses import MAX_ANSWER_BYTES

if TYPE_CHECKING:
    from fairbox.testing.application import MemoryApplication

    from tests.functions.api_client import ApiClient, Reply

pytestmark = pytest.mark.usefixtures("jobs")


@pytest.fixture
def jobs(application: MemoryApplication) -> None:
    """Topic `jobs`, of one shard, whose messages die at the third receive."""
    application.outbox.create_topic(
        Topic("jobs", shards=1, retry=RetryPolicy(max_attempts=3, base=10, cap=10))
    )


def post(api: ApiClient, path: str, value: object) -> Reply:
    return api.call("POST", path, json.dumps(value), content_type="application/json")


def receive(api: ApiClient, **more: Any) -> list[dict[str, Any]]:
    reply = post(api, "/topics/jobs/receive", more)
    assert reply.status == 200
    found: list[dict[str, Any]] = reply.json["messages"]
    return found


def send(api: ApiClient, *bodies: bytes, topic: str = "jobs", **more: Any) -> list[Message]:
    application = api.application
    made = [Message(topic=topic, body=b, id=application.ids.next(), **more) for b in bodies]
    application.outbox.add_many(made)
    application.clock.advance(1)
    return made


class TestReceiving:
    def test_a_message_is_given_with_what_it_was_published_with(self, api: ApiClient) -> None:
        (sent,) = send(
            api,
            b'{"id": 7}',
            partition_key="customer-42",
            content_type="application/json",
            headers={"traceparent": "00-1"},
        )
        (got,) = receive(api, visibility_timeout=60)
        receipt = got.pop("receipt")
        assert receipt
        ref = MessageRef.parse(got["ref"])
        assert (ref.topic, ref.id) == ("jobs", sent.id)
        assert got == {
            "receive_count": 1,
            "visible_at": got["visible_at"],
            "ref": str(ref),
            "topic": "jobs",
            "id": sent.id,
            "added_at": got["added_at"],
            "partition_key": "customer-42",
            "content_type": "application/json",
            "headers": {"traceparent": "00-1"},
            "body": '{"id": 7}',
            "body_encoding": "utf-8",
            "body_omitted": None,
            "size": 9,
            "dedup_key": None,
            "fairness_key": None,
            "batch_item": None,
            "reason": None,
            "subscriptions": None,
        }
        now = round(api.application.clock.now() * 1000)
        assert got["visible_at"] == now + 60_000
        assert got["added_at"] == now - 1000

    def test_without_a_body_the_defaults_hold(self, api: ApiClient) -> None:
        send(api, *(b"%d" % n for n in range(12)))
        reply = api.call("POST", "/topics/jobs/receive")
        assert len(reply.json["messages"]) == 10

    def test_bytes_come_as_base64(self, api: ApiClient) -> None:
        send(api, b"\xff\x00")
        (got,) = receive(api)
        assert (got["body"], got["body_encoding"]) == (
            base64.b64encode(b"\xff\x00").decode(),
            "base64",
        )

    def test_a_held_message_is_given_to_nobody_else_until_its_time(self, api: ApiClient) -> None:
        send(api, b"x")
        assert len(receive(api, visibility_timeout=30)) == 1
        assert receive(api) == []
        api.application.clock.advance(61)  # a look from the head comes once a minute
        (again,) = receive(api)
        assert again["receive_count"] == 2

    def test_it_waits_for_the_first_message_and_no_longer(self, api: ApiClient) -> None:
        before = api.application.clock.now()
        assert receive(api, wait=20) == []
        assert 20 <= api.application.clock.now() - before < 21

    def test_a_paused_topic_gives_nothing(self, api: ApiClient) -> None:
        send(api, b"x")
        api.application.outbox.pause_topic("jobs")
        assert receive(api) == []
        assert api.call("GET", "/topics/jobs").json["paused"] is True

    def test_what_fits_no_answer_is_given_back_uncounted(
        self, api: ApiClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(queueing, "MAX_ANSWER_BYTES", 3000)
        send(api, *(b"%d" % n + b"x" * 1200 for n in range(4)))
        first = receive(api)
        assert 1 <= len(first) < 4
        second = receive(api)
        assert second
        assert {m["receive_count"] for m in first + second} == {1}
        assert not {m["id"] for m in first} & {m["id"] for m in second}

    def test_a_failure_to_give_the_rest_back_keeps_no_message_from_the_caller(
        self, api: ApiClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(queueing, "MAX_ANSWER_BYTES", 3000)
        send(api, *(b"%d" % n + b"x" * 1200 for n in range(4)))
        engine, claims = api.application.engine, iter([None])
        call = engine.batch_execute_statement

        def claim_and_fail(**request: Any) -> Any:
            for _ in claims:
                return call(**request)
            raise ClientError({"Error": {"Code": "ThrottlingException"}}, "BatchExecuteStatement")

        monkeypatch.setattr(engine, "batch_execute_statement", claim_and_fail)
        assert receive(api)

    def test_a_body_too_large_for_any_answer_is_omitted(self, api: ApiClient) -> None:
        send(api, b"x" * (MAX_ANSWER_BYTES + 1))
        (got,) = receive(api)
        assert (got["body"], got["body_encoding"], got["body_omitted"]) == (None, None, "too large")
        assert got["size"] == MAX_ANSWER_BYTES + 1

    def test_a_body_that_grows_over_it_by_its_escapes_is_omitted_too(self, api: ApiClient) -> None:
        send(api, b"\x00" * (MAX_ANSWER_BYTES // 3))
        (got,) = receive(api)
        assert (got["body"], got["body_omitted"]) == (None, "too large")

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("max_messages", 0),
            ("max_messages", -1),
            ("max_messages", 1000),
            ("max_messages", 1.5),
            ("max_messages", True),
            ("max_messages", "10"),
            ("visibility_timeout", 0),
            ("visibility_timeout", -30),
            ("visibility_timeout", 12 * 3600 + 1),
            ("visibility_timeout", "30"),
            ("visibility_timeout", None),
            ("wait", -1),
            ("wait", 21),
            ("queue", "jobs"),
        ],
    )
    def test_a_field_that_is_not_what_it_takes_is_named(
        self, api: ApiClient, field: str, value: object
    ) -> None:
        send(api, b"x")
        reply = post(api, "/topics/jobs/receive", {field: value})
        assert (reply.status, reply.kind, reply.fields) == (422, "invalid-field", [field])
        assert receive(api)[0]["receive_count"] == 1

    def test_topics_that_cannot_be_received_from_are_refused(self, api: ApiClient) -> None:
        api.application.outbox.add_subscription(
            Subscription("orders", "billing", "sqs:http://q/billing")
        )
        pushed = post(api, "/topics/orders/receive", {})
        assert (pushed.status, pushed.kind) == (409, "conflict")
        assert "pushed" in pushed.json["detail"]
        unknown = post(api, "/topics/nothing/receive", {})
        assert (unknown.status, unknown.kind) == (404, "unknown-topic")
        assert post(api, "/topics/-/receive", {}).fields == ["topic"]


class TestAcks:
    def test_acknowledged_messages_are_gone(self, api: ApiClient) -> None:
        send(api, b"a", b"b", b"c")
        receipts = [m["receipt"] for m in receive(api)]
        reply = post(api, "/acks", {"receipts": receipts[:2]})
        assert reply.status == 200
        assert reply.json["results"] == [
            {"receipt": receipt, "status": "done"} for receipt in receipts[:2]
        ]
        assert api.application.outbox.outstanding_count("jobs") == 1

    def test_an_ack_may_be_repeated(self, api: ApiClient) -> None:
        send(api, b"a")
        (got,) = receive(api)
        for _ in range(2):
            reply = post(api, "/acks", {"receipts": [got["receipt"]]})
            assert reply.json["results"][0]["status"] == "done"

    def test_a_stale_receipt_is_told_beside_the_good_ones_and_changes_nothing(
        self, api: ApiClient
    ) -> None:
        send(api, b"a")
        (old,) = receive(api, visibility_timeout=1)
        api.application.clock.advance(61)
        (new,) = receive(api)
        send(api, b"b")
        (other,) = receive(api)
        reply = post(api, "/acks", {"receipts": [old["receipt"], other["receipt"]]})
        assert [r["status"] for r in reply.json["results"]] == ["stale", "done"]
        assert api.application.outbox.outstanding_count("jobs") == 1
        assert post(api, "/acks", {"receipts": [new["receipt"]]}).status == 200

    def test_when_all_are_stale_it_is_a_conflict(self, api: ApiClient) -> None:
        send(api, b"a")
        (old,) = receive(api, visibility_timeout=1)
        api.application.clock.advance(61)
        receive(api)
        for path, body in (
            ("/acks", {"receipts": [old["receipt"]]}),
            ("/nacks", {"nacks": [{"receipt": old["receipt"], "reason": "why"}]}),
            ("/nacks", {"nacks": [{"receipt": old["receipt"], "dead": True}]}),
            ("/extensions", {"extensions": [{"receipt": old["receipt"], "seconds": 99}]}),
        ):
            reply = post(api, path, body)
            assert (reply.status, reply.kind) == (409, "stale-receipt")
        assert api.application.outbox.outstanding_count("jobs") == 1
        assert list(api.application.outbox.dead("jobs")) == []

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda receipt: receipt[:-1],
            lambda receipt: receipt[1:],
            lambda receipt: receipt[:20] + ("A" if receipt[20] != "A" else "B") + receipt[21:],
            lambda receipt: receipt + "=",
            lambda _: "",
            lambda _: "x" * 3000,
            lambda _: "jobs/0/0/0198f3c2-7d7e-7abc-8def-0123456789ab",
        ],
    )
    @pytest.mark.parametrize("path", ["/acks", "/nacks", "/extensions"])
    def test_a_text_that_is_no_receipt_refuses_the_call_whole(
        self, api: ApiClient, path: str, spoil: Any
    ) -> None:
        send(api, b"a", b"b")
        good, bad = [m["receipt"] for m in receive(api)]
        body, field = {
            "/acks": ({"receipts": [good, spoil(bad)]}, "receipts.1"),
            "/nacks": ({"nacks": [{"receipt": r} for r in (good, spoil(bad))]}, "nacks.1.receipt"),
            "/extensions": (
                {"extensions": [{"receipt": r, "seconds": 9} for r in (good, spoil(bad))]},
                "extensions.1.receipt",
            ),
        }[path]
        reply = post(api, path, body)
        assert (reply.status, reply.fields) == (422, [field])
        assert api.application.outbox.outstanding_count("jobs") == 2
        assert receive(api) == []

    def test_a_receipt_given_twice_is_refused(self, api: ApiClient) -> None:
        send(api, b"a")
        (got,) = receive(api)
        reply = post(api, "/acks", {"receipts": [got["receipt"]] * 2})
        assert (reply.status, reply.fields) == (422, ["receipts.1"])
        assert api.application.outbox.outstanding_count("jobs") == 1

    @pytest.mark.parametrize("receipts", [[], ["x"] * 101, "text", None, [7]])
    def test_lists_that_are_empty_too_long_or_none_are_refused(
        self, api: ApiClient, receipts: object
    ) -> None:
        assert post(api, "/acks", {"receipts": receipts}).status == 422

    def test_a_body_that_is_not_json_is_refused(self, api: ApiClient) -> None:
        for path in ("/acks", "/nacks", "/extensions", "/topics/jobs/receive"):
            assert api.call("POST", path, "{", content_type="application/json").status == 400
            assert api.call("POST", path, "{}", content_type="text/plain").status == 415
            assert api.call("GET", path).status == 405


class TestDeadLetters:
    def test_they_are_taken_one_after_the_other(self, api: ApiClient) -> None:
        send(api, b"a")
        nacks = [{"receipt": receive(api)[0]["receipt"], "dead": True, "reason": "no"}]
        assert post(api, "/nacks", {"nacks": nacks}).status == 200
        (got,) = post(api, "/topics/jobs/receive-dead", {}).json["messages"]
        assert (got["body"], got["reason"], got["subscriptions"]) == ("a", "no", ["pull"])
        receipt = got["receipt"]
        nacks = [{"receipt": receipt, "dead": True}]
        assert post(api, "/nacks", {"nacks": nacks}).fields == ["nacks.0.receipt"]
        assert post(api, "/nacks", {"nacks": [{"receipt": receipt}]}).status == 200
        assert post(api, "/acks", {"receipts": [receipt]}).status == 409
        (got,) = post(api, "/topics/jobs/receive-dead", {"max_messages": 1}).json["messages"]
        assert post(api, "/acks", {"receipts": [got["receipt"]]}).status == 200
        assert api.page("jobs", state="dead").json["messages"] == []


class TestNacks:
    def test_a_message_given_back_comes_again_with_its_reason_kept(self, api: ApiClient) -> None:
        send(api, b"a")
        for attempt in (1, 2, 3):
            api.application.clock.advance(61)
            (got,) = receive(api)
            assert got["receive_count"] == attempt
            nacks = [{"receipt": got["receipt"], "reason": f"reason {attempt}"}]
            assert post(api, "/nacks", {"nacks": nacks}).status == 200
        (letter,) = api.page("jobs", state="dead").json["messages"]
        assert letter["reason"] == "reason 3"
        (told,) = letter["subscriptions"]
        assert [failure["error"] for failure in told["history"]] == [
            f"reason {n}" for n in (1, 2, 3)
        ]

    def test_a_delay_of_null_is_the_topic_s_back_off(self, api: ApiClient) -> None:
        send(api, b"a", b"b")
        first, second = receive(api)
        nacks = [{"receipt": first["receipt"], "delay": None}, {"receipt": second["receipt"]}]
        reply = post(api, "/nacks", {"nacks": nacks})
        assert [r["status"] for r in reply.json["results"]] == ["done", "done"]
        api.application.clock.advance(1)
        assert [m["id"] for m in receive(api)] == [second["id"]]
        api.application.clock.advance(10)  # the back-off is ten seconds, neither more nor less
        assert [m["id"] for m in receive(api)] == [first["id"]]

    def test_one_given_up_is_dead_at_its_first_receive(self, api: ApiClient) -> None:
        send(api, b"a")
        (got,) = receive(api)
        nacks = [{"receipt": got["receipt"], "dead": True, "reason": "no such order"}]
        assert post(api, "/nacks", {"nacks": nacks}).status == 200
        (letter,) = api.application.outbox.dead("jobs")
        assert letter.reason == "no such order"

    def test_what_cannot_be_done_after_a_part_was_is_told_by_receipt(
        self, api: ApiClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        send(api, b"a", b"b", b"c")
        receipts = [m["receipt"] for m in receive(api)]
        whole, allowed = Queue.extend, 1

        def throttled(queue: Queue, receipt: str, seconds: float) -> None:
            nonlocal allowed
            if not allowed:
                raise Throttled("update_item")
            allowed -= 1
            whole(queue, receipt, seconds)

        monkeypatch.setattr(Queue, "extend", throttled)
        extensions = [{"receipt": r, "seconds": 90} for r in receipts]
        reply = post(api, "/extensions", {"extensions": extensions})
        assert [r["status"] for r in reply.json["results"]] == ["done", "failed", "failed"]
        reply = post(api, "/extensions", {"extensions": extensions})
        assert (reply.status, reply.kind) == (429, "throttled")

    @pytest.mark.parametrize(
        ("more", "field"),
        [
            ({"delay": -1}, "delay"),
            ({"delay": 366 * 24 * 3600 + 1}, "delay"),
            ({"reason": 7}, "reason"),
            ({"dead": "yes"}, "dead"),
            ({"seconds": 9}, "seconds"),
        ],
    )
    def test_a_field_that_is_not_what_it_takes_is_named(
        self, api: ApiClient, more: dict[str, object], field: str
    ) -> None:
        send(api, b"a")
        (got,) = receive(api)
        reply = post(api, "/nacks", {"nacks": [{"receipt": got["receipt"]} | more]})
        assert (reply.status, reply.fields) == (422, [f"nacks.0.{field}"])
        assert receive(api) == []


class TestExtensions:
    def test_a_message_is_held_for_so_long_from_now(self, api: ApiClient) -> None:
        send(api, b"a")
        (got,) = receive(api, visibility_timeout=30)
        api.application.clock.advance(20)
        extensions = [{"receipt": got["receipt"], "seconds": 120}]
        reply = post(api, "/extensions", {"extensions": extensions})
        assert reply.json["results"] == [{"receipt": got["receipt"], "status": "done"}]
        api.application.clock.advance(119)
        assert receive(api) == []
        api.application.clock.advance(61)
        assert len(receive(api)) == 1

    @pytest.mark.parametrize("seconds", [0, -1, 12 * 3600 + 1, None, "9", True])
    def test_a_time_that_is_none_is_refused_and_changes_nothing(
        self, api: ApiClient, seconds: object
    ) -> None:
        send(api, b"a")
        (got,) = receive(api, visibility_timeout=30)
        extensions = [{"receipt": got["receipt"], "seconds": seconds}]
        reply = post(api, "/extensions", {"extensions": extensions})
        assert (reply.status, reply.fields) == (422, ["extensions.0.seconds"])
        assert receive(api) == []


class TestSeeing:
    def test_a_message_is_shown_with_its_holder(self, api: ApiClient) -> None:
        first, second = send(api, b"one", b"two")
        (got,) = receive(api, max_messages=1, consumer="worker-1")
        shown = api.call("GET", f"/messages/{got['ref']}").json
        assert (shown["id"], shown["state"], shown["receive_count"]) == (first.id, "held", 1)
        assert (shown["held_until"], shown["consumer"]) == (got["visible_at"], "worker-1")
        listed = api.call("GET", "/topics/jobs/messages", query={"state": "outstanding"}).json[
            "messages"
        ]
        assert [(m["id"], m["state"], m["consumer"]) for m in listed] == [
            (first.id, "held", "worker-1"),
            (second.id, "outstanding", None),
        ]

    def test_on_ordered_topics_the_row_of_the_shard_says_who_is_held(self, api: ApiClient) -> None:
        api.application.outbox.create_topic(Topic("keys", shards=1, ordering="key"))
        send(api, b"one", b"two", topic="keys", partition_key="k")
        (got,) = post(api, "/topics/keys/receive", {"consumer": "worker-1"}).json["messages"]
        listed = api.call("GET", "/topics/keys/messages", query={"state": "outstanding"}).json[
            "messages"
        ]
        receives = [(m["state"], m["held_until"], m["receive_count"]) for m in listed]
        assert receives == [("held", got["visible_at"], 1), ("outstanding", None, 0)]

    def test_a_name_that_is_too_long_is_refused(self, api: ApiClient) -> None:
        reply = post(api, "/topics/jobs/receive", {"consumer": "\u00e4" * 40})
        assert (reply.status, reply.json["errors"][0]["field"]) == (422, "consumer")
