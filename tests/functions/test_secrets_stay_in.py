"""Secrets on failing paths: of addresses, keys, headers, bodies and receipts; in real functions."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import InvalidInput, Message, RetryPolicy, StaleReceipt, Subscription, Topic
from fairbox.client.queue import Queue
from fairbox.model.ids import IdGenerator

from tests.functions import canaries
from tests.functions.api_client import ApiClient, load_handler, read_event
from tests.functions.canaries import BEARER, BODY, CARD, ESCAPES, FORGED, TOKEN, Echo
from tests.functions.running import Functions
from tests.support.cli_runs import Cli

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox import MessageRef


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.close()


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch, echo: Echo) -> Functions:
    """The functions, with topic `orders` to the receiver, which dies at its second attempt."""
    functions = Functions(monkeypatch)
    functions.clock.set(1_795_246_060)
    functions.settings["FAIRBOX_WEBHOOK_ALLOW_PRIVATE"] = "true"
    arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hooks"
    functions.settings["FAIRBOX_WEBHOOK_SECRETS"] = arn
    functions.clients["secretsmanager"] = canaries.Secrets("orders/hook")
    functions.outbox.create_topic(
        Topic("orders", shards=1, retry=RetryPolicy(max_attempts=2, base=1, cap=1))
    )
    functions.outbox.add_subscription(Subscription("orders", "hook", echo.url))
    return functions


def publish(functions: Functions, count: int = 1) -> list[MessageRef]:
    headers = {"authorization": f"Bearer {BEARER}", "x": f"Bearer {BEARER}"}
    ids = IdGenerator(functions.clock)
    made = [
        Message(topic="orders", body=BODY, headers=headers, id=ids.next()) for _ in range(count)
    ]
    return functions.outbox.add_many(made)


def visit(functions: Functions, refs: list[MessageRef]) -> None:
    """Ring for these messages and answer the doorbell in a fresh process."""
    event = read_event("doorbell_named")
    bell = {"topic": "orders", "epoch": 0, "shard": 0, "not_before": 0}
    event["Records"][0]["body"] = json.dumps(bell | {"ids": [ref.id for ref in refs]})
    assert functions.invoke("deliver_shard", event) == {"batchItemFailures": []}
    functions.clock.advance(120)


def die(functions: Functions, count: int = 1) -> None:
    refs = publish(functions, count)
    for _ in range(2):
        visit(functions, refs)


def facades(functions: Functions) -> Any:
    outbox = functions.outbox
    ids = IdGenerator(functions.clock, lambda _: 0)
    parts = {"queue": Queue.over(outbox), "batches": functions.batches, "feeds": None, "ids": ids}
    return SimpleNamespace(outbox=outbox, clock=functions.clock, **parts)


@pytest.mark.parametrize("status", [500, 400, 429, 410, 503])
def test_a_receiver_that_repeats_what_it_was_sent_gets_no_secret_kept_logged_or_shown(
    functions: Functions, echo: Echo, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    echo.status = status
    with canaries.lambda_log() as log:
        die(functions, 3)
        records = functions.engine.stream(functions.tables["outbox"]).take(None)
        messages = [r for r in records if "z" in r["dynamodb"].get("NewImage", {})]
        functions.invoke("mark_delivered", {"Records": messages})
        functions.invoke("count_outstanding", read_event("clock_count_outstanding"))
        functions.invoke("sweep", read_event("clock_sweep"))
    assert all(canaries.found_in(said) for said in echo.said)  # it did see them
    printed = capsys.readouterr().out
    assert canaries.found_in(log.getvalue() + printed) == []
    failures = [line for line in functions.firehose.lines if line["event"] == "failed"]
    assert canaries.found_in(json.dumps([line.get("error") for line in failures])) == []
    everything = json.dumps(
        [{k: v for k, v in line.items() if k not in ("body", "headers")} for line in
         functions.firehose.lines]
    )  # fmt: skip
    assert canaries.found_in(everything) == [], everything
    histories = [
        failure.error
        for letter in functions.outbox.dead("orders")
        if letter.stored is not None
        for state in letter.stored.states.values()
        for failure in state.history
    ]
    assert (len(histories) > 0) == (status in (500, 400, 503))
    assert canaries.found_in(json.dumps(histories)) == []
    hook = functions.outbox.topic("orders").status("hook")
    assert canaries.found_in(repr(hook)) == []


def test_logs_have_a_status_and_none_of_a_receivers_words(functions: Functions, echo: Echo) -> None:
    echo.extra = "Anna Meier owes us"
    with canaries.lambda_log() as log:
        visit(functions, publish(functions, 6))
    changes = [o for o in canaries.objects(log.getvalue()) if o["message"] == "a circuit changed"]
    assert [change["error"] for change in changes][:1] == ["HTTP 500"]
    assert "Anna" not in log.getvalue()
    status = functions.outbox.topic("orders").status("hook")
    assert "Anna Meier owes us" in repr(status)  # where who reads messages finds it


def test_the_api_and_the_command_line_show_addresses_without_what_lets_in(
    functions: Functions, echo: Echo
) -> None:
    die(functions)
    client = ApiClient(facades(functions))
    cli = Cli()
    cli.application = facades(functions)
    shown = [
        client.call("GET", "/topics").body.decode(),
        client.call("GET", "/topics/orders").body.decode(),
        cli.ok("subscription", "list").out,
        cli.ok("subscription", "list", "--json").out,
        cli.ok("topic", "show", "orders").out,
        cli.ok("topic", "show", "orders", "--json").out,
    ]
    assert [text for text in shown if canaries.found_in(text)] == []
    assert all("token=***&***" in text for text in shown[:4])
    letters = cli.ok("dlq", "list", "orders").out + client.page("orders", state="dead").json[
        "messages"][0].get("reason", "")  # fmt: skip
    assert "HTTP 500" in letters
    assert canaries.found_in(letters) == []


def test_an_address_as_it_is_shown_is_not_taken_for_the_address(functions: Functions) -> None:
    client = ApiClient(facades(functions))
    for address in ("https://hooks.example/?token=***", "https://user:word@hooks.example/"):
        path = "/topics/orders/subscriptions/hook"
        body = json.dumps({"destination": address})
        reply = client.call("PUT", path, body, content_type="application/json")
        assert (reply.status, reply.fields) == (422, ["destination"])
        assert b"word" not in reply.body
        with pytest.raises(InvalidInput):
            functions.outbox.add_subscription(Subscription("orders", "hook", address))
    (subscription,) = functions.outbox.topic("orders").subscriptions
    assert TOKEN in subscription.destination


def test_a_refused_request_is_logged_without_its_headers_body_query_and_receipts(
    functions: Functions, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    functions.outbox.create_topic(Topic("jobs", shards=1))
    functions.outbox.add(Message(topic="jobs", body=BODY, id=IdGenerator(functions.clock).next()))
    queue = Queue.over(functions.outbox)
    functions.clock.advance(5)
    (received,) = queue.receive("jobs", visibility_timeout=10)
    functions.clock.advance(60)
    assert queue.receive("jobs")  # now another holds it
    receipt = str(received.receipt)
    monkeypatch.setenv("POWERTOOLS_LOG_LEVEL", "DEBUG")
    application = facades(functions)
    client = ApiClient(application)
    from aws_lambda_powertools import Logger  # noqa: PLC0415 - it reads the level when it is made

    client.app._log = Logger(service="fairbox-refusals")
    headers = {"authorization": f"AWS4-HMAC-SHA256 Signature={BEARER}", "cookie": BEARER}
    asked: list[tuple[str, str, str]] = [
        ("POST", "/acks", json.dumps({"receipts": [receipt]})),
        ("POST", "/acks", json.dumps({"receipts": [receipt[:-3]]})),
        ("POST", "/topics/orders/messages", json.dumps({"body": {"card": CARD}, "delay": CARD})),
        ("POST", "/topics/orders/messages", f'{{"card": "{CARD}"'),
        ("GET", "/topics/orders/messages", ""),
        ("POST", "/topics/nothing/messages", json.dumps({"body": {"card": CARD}})),
    ]
    with canaries.lambda_log() as log:
        for method, path, body in asked:
            reply = client.call(
                method, path, body, content_type="application/json", headers=headers,
                query={"token": TOKEN} if method == "GET" else None,
            )  # fmt: skip
            assert 400 <= reply.status < 500, (path, reply)
            assert canaries.found_in(reply.body.decode()) == []
    written = capsys.readouterr().out
    told = log.getvalue() + written
    assert len([o for o in written.splitlines() if "A request was refused." in o]) == len(asked)
    assert canaries.found_in(told) == []
    assert receipt not in told
    with pytest.raises(StaleReceipt):
        queue.ack(received.receipt)
    assert load_handler()  # its own logger is made the same way


@pytest.mark.parametrize("status", [500, 400])
def test_what_a_receiver_answers_forges_no_line_and_no_metric(
    functions: Functions, echo: Echo, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    echo.status, echo.extra = status, ESCAPES + FORGED + "x" * 100_000
    capsys.readouterr()
    with canaries.lambda_log() as log:
        for _ in range(6):
            visit(functions, publish(functions))
    lines = canaries.objects(log.getvalue())
    assert all(line["message"] != "all is well" for line in lines)
    assert all("_aws" not in line for line in lines)
    assert max(map(len, log.getvalue().splitlines()), default=0) < 2_000
    metrics = canaries.objects(capsys.readouterr().out)
    assert all(line["_aws"]["CloudWatchMetrics"] for line in metrics)
    found = functions.outbox.find(publish(functions)[0])
    assert found is not None
    errors = [
        failure.error
        for message in functions.outbox.outstanding("orders")
        if (one := functions.outbox.find(functions.outbox.topic("orders").ref(message)))
        for failure in one.state("hook").history
    ]
    assert errors
    assert all(error.isprintable() and len(error) <= 200 for error in errors)


def test_names_keys_and_ids_that_callers_choose_forge_no_line(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    client = ApiClient(facades(functions))
    from aws_lambda_powertools import Logger  # noqa: PLC0415 - its stream is the one captured

    client.app._log = Logger(service="fairbox-names", level="DEBUG")
    evil = f"a{ESCAPES}{FORGED}" + "y" * 50_000
    capsys.readouterr()
    for method, path, body in (
        ("GET", f"/topics/{evil}", None),
        ("GET", f"/nowhere/{evil}", None),
        ("POST", "/acks", json.dumps({"receipts": [evil], evil[:200]: 1})),
        ("POST", "/batches/acks", json.dumps({"items": [evil]})),
    ):
        reply = client.app.resolve(
            client.event(method, path, body, content_type="application/json"), None
        )
        assert 400 <= reply["statusCode"] < 500
    written = capsys.readouterr().out
    lines = canaries.objects(written)
    assert [line["message"] for line in lines] == ["A request was refused."] * 4
    assert max(map(len, written.splitlines())) < 6_000
    assert "\x1b" not in written
    with canaries.lambda_log() as log:
        event = read_event("doorbell_named")
        event["Records"][0]["body"] = json.dumps({"topic": evil, "epoch": 0})
        functions.invoke("deliver_shard", event)
        functions.invoke("ack_batches", {"Records": [{"messageId": "m", "body": evil}]})
    told = canaries.objects(log.getvalue())
    assert {line["message"] for line in told} >= {"a doorbell failed", "acks were dropped"}
    assert max(map(len, log.getvalue().splitlines())) < 6_000


def test_the_command_line_sends_no_escape_of_others_to_the_terminal(functions: Functions) -> None:
    batch = functions.batch(2)
    functions.batches.fail([f"{batch}:0:1"], reason="a" + ESCAPES)
    functions.outbox.create_topic(Topic("jobs", shards=1))
    made = IdGenerator(functions.clock).next()
    functions.outbox.add(Message(topic="jobs", body=b"x", partition_key="k\u202e\u2066", id=made))
    functions.clock.advance(5)
    cli = Cli()
    cli.application = facades(functions)
    runs = [
        cli("batch", "failed", batch),
        cli("message", "list", "jobs"),
        cli("topic", "show", "jobs" + ESCAPES),
        cli("batch", "show", "b" + ESCAPES),
        cli("message", "show", "jobs/0/0/" + ESCAPES),
    ]
    for run in runs:
        assert run.out + run.err
        assert all(c.isprintable() or c == "\n" for c in run.out + run.err), run
