"""Nouns `topic`, `message`, `subscription`, `dlq` and `outbox`, over the application in memory."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

import pytest
import typer
from fairbox import Message, MessageRef, Subscription, Topic
from fairbox.cli import outbox_verbs
from fairbox.cli.session import Session
from fairbox.dispatch.ports import Outcome

from tests.support.cli_runs import NOBODY, Cli

if TYPE_CHECKING:
    from pathlib import Path

FAR = f"orders/0/0/{NOBODY}"


@pytest.fixture
def orders(cli: Cli) -> Cli:
    """`fairbox` with topic `orders`."""
    cli.application.outbox.create_topic(Topic("orders", shards=2))
    return cli


def sent(cli: Cli, body: str = "{}", *options: str) -> str:
    return cli.ok("message", "send", "orders", body, *options).out.strip()


def dead(cli: Cli) -> str:
    """Return the ref of a message that its destination refused."""
    billing = Subscription("orders", "billing", "sqs:http://q/billing", max_attempts=1)
    cli.application.outbox.add_subscription(billing)
    destination = cli.application.destinations["sqs:http://q/billing"]
    destination.answer = lambda _: Outcome("refused", "no such account")
    ref = sent(cli, "dead body")
    cli.application.run(seconds=5)
    return ref


def test_a_topic_is_created_shown_listed_and_brought_up_to_date(cli: Cli) -> None:
    created = cli.ok(
        "topic", "create", "jobs", "--shards", "4", "--ordering", "key", "--max-attempts", "3",
        "--dedup-window", "60", "--json",
    ).json  # fmt: skip
    assert (created["shards"], created["ordering"], created["dedup_window"]) == (4, "key", 60)
    assert created["retry"] == {"max_attempts": 3, "base": 1.0, "cap": 900.0}
    shown = cli.ok("topic", "show", "jobs", "--json").json
    epoch = shown["epochs"][0]
    assert shown | {"epochs": created["epochs"]} == created
    assert (epoch["number"], epoch["shards"], epoch["phase"]) == (0, 4, "current")
    cli.ok("topic", "create", "another")
    assert [t["name"] for t in cli.ok("topic", "list", "--json").objects] == ["another", "jobs"]
    assert cli.ok("topic", "list").lines[2].split() == ["jobs", "4", "key", "false"]
    assert "ordering" in cli.ok("topic", "show", "jobs").out


def test_a_topic_is_shown_in_tables_with_what_its_subscriptions_do(cli: Cli) -> None:
    cli.ok("topic", "create", "orders", "--shards", "4")
    for name in ("billing", "audit", "search"):
        cli.ok("subscription", "add", "orders", name, f"sqs:https://q/{name}")
    cli.ok("subscription", "pause", "orders", "audit")
    cli.application.destinations["sqs:https://q/search"].answer = lambda _: Outcome(
        "unreachable", "no"
    )
    for _ in range(5):
        cli.ok("message", "send", "orders", "--body", "x", "--type", "com.shop.placed")
        cli.application.run(seconds=1)
    out = cli.ok("topic", "show", "orders").out
    assert re.search(r"^audit +paused +sqs:https://q/audit$", out, re.MULTILINE)
    assert re.search(r"^billing +ok +sqs:https://q/billing$", out, re.MULTILINE)
    failing = r"search +failing \(next probe \d\d:\d\d:\d\d\) +sqs:https://q/search$"
    assert re.search(f"^{failing}", out, re.MULTILINE)
    assert re.search(r"^NUMBER +SHARDS +PHASE", out, re.MULTILINE)
    assert re.search(failing, cli.ok("subscription", "list").out, re.MULTILINE)
    taken = cli.application.destinations["sqs:https://q/billing"].received[0]
    assert (taken.message.body, taken.message.type) == (b"x", "com.shop.placed")


def test_a_number_of_shards_is_given_once_by_place_or_by_name(cli: Cli) -> None:
    cli.ok("topic", "create", "orders", "--shards", "2")
    assert cli.ok("topic", "resize", "orders", "8", "--json").json["shards"] == 8
    assert cli("topic", "resize", "orders").code == 2
    assert cli("topic", "resize", "orders", "8", "--shards", "8").code == 2


def test_a_confirmation_that_nobody_gives_names_the_option(cli: Cli) -> None:
    cli.ok("topic", "create", "orders")
    for answer in ("n\n", ""):
        refused = cli("topic", "delete", "orders", stdin=answer)
        assert refused.code == 1
        assert "Aborted: nothing was changed. Answer y, or give --yes." in refused.err
    assert cli.ok("topic", "list", "--json").objects


def test_what_becomes_of_a_key_whose_message_died_is_set_and_shown(cli: Cli) -> None:
    ordered = ("topic", "create", "jobs", "--ordering", "key")
    assert cli.ok(*ordered, "--json").json["on_dead"] == "skip"
    assert cli.ok(*ordered, "--on-dead", "block", "--json").json["on_dead"] == "block"
    assert cli.ok("topic", "show", "jobs", "--json").json["on_dead"] == "block"
    assert cli(*ordered, "--on-dead", "wait").code == 2
    assert cli("topic", "create", "plain", "--on-dead", "block").code != 0


def test_the_limit_of_outstanding_messages_is_set_and_shown(cli: Cli) -> None:
    create = ("topic", "create", "jobs", "--json", "--max-outstanding")
    assert cli.ok(*create, "5").json["max_outstanding"] == 5
    assert cli.ok("topic", "show", "jobs", "--json").json["max_outstanding"] == 5
    assert cli.ok(*create, "0").json["max_outstanding"] is None
    assert cli(*create, "-1").code == 2


def test_the_retention_of_messages_is_set_shown_and_removed(cli: Cli) -> None:
    create = ("topic", "create", "jobs", "--json")
    assert cli.ok(*create, "--message-retention", "60").json["message_retention"] == 60
    assert cli.ok("topic", "show", "jobs", "--json").json["message_retention"] == 60
    assert "message_retention" in cli("subscription", "add", "jobs", "a", "sqs:http://q/x").err
    assert cli.ok(*create).json["message_retention"] == 60  # what is not given stays
    assert cli.ok(*create, "--message-retention", "0").json["message_retention"] is None
    assert cli("topic", "create", "jobs", "--message-retention", "59").code == 2


def test_the_weights_of_a_topic_and_of_a_subscription_are_set_and_shown(cli: Cli) -> None:
    created = cli.ok(
        "topic", "create", "jobs", "--weight", "3", "--mini-batch", "5",
        "--tenant-weight", "acme=2", "--tenant-weight", "a=b=0.5", "--json",
    ).json  # fmt: skip
    assert (created["weight"], created["mini_batch"]) == (3, 5)
    assert created["tenant_weights"] == {"acme": 2, "a=b": 0.5}
    changed = cli.ok("topic", "create", "jobs", "--weight", "2", "--json").json
    assert changed == created | {"weight": 2}
    assert cli.ok("topic", "create", "jobs", "--tenant-weight", "none", "--json").json == (
        changed | {"tenant_weights": {}}
    )
    added = cli.ok(
        "subscription", "add", "jobs", "a", "sqs:http://q/x", "--weight", "4", "--json"
    ).json
    assert added["weight"] == 4
    (there,) = cli.ok("topic", "show", "jobs", "--json").json["subscriptions"]
    assert there["weight"] == 4
    assert cli("topic", "create", "jobs", "--tenant-weight", "acme").code == 2


def test_a_topic_that_differs_is_a_conflict_and_a_wrong_one_is_usage(orders: Cli) -> None:
    run = orders("topic", "create", "orders", "--shards", "16", "--json")
    assert (run.code, run.problem["type"]) == (1, "urn:fairbox:problem:conflict")
    run = orders("topic", "create", "a b", "--json")
    assert run.code == 2
    assert run.problem["errors"][0]["field"] == "topic"
    assert orders("topic", "create", "x", "--ordering", "fifo").code == 2
    run = orders("topic", "show", "nowhere")
    assert (run.code, run.err) == (1, "fairbox: there is no topic 'nowhere'\n")


def test_a_message_is_sent_with_everything_that_it_may_have(orders: Cli) -> None:
    orders.ok("topic", "create", "orders", "--dedup-window", "60")
    ref = sent(
        orders, '{"id": 7}', "--partition-key", "customer-42", "--content-type",
        "application/json", "--header", "a=b=c", "--header", "d=", "--delay", "60",
        "--fairness-key", "t", "--dedup-key", "k", "--batch-item", f"{NOBODY}:0:1",
        "--direct",
    )  # fmt: skip
    message = orders.application.outbox.get(MessageRef.parse(ref))
    assert message is not None
    assert (message.body, message.partition_key) == (b'{"id": 7}', "customer-42")
    assert (dict(message.headers), message.delay) == ({"a": "b=c", "d": ""}, 60)
    assert (message.fairness_key, message.dedup_key) == ("t", "k")
    assert (message.batch_item, message.direct) == (f"{NOBODY}:0:1", True)
    shown = orders.ok("message", "show", ref, "--json").json
    assert (shown["state"], shown["body"], shown["body_encoding"]) == (
        "waiting",
        '{"id": 7}',
        "utf-8",
    )


def test_a_body_comes_from_a_file_or_standard_input(orders: Cli, tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(b"\xff\x00")
    ref = orders.ok("message", "send", "orders", "--file", str(path), "--json").json["ref"]
    shown = orders.ok("message", "show", ref, "--json").json
    assert (shown["body_encoding"], base64.b64decode(shown["body"])) == ("base64", b"\xff\x00")
    piped = orders.ok("message", "send", "orders", "-f", "-", stdin="from stdin").out.strip()
    assert orders.ok("message", "show", piped, "--body").out == "from stdin"
    for body in ('{"a":1.5}', '{"a":12345678901234567.89}'):
        ref = sent(orders, body)
        shown = orders.ok("message", "show", ref).out
        assert body in "".join(shown.split())


def test_a_message_that_is_wrong_is_a_usage_error_and_nothing_is_sent(orders: Cli) -> None:
    for arguments in (
        ("orders",),
        ("orders", "x", "--file", "y"),
        ("orders", "x", "--header", "a"),
        ("orders", "x", "--delay", "-1"),
        ("orders", "x", "--id", "7"),
        ("orders", "--file", "/nowhere/at/all"),
    ):
        assert orders("message", "send", *arguments).code == 2
    assert orders("message", "send", "nowhere", "x").code == 1
    assert orders.application.outbox.outstanding_count() == 0


def test_an_id_sorts_above_another(orders: Cli) -> None:
    first = MessageRef.parse(sent(orders))
    assert MessageRef.parse(sent(orders, "x", "--after", first.id)).id > first.id


def test_messages_are_listed_by_state(orders: Cli) -> None:
    refs = [sent(orders) for _ in range(3)]
    later = sent(orders, "x", "--delay", "3600")
    soon = sent(orders, "x", "--delay", "1")
    orders.clock.advance(5)
    found = orders.ok("message", "list", "orders", "--json").objects
    assert [m["ref"] for m in found] == [*refs, soon]
    [waiting] = orders.ok("message", "list", "orders", "--state", "waiting", "--json").objects
    assert (waiting["ref"], waiting["state"]) == (later, "waiting")
    assert len(orders.ok("message", "list", "orders", "-n", "2", "--json").objects) == 2
    orders.application.outbox.mark_delivered([MessageRef.parse(refs[0])])
    orders.application.mark()
    [delivered] = orders.ok("message", "list", "orders", "--state", "delivered", "--json").objects
    assert (delivered["ref"], delivered["subscription"]) == (refs[0], "pull")
    assert orders.ok("message", "list", "orders").lines[0].split()[0] == "REF"


def test_messages_are_cancelled(orders: Cli) -> None:
    refs = [sent(orders) for _ in range(3)]
    run = orders("message", "cancel", *refs, FAR, "--dry-run", "--json")
    assert (run.code, run.json["would_cancel"]) == (1, refs)
    assert orders("message", "cancel", *refs, stdin="n\n").code == 1
    assert orders.application.outbox.outstanding_count("orders") == 3
    done = orders.ok("message", "cancel", *refs[:2], "--yes", "--reason", "twice", "--json").json
    assert done == {"cancelled": refs[:2]}
    run = orders("message", "cancel", refs[0], "--yes", "--json")
    assert (run.code, run.problem["missing"]) == (1, [refs[0]])
    assert orders.application.outbox.outstanding_count("orders") == 1


@pytest.mark.parametrize("noun", ["message", "dlq"])
def test_a_ref_that_names_nothing(orders: Cli, noun: str) -> None:
    run = orders(noun, "show", "orders/0")
    assert run.code == 2
    assert run.err.startswith("fairbox: ref: expected ")
    run = orders(noun, "show", FAR)
    assert (run.code, run.err) == (1, f"fairbox: not found: {FAR}\n")


def test_dead_letters_are_listed_and_shown_with_their_failures(orders: Cli) -> None:
    ref = dead(orders)
    [letter] = orders.ok("dlq", "list", "orders", "--json").objects
    assert (letter["ref"], letter["reason"]) == (ref, "no such account")
    assert orders.ok("message", "list", "orders", "--state", "dead", "--json").objects == [letter]
    shown = orders.ok("dlq", "show", ref, "--json").json
    assert (shown["body"], shown["pending"]) == ("dead body", ["billing"])
    assert [f["error"] for f in shown["history"]["billing"]] == ["no such account"]
    assert orders.ok("message", "show", ref, "--json").json["state"] == "dead"
    assert ref in orders.ok("dlq", "list", "orders").out
    assert "no such account" in orders.ok("dlq", "show", ref).out


def test_subscriptions_are_added_listed_and_removed(orders: Cli) -> None:
    added = orders.ok(
        "subscription",
        "add",
        "orders",
        "billing",
        "sqs:https://q/a",
        "--max-attempts",
        "3",
        "--json",
    ).json
    assert (added["destination"], added["max_attempts"]) == ("sqs:https://q/a", 3)
    orders.application.outbox.create_topic(Topic("other"))
    orders.ok("subscription", "add", "other", "b", "topic:orders")
    names = [s["name"] for s in orders.ok("subscription", "list", "--json").objects]
    assert names == ["billing", "b"]
    assert orders.ok("subscription", "list", "orders").lines[1].split() == [
        "orders",
        "billing",
        "ok",
        "sqs:https://q/a",
    ]
    orders.ok("subscription", "remove", "orders", "billing", "--dry-run")
    assert orders("subscription", "remove", "orders", "billing", stdin="\n").code == 1
    assert orders.application.outbox.topic("orders").pushed
    orders.ok("subscription", "remove", "orders", "billing", "--yes")
    assert not orders.application.outbox.topic("orders").pushed
    run = orders("subscription", "remove", "orders", "billing", "--yes", "--json")
    assert (run.code, run.problem["type"]) == (1, "urn:fairbox:problem:unknown-subscription")
    assert orders("subscription", "add", "orders", "x", "ftp://x").code == 2


def test_what_waits_for_a_subscription_is_shown_and_skipped(orders: Cli) -> None:
    name = ("orders", "crm")
    orders.ok("subscription", "add", *name, "sqs:https://q/a")
    orders.ok("subscription", "add", "orders", "other", "sqs:https://p/a")
    orders.ok("subscription", "pause", *name)
    orders.ok("subscription", "pause", "orders", "other")
    outbox = orders.application.outbox
    waiting = outbox.lacking_count(*name)
    first, *_ = [orders.ok("message", "send", "orders", "x", "--json").json["ref"] for _ in "abc"]
    shown = orders.ok("subscription", "show", *name, "--json").json
    assert (shown["waiting"], shown["more"]) == (waiting + 3, False)
    one = ("message", "skip", first, "--subscription", "crm")
    assert orders.ok(*one, "--dry-run", "--json").json["would_skip"] is True
    assert orders(*one, stdin="n\n").code == 1
    orders.ok(*one, "--reason", "closed", "--yes")
    assert orders(*one, "--dry-run").code == 1
    assert outbox.lacking_count(*name) == waiting + 2
    some = ("subscription", "skip", *name, "--json")
    assert orders.ok(*some, "--dry-run").json["skipped"] == waiting + 2
    part = orders.ok(*some, "--limit", "1", "--yes").json
    assert (part["skipped"], bool(part["after"])) == (1, True)
    rest = orders.ok(*some, "--after", part["after"], "--yes").json
    assert (rest["skipped"], rest["after"]) == (waiting + 1, "")
    assert orders(*some, "--after", "nonsense", "--yes").code == 2
    assert (outbox.lacking_count(*name), outbox.lacking_count("orders", "other")) == (
        0,
        waiting + 3,
    )


def test_subscriptions_are_paused_and_resumed_and_the_list_says_so(orders: Cli) -> None:
    limits = ("--max-in-flight", "3", "--rate", "2.5")
    added = orders.ok(
        "subscription", "add", "orders", "billing", "sqs:https://q/a", *limits, "--json"
    ).json
    assert (added["max_in_flight"], added["rate"], added["state"]) == (3, 2.5, "closed")
    name = ("orders", "billing")
    paused = orders.ok("subscription", "pause", *name, "--reason", "new system", "--json").json
    assert (paused["state"], paused["pause_reason"]) == ("paused", "new system")
    assert orders.application.outbox.topic("orders").status("billing").paused
    assert orders.ok("subscription", "list").lines[1].split()[2] == "paused"
    assert orders.ok("subscription", "resume", *name).out.strip() == "orders: billing is resumed"
    assert orders.application.outbox.topic("orders").status("billing").ready
    for verb in ("pause", "resume"):
        run = orders("subscription", verb, "orders", "nobody", "--json")
        assert (run.code, run.problem["type"]) == (1, "urn:fairbox:problem:unknown-subscription")


def test_the_outbox_is_counted_and_listed(orders: Cli) -> None:
    refs = [sent(orders) for _ in range(3)]
    orders.clock.advance(120)
    refs.append(sent(orders))
    orders.application.mark()
    assert orders.ok("outbox", "count", "orders").out == "4\n"
    assert orders.ok("outbox", "count", "--json").json == {"topic": None, "outstanding": 4}
    assert orders.ok("outbox", "count", "orders", "--limit", "2", "--json").json == {
        "topic": "orders",
        "outstanding": 3,
    }
    old = orders.ok("outbox", "outstanding", "orders", "--older-than", "60", "--json").objects
    assert [m["ref"] for m in old] == refs[:3]
    assert len(orders.ok("outbox", "outstanding", "--json").objects) == 4
    assert orders("outbox", "outstanding", "orders", "--older-than", "-1").code == 2


def test_deliveries_are_listed_by_time(orders: Cli) -> None:
    refs = [sent(orders) for _ in range(2)]
    for ref in refs:
        orders.application.outbox.mark_delivered([MessageRef.parse(ref)])
        orders.application.mark()
        orders.clock.advance(3600)
    found = orders.ok("outbox", "delivered", "orders", "--json").objects
    assert [d["ref"] for d in found] == refs
    day = "2025-10-09"  # the clock began on it
    assert [
        d["ref"]
        for d in orders.ok(
            "outbox", "delivered", "--since", day, "--until", f"{day}T09:00:00", "--json"
        ).objects
    ] == refs[:1]
    assert orders.ok(
        "outbox", "delivered", "orders", "--since", f"{day}T11:30:00+02:00", "--json"
    ).objects == [found[1]]
    assert orders("outbox", "delivered", "--since", "yesterday").code == 2


def test_the_sweep_rings_for_what_is_overdue(orders: Cli) -> None:
    orders.application.outbox.add_subscription(
        Subscription("orders", "billing", "sqs:http://q/billing")
    )
    sent(orders)
    orders.clock.advance(100)
    swept = orders.ok("outbox", "sweep", "--older-than", "60", "--json").json
    assert swept == {"overdue": 1, "shards": 1, "rung": 1}
    orders.application.visit()
    assert len(orders.application.destinations["sqs:http://q/billing"].received) == 1


def test_a_body_that_is_offloaded_is_shown(orders: Cli) -> None:
    body = json.dumps(["x" * 10] * 60_000).encode()
    made = orders.application.ids.next()
    message = Message(topic="orders", body=body + bytes(range(256)) * 3000, id=made)
    ref = orders.application.outbox.add(message)
    shown = orders.ok("message", "show", str(ref), "--json").json
    assert base64.b64decode(shown["body"]) == message.body


def test_a_replay_names_what_it_is_to_put_back_and_asks_first(cli: Cli) -> None:
    where = ("--archive", "/archive", "--warehouse", "/tables")
    refused = cli("outbox", "replay", *where, "--yes")
    assert (refused.code, refused.out) == (2, "")
    assert "--topic" in refused.err
    assert cli("outbox", "replay", *where, "--topic", "orders", stdin="n\n").code == 1


def test_a_replay_says_what_it_lacks_where_the_pipeline_is_not_installed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_verbs, "find_spec", lambda _: None)
    where = ("--archive", "/archive", "--warehouse", "/tables", "--everything", "--yes")
    failed = cli("outbox", "replay", *where)
    assert (failed.code, failed.out) == (1, "")
    assert "install fairbox-pipeline" in failed.err


def test_a_job_that_refuses_its_arguments_ends_the_run_as_a_wrong_value_does(
    cli: Cli, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        outbox_verbs.run_job(Session(cli.open(None)), "replay", ["--archive=/archive"])
    assert ended.value.exit_code == 2
    written = capfd.readouterr()
    assert written.out == ""
    assert "--warehouse" in written.err
