"""The routes of operators: edits, purges, pauses, figures, releases, topics deleted."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, MessageRef, Subscription, Topic
from fairbox.testing.application import DELIVERIES, OUTBOX

from tests.functions.test_api_redrive import dead, letters, redrive

if TYPE_CHECKING:
    from tests.functions.api_client import ApiClient, Reply

__all__ = ["dead"]  # the fixture


@pytest.fixture
def jobs(api: ApiClient) -> list[MessageRef]:
    """Return the refs of three messages that wait in the pulled topic `jobs`."""
    app = api.application
    app.outbox.create_topic(Topic("jobs", shards=1))
    made = [Message(topic="jobs", body=b"%d" % n, id=app.ids.next()) for n in range(3)]
    refs = app.outbox.add_many(made)
    app.clock.advance(1)
    return refs


def send(api: ApiClient, method: str, path: str, given: Any) -> Reply:
    return api.call(method, path, json.dumps(given), content_type="application/json")


def receive(api: ApiClient, **given: Any) -> list[Any]:
    found: list[Any] = send(api, "POST", "/topics/jobs/receive", given).json["messages"]
    return found


def tables(api: ApiClient) -> tuple[Any, Any]:
    engine = api.application.engine
    return engine.items(OUTBOX), engine.items(DELIVERIES)


class TestReleases:
    def test_what_is_released_is_received_at_once_and_no_attempt_counts(
        self, api: ApiClient, jobs: list[MessageRef]
    ) -> None:
        held = receive(api)
        receipts = [one["receipt"] for one in held]
        reply = send(api, "POST", "/releases", {"receipts": receipts})
        assert (reply.status, {r["status"] for r in reply.json["results"]}) == (200, {"done"})
        again = receive(api)
        assert [one["ref"] for one in again] == [str(ref) for ref in jobs]
        assert {one["receive_count"] for one in again} == {1}

    def test_a_stale_one_is_told_and_all_stale_is_a_conflict(
        self, api: ApiClient, jobs: list[MessageRef]
    ) -> None:
        assert len(jobs) == 3
        first, second = receive(api, max_messages=2)
        api.application.queue.ack(first["receipt"])
        receipts = [first["receipt"], second["receipt"]]
        reply = send(api, "POST", "/releases", {"receipts": receipts})
        assert [r["status"] for r in reply.json["results"]] == ["stale", "done"]
        api.application.clock.advance(1)
        assert send(api, "POST", "/releases", {"receipts": receipts}).status == 409

    def test_what_is_no_receipt_refuses_the_call_whole(
        self, api: ApiClient, jobs: list[MessageRef]
    ) -> None:
        assert jobs
        (held, *_) = receive(api)
        reply = send(api, "POST", "/releases", {"receipts": [held["receipt"], "x"]})
        assert (reply.status, reply.fields) == (422, ["receipts.1"])
        api.application.queue.ack(held["receipt"])


class TestEdits:
    @pytest.mark.parametrize(
        ("given", "body"),
        [
            ({"body": "text"}, b"text"),
            ({"body": base64.b64encode(b"\xff").decode(), "body_encoding": "base64"}, b"\xff"),
            ({"body": {"a": 1}}, b'{"a": 1}'),
            ({"headers": {"h": "1"}}, b"0"),
        ],
    )
    def test_content_takes_the_place_of_what_was_there(
        self, api: ApiClient, jobs: list[MessageRef], given: dict[str, Any], body: bytes
    ) -> None:
        reply = send(api, "PATCH", f"/messages/{jobs[0]}", given)
        assert (reply.status, reply.json) == (200, {"ref": str(jobs[0])})
        message = api.application.outbox.get(jobs[0])
        assert message is not None
        assert (message.body, dict(message.headers)) == (body, given.get("headers", {}))

    def test_a_delay_alone_makes_it_due_later_or_now(self, api: ApiClient) -> None:
        app = api.application
        app.outbox.create_topic(Topic("jobs", shards=1))
        message = Message(topic="jobs", body=b"x", delay=600, id=app.ids.next())
        ref = app.outbox.add(message)
        later = send(api, "PATCH", f"/messages/{ref}", {"delay": 900}).json["ref"]
        assert later != str(ref)
        now = send(api, "PATCH", f"/messages/{later}", {"delay": 0}).json["ref"]
        assert [one["ref"] for one in receive(api)] == [now]

    @pytest.mark.parametrize(
        ("given", "field"),
        [
            ({}, "delay"),
            ({"delay": 1, "body": "x"}, "delay"),
            ({"delay": -1}, "delay"),
            ({"body": "x", "body_encoding": "base64"}, "body"),
            ({"headers": {"a": 1}}, "headers.a"),
            ({"partition_key": "k"}, "partition_key"),
            ({"content_type": ""}, "content_type"),
        ],
    )
    def test_what_no_message_takes_is_refused_and_changes_nothing(
        self, api: ApiClient, jobs: list[MessageRef], given: Any, field: str
    ) -> None:
        before = tables(api)
        reply = send(api, "PATCH", f"/messages/{jobs[0]}", given)
        assert (reply.status, reply.fields) == (422, [field])
        assert tables(api) == before

    def test_one_that_is_held_unknown_or_no_ref_is_refused(
        self, api: ApiClient, jobs: list[MessageRef]
    ) -> None:
        (held, *_) = receive(api, max_messages=1)
        reply = send(api, "PATCH", f"/messages/{held['ref']}", {"body": "x"})
        assert (reply.status, reply.kind) == (409, "conflict")
        api.application.outbox.mark_delivered([jobs[2]])
        assert send(api, "PATCH", f"/messages/{jobs[2]}", {"body": "x"}).status == 404
        assert send(api, "PATCH", "/messages/nonsense", {"body": "x"}).status == 400
        unknown = str(jobs[1]).replace("jobs", "nowhere")
        assert send(api, "PATCH", f"/messages/{unknown}", {"body": "x"}).status == 404


class TestPurges:
    def test_a_pushed_topic_is_refused_with_what_to_do_instead(
        self, api: ApiClient, jobs: list[MessageRef]
    ) -> None:
        api.application.outbox.add_subscription(
            Subscription("jobs", "billing", "sqs:http://q/orders-a")
        )
        reply = api.call("DELETE", "/topics/jobs/messages", query={"limit": "2"})
        assert (reply.status, reply.kind) == (409, "conflict")
        [error] = reply.json["errors"]
        assert error["field"] == "topic"
        assert "cancel its messages" in error["expected"]
        assert api.application.outbox.outstanding_count("jobs") == len(jobs)

    def test_a_topic_is_emptied_call_by_call(self, api: ApiClient, jobs: list[MessageRef]) -> None:
        assert len(jobs) == 3
        receive(api, max_messages=1)
        query = {"limit": "2", "reason": "by mistake"}
        for count, more in ((2, True), (1, False), (0, False)):
            reply = api.call("DELETE", "/topics/jobs/messages", query=query)
            assert (reply.status, reply.json) == (200, {"count": count, "more": more})
        assert api.application.outbox.outstanding_count("jobs") == 0
        api.application.run(1)
        lines = [json.loads(line) for line in api.application.archive.lines]
        assert [x["reason"] for x in lines if x["event"] == "purged"] == ["by mistake"] * 3

    def test_dead_letters_are_purged_and_their_count_is_right(
        self, api: ApiClient, dead: list[str]
    ) -> None:
        app = api.application
        assert app.queue.stats("mail").dead == 4
        reply = api.call("DELETE", "/topics/mail/dead", query={"note": "of no use"})
        assert (reply.status, reply.json["count"], reply.json["names"]) == (200, 4, dead)
        assert letters(api) == set()
        app.run(1)
        assert app.queue.stats("mail").dead == 0
        lines = [json.loads(line) for line in app.archive.lines]
        assert [x["reason"] for x in lines if x["event"] == "purged"] == ["of no use"] * 4

    @pytest.mark.parametrize(
        ("query", "chosen"),
        [
            ({"partition_key": "k1"}, [1, 3]),
            ({"subscription": "other"}, []),
            ({"reason": "timed out", "limit": "1"}, [0]),
            ({"died_until": "1"}, []),
        ],
    )
    def test_a_filter_chooses_and_a_dry_run_says_so(
        self, api: ApiClient, dead: list[str], query: dict[str, str], chosen: list[int]
    ) -> None:
        tried = api.call("DELETE", "/topics/mail/dead", query=query | {"dry_run": "true"}).json
        assert (tried["names"], tried["dry_run"]) == ([dead[n] for n in chosen], True)
        assert letters(api) == set(dead)
        done = api.call("DELETE", "/topics/mail/dead", query=query).json
        assert (done["names"], done["dry_run"]) == ([dead[n] for n in chosen], False)
        assert letters(api) == set(dead) - set(done["names"])

    def test_ids_choose_and_one_that_is_none_refuses_all(
        self, api: ApiClient, dead: list[str]
    ) -> None:
        nobody = api.application.ids.next()
        reply = api.call("DELETE", "/topics/mail/dead", query={"ids": f"{dead[0]},{nobody}"})
        assert (reply.status, letters(api)) == (404, set(dead))
        ids = f"{dead[0]}, {dead[2].rpartition('/')[2]}"
        reply = api.call("DELETE", "/topics/mail/dead", query={"ids": ids})
        assert (reply.status, reply.json["names"]) == (200, [dead[0], dead[2]])

    @pytest.mark.parametrize(
        "query", [{"limit": "0"}, {"ids": "x"}, {"where": "x"}, {"ids": ",".join(["x"] * 101)}]
    )
    def test_what_is_wrong_is_refused_and_changes_nothing(
        self, api: ApiClient, dead: list[str], query: dict[str, str]
    ) -> None:
        reply = api.call("DELETE", "/topics/mail/dead", query=query)
        assert (reply.status, reply.fields) == (422, list(query))
        assert letters(api) == set(dead)

    def test_an_unknown_topic_is_not_found(self, api: ApiClient) -> None:
        assert api.call("DELETE", "/topics/nowhere/messages").status == 404
        assert api.call("DELETE", "/topics/nowhere/dead").status == 404


class TestRedriveEdited:
    def test_one_dead_letter_comes_back_with_other_content(
        self, api: ApiClient, dead: list[str]
    ) -> None:
        given = {"ids": [dead[1]], "body": {"n": 1.50}, "content_type": "application/json"}
        text = json.dumps(given).replace("1.5", "1.50")
        assert redrive(api, text).json["refs"] == [dead[1]]
        message = api.application.outbox.get(MessageRef.parse(dead[1]))
        assert message is not None
        assert (message.body, message.content_type) == (b'{"n": 1.50}', "application/json")

    def test_content_for_all_is_refused(self, api: ApiClient, dead: list[str]) -> None:
        for given in ({"body": "x"}, {"body": "x", "ids": dead[:2]}):
            reply = redrive(api, given)
            assert (reply.status, reply.fields) == (422, ["ids"])
        assert letters(api) == set(dead)


class TestTopics:
    def test_a_pause_gives_nothing_until_it_is_over(
        self, api: ApiClient, jobs: list[MessageRef]
    ) -> None:
        assert api.call("POST", "/topics/jobs/pause").status == 204
        assert receive(api) == []
        assert api.call("GET", "/topics/jobs").json["paused"]
        assert api.call("POST", "/topics/jobs/resume").status == 204
        api.application.clock.advance(3)
        assert len(receive(api)) == len(jobs)

    def test_a_pushed_or_unknown_topic_is_not_paused(
        self, api: ApiClient, jobs: list[MessageRef]
    ) -> None:
        assert jobs
        api.application.outbox.add_subscription(Subscription("jobs", "a", "sqs:http://q/a"))
        assert api.call("POST", "/topics/jobs/pause").status == 409
        assert api.call("POST", "/topics/nowhere/pause").status == 404
        assert api.call("POST", "/topics/nowhere/resume").status == 404

    def test_figures_of_one_topic(self, api: ApiClient, jobs: list[MessageRef]) -> None:
        api.application.mark()
        assert api.call("GET", "/topics/jobs/stats").json == {
            "topic": "jobs", "outstanding": len(jobs), "ready": 3, "later": 0, "dead": 0,
            "in_flight": None, "visible": None,
        }  # fmt: skip
        receive(api, max_messages=2)
        counted = api.call("GET", "/topics/jobs/stats", query={"in_flight": "true"}).json
        assert (counted["in_flight"], counted["visible"]) == (2, len(jobs) - 2)
        assert api.call("GET", "/topics/nowhere/stats").status == 404

    def test_a_topic_is_marked_then_gone(self, api: ApiClient) -> None:
        api.application.outbox.create_topic(Topic("old"))
        first = api.call("DELETE", "/topics/old")
        assert (first.status, first.json) == (202, {"topic": "old", "seconds": 60.0})
        assert first.headers["retry-after"] == "60"
        assert api.call("GET", "/topics/old").json["deleting"] is not None
        refused = api.post("old", {"body": "x"})
        assert (refused.status, refused.kind) == (409, "conflict")
        api.application.clock.advance(60)
        assert api.call("DELETE", "/topics/old").status == 204
        assert api.call("DELETE", "/topics/old").status == 404
        assert api.call("GET", "/topics/old").status == 404

    def test_a_topic_that_holds_anything_stays_as_it_is(
        self, api: ApiClient, jobs: list[MessageRef]
    ) -> None:
        assert jobs
        before = tables(api)
        reply = api.call("DELETE", "/topics/jobs")
        assert (reply.status, reply.kind) == (409, "conflict")
        assert api.call("DELETE", "/topics/jobs", query={"whole": "true"}).status == 409
        assert api.call("DELETE", "/topics/jobs", query={"sure": "1"}).status == 422
        assert tables(api) == before
