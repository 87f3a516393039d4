"""Redriving over HTTP: what comes back, what is refused, and that a refusal changes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.model.messages import Message
from fairbox.model.topics import RetryPolicy, Subscription, Topic
from fairbox.tables.stored_messages import read_message
from fairbox.testing.application import DELIVERIES

if TYPE_CHECKING:
    from tests.functions.api_client import ApiClient, Reply


@pytest.fixture
def dead(api: ApiClient) -> list[str]:
    """Return the refs of four dead letters, of keys k0 and k1 in turn; it takes everything now."""
    app = api.application
    app.outbox.create_topic(Topic("mail", shards=2, retry=RetryPolicy(max_attempts=1)))
    app.outbox.add_subscription(Subscription("mail", "out", "sqs:http://q/out"))
    app.destinations["sqs:http://q/out"].answer = lambda _: Outcome("refused", "timed out")
    refs = []
    for n in range(4):
        message = Message(topic="mail", body=b"x", partition_key=f"k{n % 2}", id=app.ids.next())
        refs.append(str(app.outbox.add(message)))
        app.run(10)
    app.destinations["sqs:http://q/out"].answer = lambda _: TAKEN
    return refs


def redrive(api: ApiClient, given: Any, topic: str = "mail") -> Reply:
    body = given if isinstance(given, str) else json.dumps(given)
    return api.call("POST", f"/topics/{topic}/redrive", body, content_type="application/json")


def letters(api: ApiClient) -> set[str]:
    items = api.application.engine.items(DELIVERIES)
    return {str(read_message(i).ref) for i in items if i["pk"]["S"].startswith("dead#mail")}


def test_everything_comes_back_and_is_delivered(api: ApiClient, dead: list[str]) -> None:
    reply = redrive(api, {})
    assert reply.status == 200
    assert reply.json == {
        "count": 4, "refs": dead, "left": [], "unreadable": [], "more": False, "dry_run": False,
    }  # fmt: skip
    api.application.run(5)
    received = api.application.destinations["sqs:http://q/out"].received
    assert sorted(str(m.ref) for m in received) == sorted(dead)
    assert letters(api) == set()


def test_a_dry_run_with_a_limit_changes_nothing(api: ApiClient, dead: list[str]) -> None:
    reply = redrive(api, {"dry_run": True, "limit": 3})
    assert (reply.json["refs"], reply.json["more"], reply.json["dry_run"]) == (dead[:3], True, True)
    assert letters(api) == set(dead)


def test_by_ids_and_refs(api: ApiClient, dead: list[str]) -> None:
    reply = redrive(api, {"ids": [dead[2], dead[0].rpartition("/")[2]]})
    assert reply.json["refs"] == [dead[0], dead[2]]
    assert letters(api) == {dead[1], dead[3]}


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ({"reason": "timed"}, [0, 1, 2, 3]),
        ({"reason": "refused"}, []),
        ({"subscription": "out", "partition_key": "k1"}, [1, 3]),
        ({"subscription": "other"}, []),
        ({"died_from": 0, "died_until": 1}, []),
    ],
)
def test_a_filter_chooses(
    api: ApiClient, dead: list[str], where: dict[str, Any], chosen: list[int]
) -> None:
    assert redrive(api, {"where": where}).json["refs"] == [dead[n] for n in chosen]


def test_a_filter_by_time_takes_the_first_moment_and_leaves_the_last(
    api: ApiClient, dead: list[str]
) -> None:
    page = api.page("mail", state="dead").json["messages"]
    died = {m["ref"]: m["died_at"] for m in page}
    where = {"died_from": died[dead[1]], "died_until": died[dead[3]]}
    assert redrive(api, {"where": where}).json["refs"] == dead[1:3]


def test_an_id_that_is_no_dead_letter_refuses_the_whole_request(
    api: ApiClient, dead: list[str]
) -> None:
    unknown = api.application.ids.next()
    reply = redrive(api, {"ids": [dead[0], unknown]})
    assert (reply.status, reply.kind) == (404, "unknown-message")
    assert unknown in reply.json["detail"]
    assert letters(api) == set(dead)


def test_what_nothing_can_read_is_refused_by_name(api: ApiClient, dead: list[str]) -> None:
    raw = {"pk": {"S": "dead#mail#0#0"}, "sk": {"S": api.application.ids.next()}}
    item = raw | {"raw": {"S": "{}"}, "r": {"S": "no version"}}
    api.application.engine.put_item(TableName=DELIVERIES, Item=item)
    name = f"mail/0/0/{raw['sk']['S']}"
    reply = redrive(api, {"ids": [dead[0], name]})
    assert (reply.status, reply.kind) == (409, "conflict")
    assert name in reply.json["detail"]
    reply = redrive(api, {"dry_run": True})
    assert (reply.json["unreadable"], reply.json["count"]) == ([name], 4)


@pytest.mark.parametrize(
    ("given", "status", "fields"),
    [
        ("{", 400, ["$"]),
        ({"limit": 0}, 422, ["limit"]),
        ({"limit": 501}, 422, ["limit"]),
        ({"ids": ["x"]}, 422, ["ids"]),
        ({"ids": ["other/0/0/01a1fd00-673d-7028-a808-c21f78052155"]}, 422, ["ids"]),
        ({"ids": "x"}, 422, ["ids"]),
        ({"dry_run": "yes"}, 422, ["dry_run"]),
        ({"where": {"why": 1}}, 422, ["where.why"]),
        ({"all": True}, 422, ["all"]),
    ],
)
def test_malformed_requests_are_refused_by_field(
    api: ApiClient, dead: list[str], given: Any, status: int, fields: list[str]
) -> None:
    reply = redrive(api, given)
    assert (reply.status, reply.fields) == (status, fields)
    assert letters(api) == set(dead)


def test_an_unknown_topic_is_not_found(api: ApiClient) -> None:
    assert (redrive(api, {}, "nothing").status, redrive(api, {}, "a b").status) == (404, 422)
