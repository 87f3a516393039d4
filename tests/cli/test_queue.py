"""Nouns `queue`, `dlq redrive`, `message edit` and `topic size`, over the application in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest
from fairbox import Message, RetryPolicy, Subscription, Topic

if TYPE_CHECKING:
    from tests.support.cli_runs import Cli


@pytest.fixture
def jobs(cli: Cli) -> Cli:
    """`fairbox` with the pulled topic `jobs`, whose messages die at their second failure."""
    retry = RetryPolicy(max_attempts=2)
    cli.application.outbox.create_topic(Topic("jobs", shards=1, ordering="none", retry=retry))
    return cli


def send(cli: Cli, *bodies: bytes) -> list[str]:
    ids = cli.application.ids
    return [
        str(cli.application.queue.send(Message(topic="jobs", body=body, id=ids.next())))
        for body in bodies
    ]


def receive(cli: Cli, *options: str) -> list[Any]:
    return cli.ok("queue", "receive", "jobs", *options, "--json").objects


def kill(cli: Cli, *reasons: str) -> list[str]:
    refs = send(cli, *(reason.encode() for reason in reasons))
    for found in receive(cli):
        cli.ok("queue", "nack", found["receipt"], "--dead", "--reason", found["body"])
    return refs


def test_what_is_received_is_acked_and_gone(jobs: Cli) -> None:
    refs = send(jobs, b"one", b"two")
    found = receive(jobs)
    assert [(f["ref"], f["body"], f["receive_count"]) for f in found] == [
        (refs[0], "one", 1),
        (refs[1], "two", 1),
    ]
    assert receive(jobs) == []
    receipts = "\n".join(f["receipt"] for f in found)
    assert jobs.ok("queue", "ack", "-", "--json", stdin=receipts).json == {"acked": 2}
    assert jobs.ok("outbox", "count", "jobs").out == "0\n"


@pytest.mark.parametrize(
    ("body", "printed"),
    [
        (b"two\nlines", ["two", "lines"]),
        (
            b'{"id":1,"tags":["\xc3\xa4"]}',
            ["{", '  "id": 1,', '  "tags": [', '    "ä"', "  ]", "}"],
        ),
        (b'"a text"', ['"a text"']),
        (b"\xff\x00\xfe", ["3 bytes of application/octet-stream: see --json"]),
        (b"\x1b[2J", ["\\u001b[2J"]),
        (b"", [""]),
        (b"x" * 4001, ["x" * 4000, "... 4001 characters in all: see --json"]),
        (b"[" * 100_000, ["[" * 4000, "... 100000 characters in all: see --json"]),
    ],
)
def test_people_see_the_bodies_that_they_receive(
    jobs: Cli, body: bytes, printed: list[str]
) -> None:
    (ref,) = send(jobs, body)
    lines = jobs.ok("queue", "receive", "jobs").out.splitlines()
    place = next(n for n, line in enumerate(lines) if line.startswith("body "))
    column = len("receive_count  ")
    assert [line[column:] for line in lines[place:]] == printed
    assert lines[0] == f"{'ref':<13}  {ref}"
    assert [line.split()[0] for line in lines[1:place]] == [
        "receive_count",
        "visible_at",
        "size",
        "receipt",
        "content_type",
    ]


def test_messages_that_are_received_together_are_printed_apart(jobs: Cli) -> None:
    send(jobs, b"one", b"two")
    parts = jobs.ok("queue", "receive", "jobs").out.split("\n\n")
    assert [part.split()[-1] for part in parts] == ["one", "two"]
    run = jobs.ok("queue", "receive", "jobs")
    assert (run.out, run.err) == ("", "nothing\n")


def test_dead_letters_are_received_and_settled(jobs: Cli) -> None:
    kill(jobs, "no account", "no money")
    one, two = receive(jobs, "--dead")
    assert (one["reason"], one["subscriptions"]) == ("no account", ["pull"])
    jobs.ok("queue", "extend", one["receipt"], "60")
    jobs.ok("queue", "nack", one["receipt"])
    jobs.ok("queue", "ack", two["receipt"])
    assert "no account" in jobs.ok("queue", "receive", "jobs", "--dead").out


@pytest.mark.parametrize("ordering", ["none", "key"])
@pytest.mark.parametrize(
    "verb", [("ack",), ("reset",), ("nack", "--dead"), ("nack",), ("extend", "--", "5")]
)
def test_a_stale_receipt_is_named_by_its_message(
    cli: Cli, ordering: Literal["none", "key"], verb: tuple[str, ...]
) -> None:
    cli.application.outbox.create_topic(Topic("jobs", shards=1, ordering=ordering))
    (ref,) = send(cli, b"one")
    (found,) = receive(cli)
    cli.application.clock.advance(31)
    receive(cli)
    name, *rest = verb
    run = cli("queue", name, found["receipt"], *rest)
    assert run.code == 1
    assert run.err == f"fairbox: no longer held: {ref}; do not repeat: receive again\n"


def test_what_is_reset_is_due_at_once_and_no_attempt_counts(jobs: Cli) -> None:
    send(jobs, b"one")
    (found,) = receive(jobs)
    assert jobs.ok("queue", "reset", found["receipt"]).out == "1 released\n"
    (again,) = receive(jobs)
    assert (again["ref"], again["receive_count"]) == (found["ref"], 1)


def test_a_stale_receipt_is_named_and_the_others_are_settled(jobs: Cli) -> None:
    send(jobs, b"one", b"two")
    stale, good = receive(jobs)
    jobs.ok("queue", "reset", stale["receipt"])
    receive(jobs)
    run = jobs("queue", "ack", stale["receipt"], good["receipt"], "--json")
    assert run.code == 1
    assert run.problem["receipts"] == [stale["receipt"]]
    assert run.problem["acked"] == 1
    assert jobs.ok("outbox", "count", "jobs").out == "1\n"
    assert jobs("queue", "ack", "nonsense").code == 2
    assert jobs("queue", "ack").code == 2


def test_a_nack_waits_and_an_extension_holds(jobs: Cli) -> None:
    send(jobs, b"one")
    (found,) = receive(jobs, "--visibility-timeout", "5")
    jobs.ok("queue", "extend", found["receipt"], "100")
    jobs.clock.advance(50)
    assert receive(jobs) == []
    jobs.ok("queue", "nack", found["receipt"], "--delay", "20", "--reason", "not yet")
    jobs.clock.advance(10)
    assert receive(jobs) == []
    jobs.clock.advance(61)
    assert [f["receive_count"] for f in receive(jobs)] == [2]


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("--visibility-timeout", "0", "visibility_timeout"),
        ("--visibility-timeout", "-1", "visibility_timeout"),
        ("--visibility-timeout", "43201", "visibility_timeout"),
        ("--visibility-timeout", "nan", "visibility_timeout"),
        ("--max-messages", "0", "max_messages"),
        ("--max-messages", "1000", "max_messages"),
        ("--wait", "-1", "wait"),
    ],
)
def test_a_receive_that_makes_no_sense_is_usage_and_holds_nothing(
    jobs: Cli, option: str, value: str, named: str
) -> None:
    send(jobs, b"one")
    run = jobs("queue", "receive", "jobs", option, value)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith(f"fairbox: {named}: expected")
    assert [found["receive_count"] for found in receive(jobs)] == [1]


def test_receipts_that_are_none_are_usage_and_those_of_others_are_stale(jobs: Cli) -> None:
    send(jobs, b"one", b"two")
    one, two = (found["receipt"] for found in receive(jobs))
    for bad in (one[:-3], one[3:], "x", one.swapcase(), one + one):
        for verb in (("ack", bad), ("reset", bad), ("nack", bad), ("extend", bad, "60")):
            assert jobs("queue", *verb).code == 2
    for seconds in ("0", "43201"):
        assert jobs("queue", "extend", one, seconds).code == 2
    jobs.ok("queue", "ack", two)
    for verb in (("nack", two), ("extend", two, "60"), ("reset", two)):
        assert jobs("queue", *verb).code == 1
    assert jobs.ok("outbox", "count", "jobs").out == "1\n"


def test_a_pushed_topic_gives_nothing_and_says_why(cli: Cli) -> None:
    cli.application.outbox.create_topic(Topic("orders", shards=1))
    cli.application.outbox.add_subscription(Subscription("orders", "billing", "sqs:http://q/q"))
    run = cli("queue", "receive", "orders")
    assert (run.code, run.out) == (1, "")
    assert "orders" in run.err


@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_a_purge_of_a_pushed_topic_is_refused(jobs: Cli, option: str) -> None:
    send(jobs, b"one")
    outbox = jobs.application.outbox
    outbox.add_subscription(Subscription("jobs", "billing", "sqs:http://q/orders-a"))
    run = jobs("queue", "purge", "jobs", option)
    assert run.code == 1
    assert "topic 'jobs' is pushed" in run.err
    assert "cancel its messages" in run.err
    assert outbox.outstanding_count("jobs") == 1


def test_a_queue_is_counted_purged_paused_and_resumed(jobs: Cli) -> None:
    send(jobs, b"one", b"two")
    jobs.application.mark()
    assert jobs.ok("queue", "stats", "jobs", "--json").json["ready"] == 2
    tried = jobs.ok("queue", "purge", "jobs", "--dry-run", "--json").json
    assert tried == {"purged": 0, "would_purge": 2}
    assert jobs("queue", "purge", "jobs", stdin="n\n").code == 1
    jobs.ok("queue", "pause", "jobs")
    assert receive(jobs) == []
    jobs.ok("queue", "resume", "jobs")
    jobs.clock.advance(3)
    jobs.ok("queue", "reset", receive(jobs, "-n", "1")[0]["receipt"])
    assert jobs.ok("queue", "purge", "jobs", "--yes", "--json").json == {"purged": 2}
    assert receive(jobs) == []


def test_dead_letters_are_redriven_by_what_they_died_of(jobs: Cli) -> None:
    refs = kill(jobs, "no account", "no money", "no account at all")
    tried = jobs.ok("dlq", "redrive", "jobs", "--reason", "account", "--dry-run", "--json").json
    assert (tried["refs"], tried["dry_run"]) == ([refs[0], refs[2]], True)
    assert len(jobs.ok("dlq", "list", "jobs", "--json").objects) == 3
    assert jobs("dlq", "redrive", "jobs", stdin="n\n").code == 1
    done = jobs.ok("dlq", "redrive", "jobs", "--reason", "account", "--yes", "--json").json
    assert (done["count"], done["refs"]) == (2, [refs[0], refs[2]])
    jobs.application.run()
    assert [f["ref"] for f in receive(jobs)] == [refs[0], refs[2]]
    left = jobs.ok("dlq", "list", "jobs", "--json").objects
    assert [letter["ref"] for letter in left] == [refs[1]]


def test_a_redrive_keeps_to_its_rate_and_limit(jobs: Cli) -> None:
    refs = kill(jobs, "a", "b", "c", "d")
    jobs.clock.sleeps.clear()
    done = jobs.ok(
        "dlq", "redrive", "jobs", "--rate", "0.5", "--limit", "3", "--yes", "--json"
    ).json
    assert (done["refs"], done["more"]) == (refs[:3], True)
    assert jobs.clock.sleeps == [2, 2]


def test_a_redrive_of_what_is_not_dead_changes_nothing(jobs: Cli) -> None:
    dead = kill(jobs, "a")
    (alive,) = send(jobs, b"alive")
    run = jobs("dlq", "redrive", "jobs", dead[0], alive, "--yes", "--json")
    assert (run.code, run.problem["missing"]) == (1, [alive])
    assert len(jobs.ok("dlq", "list", "jobs", "--json").objects) == 1


def test_a_message_is_edited_and_made_due(jobs: Cli) -> None:
    delayed = Message(topic="jobs", body=b"old", delay=3600, id=jobs.application.ids.next())
    ref = str(jobs.application.queue.send(delayed))
    later = jobs.ok("message", "edit", ref, "new", "--due", "+7200").out.strip()
    assert later != ref
    now = jobs.ok("message", "edit", later, "--due", "now", "--json").json["ref"]
    jobs.application.run()
    assert [(f["ref"], f["body"]) for f in receive(jobs)] == [(now, "new")]
    assert jobs("message", "edit", now).code == 2
    assert jobs("message", "edit", now, "--due", "soon").code == 2
    run = jobs("message", "edit", now, "newer", "--json")
    assert (run.code, run.problem["claimed"]) == (1, [now])


@pytest.mark.parametrize(
    ("options", "shards"),
    [
        (("--rate", "5000", "--message-size", "900"), 22),
        (("--rate", "100", "--message-size", "1025"), 1),
        (("--rate", "700", "--wcu", "2"), 2),
        (("--rate", "0"), 1),
    ],
)
def test_a_topic_is_sized_by_seven_hundred_units_a_shard(
    cli: Cli, options: tuple[str, ...], shards: int
) -> None:
    assert cli.ok("topic", "size", *options, "--json").json["shards"] == shards


def test_what_died_on_an_ordered_topic_is_received_anew_after_a_redrive(cli: Cli) -> None:
    cli.application.outbox.create_topic(Topic("jobs", shards=1, ordering="key"))
    kill(cli, "first")
    (ref,) = [letter["ref"] for letter in cli.ok("dlq", "list", "jobs", "--json").objects]
    cli.clock.advance(60)
    cli.ok("dlq", "redrive", "jobs", "--yes")
    cli.clock.advance(60)
    assert [(f["ref"], f["receive_count"]) for f in receive(cli)] == [(ref, 1)]


def test_a_message_that_is_held_is_shown_so_with_its_holder(jobs: Cli) -> None:
    refs = send(jobs, b"one", b"two")
    (held,) = receive(jobs, "-n", "1", "--consumer", "worker-1")
    shown = jobs.ok("message", "show", refs[0], "--json").json
    receives = "state", "receive_count", "held_until", "consumer"
    assert [shown[field] for field in receives] == ["held", 1, held["visible_at"], "worker-1"]
    listed = jobs.ok("message", "list", "jobs", "--json").objects
    assert [(m["ref"], m["state"]) for m in listed] == [(refs[0], "held"), (refs[1], "outstanding")]
    only = jobs.ok("message", "list", "jobs", "--state", "held", "--json").objects
    assert [(m["ref"], m["consumer"]) for m in only] == [(refs[0], "worker-1")]
    assert "worker-1" in jobs.ok("message", "list", "jobs").out


def test_messages_in_flight_are_counted_where_it_is_asked_for(jobs: Cli) -> None:
    send(jobs, b"one", b"two", b"three")
    jobs.application.mark()
    receive(jobs, "-n", "2")
    assert jobs.ok("queue", "stats", "jobs", "--json").json["in_flight"] is None
    found = jobs.ok("queue", "stats", "jobs", "--in-flight", "--json").json
    assert (found["outstanding"], found["in_flight"], found["visible"]) == (3, 2, 1)


@pytest.mark.parametrize(
    ("verb", "done", "count"),
    [
        ("release", "released", 1),
        ("reset", "reset", 1),
        ("bury", "buried", 0),
        ("delete", "deleted", 0),
    ],
)
def test_held_messages_are_taken_from_who_holds_them(
    jobs: Cli, verb: str, done: str, count: int
) -> None:
    refs = send(jobs, b"one", b"two")
    receive(jobs, "--visibility-timeout", "43200")
    tried = jobs.ok("message", verb, *refs, "--dry-run", "--json").json
    assert tried == {done: [], f"would_{verb}": refs}
    options = ["--yes"] if count == 0 else []
    if options:
        assert jobs("message", verb, refs[0], stdin="n\n").code == 1
    assert receive(jobs) == []
    assert jobs.ok("message", verb, refs[0], *options, "--json").json == {done: [refs[0]]}
    assert [f["receive_count"] for f in receive(jobs)] == [1] * count
    gone = f"{refs[0][:-1]}{'0' if refs[0][-1] != '0' else '1'}"
    run = jobs("message", verb, refs[1], gone, *options, "--json")
    assert (run.code, run.problem["missing"], run.problem[done]) == (1, [gone], [refs[1]])
