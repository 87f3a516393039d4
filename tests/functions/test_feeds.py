"""The functions of feeds: who may connect, and what a connection is answered."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from botocore.exceptions import ClientError
from fairbox import Feed, Feeds, InvalidInput, NotAllowed
from fairbox.feeds.ringing import Doorbell
from fairbox.feeds.tokens import make_token
from fairbox.model.feed_types import MAX_BODY
from fairbox.runtime.feed_application import FeedsApplication
from fairbox.settings import Settings
from fairbox.testing.application import MemoryApplication

from tests.functions.api_client import ApiClient
from tests.functions.feeds_client import FeedsClient
from tests.functions.running import Functions, figures
from tests.support.deployment import environment, variable


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FeedsClient:
    return FeedsClient(Functions(monkeypatch))


def signed(
    client: FeedsClient, *, key: str = "k" * 64, kid: str = "version of kkkkk", **claims: Any
) -> str:
    now = int(client.functions.clock.now())
    payload = {"sub": "u7", "allow": ["trades/*"], "exp": now + 60} | claims
    payload = {name: value for name, value in payload.items() if value is not None}
    return jwt.encode(payload, key, "HS256", {"kid": kid})


def unsigned() -> str:
    parts = (
        {"alg": "none", "kid": "version of kkkkk"},
        {"sub": "u7", "allow": ["a/*"], "exp": 2e9},
    )
    texts = (base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts)
    return ".".join((*texts, ""))


def test_a_client_with_a_token_connects_asks_and_goes(client: FeedsClient) -> None:
    functions = client.functions
    feeds = Feeds(functions.engine, table=functions.tables["feeds"], clock=functions.clock)
    feeds.create(Feed("trades", "ring", history=8))
    feeds.publish("trades", "btc", b'{"price":1}')
    answer = client.connect("u7", "trades/*")
    assert answer == {"statusCode": 200, "headers": {"Sec-WebSocket-Protocol": "fairbox.v1"}}

    entry = client.say(op="sync", id=1, topics={"trades/btc": None})["t"][0]
    assert [entry[:3], entry[3][0][2]] == [["trades/btc", 0, 1], {"price": 1}]
    client.disconnect()
    assert client.say(op="sync", id=2, topics={})["err"][0][1] == "reconnect"


def test_a_client_without_a_connection_polls(
    client: FeedsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = client.functions
    feeds = Feeds(functions.engine, table=functions.tables["feeds"], clock=functions.clock)
    feeds.create(Feed("trades", "ring"))
    feeds.publish("trades", "btc", b'{"price":1}')
    token = client.token("u7", "trades/*")
    answer = client.poll(token, {"trades/btc": 0})
    headers = {"Cache-Control": "no-store", "Content-Type": "application/json"}
    assert (answer["statusCode"], answer["headers"]) == (200, headers)
    assert json.loads(answer["body"])["t"][0][3][0][2] == {"price": 1}

    began = functions.clock.now()
    answer = client.poll(token, {"trades/btc": 1}, wait=20)
    assert (answer["statusCode"], answer["body"]) == (204, "")
    assert 20 <= functions.clock.now() - began <= 21
    assert client.poll("forged", {"trades/btc": 0})["statusCode"] == 401

    def throttled(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "ThrottlingException"}}, "BatchGetItem")

    monkeypatch.setattr(functions.engine, "batch_get_item", throttled)
    busy = {"statusCode": 503, "headers": {"Retry-After": "1"}}
    assert client.poll(token, {"trades/btc": 0}) == busy


def test_what_is_published_reaches_each_shard_and_comes_again_where_it_failed(
    client: FeedsClient, capsys: pytest.CaptureFixture[str]
) -> None:
    functions, other = client.functions, FeedsClient(client.functions, id="c2=")
    feeds = Feeds(functions.engine, table=functions.tables["feeds"], clock=functions.clock)
    feeds.create(Feed("trades", "ring"))
    for one in (client, other):
        one.connect("u7", "trades/*")
        one.say(op="sync", id=1, topics={"trades/btc": None})
    large = functions.rng.randbytes(MAX_BODY)
    functions.sockets.faults[client.id] = [403]
    for _ in range(2):
        feeds.publish("trades", "btc", large, "application/octet-stream")
    functions.clock.advance(3)
    assert client.push() == [{"itemIdentifier": "0"}, {"itemIdentifier": "1"}]
    assert [frame["t"][0][:3] for frame in functions.sockets.frames[other.id]] == [
        ["trades/btc", 0, 1],
        ["trades/btc", 1, 2],
    ]
    assert client.id not in functions.sockets.frames
    written = {name: n for name, n in figures(capsys).items() if name.startswith("Feed")}
    assert written == {"FeedFrames": 2, "FeedPutOut": 0, "FeedDelay": pytest.approx(3.1)}

    functions.sockets.faults.clear()
    feeds.publish("trades", "btc", b"3")
    functions.clock.advance(11)
    assert client.push(age=11) == []  # not played: rung once more
    assert figures(capsys)["FeedDelay"] == pytest.approx(11)
    assert len(functions.sockets.frames[other.id]) == 2
    record = {"body": "[]", "attributes": {"SentTimestamp": "1500", "ApproximateReceiveCount": "3"}}
    assert client._warm["feeds_visit"]._doorbell(record) == Doorbell("[]", 1.5, 3)
    again = functions.sqs.sent[variable("FAIRBOX_FEEDS_QUEUE_URL")]
    assert {entry["MessageGroupId"] for entry in again} <= {"0", "1", "2", "3"}
    assert client.push() == []
    assert functions.sockets.frames[other.id][2]["t"][0][:3] == ["trades/btc", 2, 3]


def test_posts_go_to_the_stage_of_the_sockets_and_wait_for_half_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    posting = FeedsApplication(Settings(environment("feeds_visit"))).pushing._posting
    assert posting._rate == 5000 / 4
    client = posting.sockets._client
    assert client.meta.endpoint_url == "https://feeds.execute-api.us-east-1.amazonaws.com/feeds"
    assert client.meta.config.read_timeout == 0.5


def test_a_service_gets_a_token_over_http(client: FeedsClient) -> None:
    functions = client.functions
    feeds = Feeds(functions.engine, table="", clock=functions.clock, keys=client.keys())
    body = json.dumps({"user": "u7", "allow": ["trades/*"]})

    def ask(body: str, feeds: Feeds | None) -> Any:
        api = ApiClient(MemoryApplication(), feeds=lambda: feeds)
        return api.call("POST", "/feed-tokens", body, content_type="application/json")

    token = ask(body, feeds).json["token"]
    assert client.authorize("fairbox.v1", f"token.{token}") == {
        "user": "u7",
        "allow": '["trades/*"]',
    }
    refused = ask(body.replace("/*", ""), feeds)
    assert (refused.status, refused.fields) == (422, ["allow"])
    assert ask(body, None).kind == "unknown-route"


def test_a_service_keeps_feeds_and_publishes_over_http() -> None:
    application = MemoryApplication()
    api = ApiClient(application, feeds=lambda: application.feeds)

    def call(method: str, path: str, body: Any = None) -> Any:
        text = None if body is None else json.dumps(body)
        return api.call(method, path, text, content_type=text and "application/json")

    ring = {"name": "trades", "kind": "ring", "size": 8, "history": 0, "keep": 86_400}
    ring |= {"limit": None, "window": None}
    made = call("PUT", "/feeds/trades", {"kind": "ring", "size": 8})
    assert (made.status, made.json) == (201, ring)
    again = call("PUT", "/feeds/trades", {"kind": "ring", "size": 9.0})
    assert (again.status, again.json["size"]) == (200, 9)
    assert call("PUT", "/feeds/prices").json["kind"] == "snapshot"
    assert call("PUT", "/feeds/inbox", {"kind": "private", "limit": 1}).status == 201
    assert call("GET", "/feeds/trades").json == ring | {"size": 9}

    for number, body in enumerate(({"price": 1.50}, "text", "AP8="), 1):
        sent = {"body": body} | ({"body_encoding": "base64"} if number == 3 else {})
        assert call("POST", "/feeds/trades/eur%2Fusd%20%E2%82%AC", sent).json["number"] == number
    head = application.feeds._topics.state("trades/eur/usd \u20ac").head
    assert head.messages[0].endswith(',"AP8=","b64"')
    shown = call("GET", "/feeds/trades/eur/usd%20%E2%82%AC").json
    assert shown == {
        "feed": "trades",
        "key": "eur/usd \u20ac",
        "kind": "ring",
        "last": 3,
        "published_at": head.at,
        "unacknowledged": None,
        "audience_shards": 0,
    }
    for _ in range(2):  # the answer to the first was lost
        assert call("POST", "/feeds/inbox/u7", {"body": 1, "id": "a"}).json["number"] == 1
    full = call("POST", "/feeds/inbox/u7", {"body": 2})
    assert (full.status, full.kind) == (429, "feed-full")

    assert call("DELETE", "/feeds/trades").status == 204
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/btc"), ("POST", "/btc")):
        gone = call(method, f"/feeds/trades{path}", {"body": 1} if method == "POST" else None)
        assert (gone.status, gone.kind) == (404, "unknown-feed")


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("PUT", "/feeds/-", None, "feed"),
        ("PUT", "/feeds/trades", {"kind": "queue"}, "kind"),
        ("PUT", "/feeds/trades", {"size": 8}, "size"),
        ("PUT", "/feeds/trades", {"kind": "ring", "size": 7}, "size"),
        ("PUT", "/feeds/prices", {"kind": "ring"}, "kind"),
        ("PUT", "/feeds/trades", {"keeps": 7}, "keeps"),
        ("GET", "/feeds/prices/*", None, "key"),
        ("POST", "/feeds/prices/eur", {"body": "{", "content_type": "application/json"}, "body"),
        ("POST", "/feeds/prices/eur", {"body": 1, "id": ""}, "id"),
        ("POST", "/feeds/prices/eur", {}, "body"),
    ],
)
def test_what_is_no_feed_or_message_is_refused_by_its_field(
    method: str, path: str, body: Any, field: str
) -> None:
    application = MemoryApplication()
    application.feeds.create(Feed("prices"))
    api = ApiClient(application, feeds=lambda: application.feeds)
    text = None if body is None else json.dumps(body)
    reply = api.call(method, path, text, content_type=text and "application/json")
    assert (reply.status, reply.fields) == (422, [field])
    assert ApiClient(application).call("GET", "/feeds/prices").kind == "unknown-route"


def test_only_a_valid_token_connects(client: FeedsClient) -> None:
    now = int(client.functions.clock.now())
    wrong = {
        "too old": signed(client, exp=now),
        "valid for too long": signed(client, exp=now + 400),
        "no end": signed(client, exp=None),
        "an end that is none": signed(client, exp="soon"),
        "no user": signed(client, sub=None),
        "an empty user": signed(client, sub=""),
        "no topics": signed(client, allow=None),
        "topics that are none": signed(client, allow="trades"),
        "another key": signed(client, key="x" * 64),
        "an unknown key": signed(client, kid="x"),
        "none of ours": "nonsense",
        "not signed": unsigned(),
    }
    taken = [
        why for why, token in wrong.items() if client.authorize("fairbox.v1", f"token.{token}")
    ]
    assert taken == []
    good = f"token.{signed(client)}"
    assert client.authorize("fairbox.v1", good) == {"user": "u7", "allow": '["trades/*"]'}
    for offered in ((good,), ("fairbox.v1",), ("fairbox.v1", good, good)):
        assert client.authorize(*offered) is None


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("user", {"user": ""}),
        ("user", {"user": 7}),
        ("allow", {"allow": "trades/btc"}),
        ("allow", {"allow": []}),
        ("allow", {"allow": ["trades"]}),
        ("allow", {"allow": ["*/*"]}),
        ("allow", {"allow": [7]}),
        ("allow", {"allow": ["a/b"] * 101}),
        ("allow", {"allow": [f"{n}/{'k' * 200}" for n in range(30)]}),
        ("ttl", {"ttl": 0}),
        ("ttl", {"ttl": 301}),
        ("ttl", {"ttl": 60.0}),
    ],
)
def test_a_token_that_would_connect_nobody_is_not_made(
    client: FeedsClient, field: str, wrong: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"user": "u7", "allow": ["trades/*"], "ttl": 60, "now": 0.0}
    with pytest.raises(InvalidInput) as refused:
        make_token(client.keys(), **given | wrong)
    assert refused.value.field == field


def test_tokens_of_the_key_before_are_taken_and_those_of_a_new_key_at_once(
    client: FeedsClient,
) -> None:
    functions, old = client.functions, client.token("u7", "a/b", ttl=300)
    assert client.authorize("fairbox.v1", f"token.{old}")
    functions.secrets.put("n" * 64)
    functions.clock.advance(6)
    for token in (client.token("u7", "a/b"), old):
        assert client.authorize("fairbox.v1", f"token.{token}")
    functions.secrets.put("m" * 64)
    functions.clock.advance(60)
    assert client.authorize("fairbox.v1", f"token.{old}") is None

    # the keys that it has serve while they cannot be read
    token = client.token("u7", "a/b", ttl=300)
    functions.secrets.versions = {}
    functions.clock.advance(60)
    assert client.authorize("fairbox.v1", f"token.{token}")
    with pytest.raises(NotAllowed):
        client.token("u7", "a/b")
