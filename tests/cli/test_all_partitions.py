"""Option `--all-partitions` of nouns `queue` and `dlq`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Message, Partition, PartitionedQueue, Subscription, Topic

if TYPE_CHECKING:
    from tests.support.cli_runs import Cli

SENT = {"email": 3, "email__p1": 4, "email__p2": 5}


@pytest.fixture
def emails(cli: Cli) -> Cli:
    """`fairbox` with queue `email` of three partitions, and messages in each."""
    app = cli.application
    PartitionedQueue("email", 3).create(app.outbox, shards=1)
    for topic, count in SENT.items():
        sent = [Message(topic=topic, body=b"x", id=app.ids.next()) for _ in range(count)]
        app.queue.send_many(sent)
    app.mark()
    return cli


def run(cli: Cli, *words: str, **more: Any) -> Any:
    return cli(*words[:2], "email", *words[2:], "--all-partitions", **more)


def by_topic(found: Any, field: str) -> dict[str, int]:
    return {part["topic"]: part[field] for part in found["partitions"]}


def test_figures_are_summed(emails: Cli) -> None:
    found = run(emails, "queue", "stats", "--json").json
    assert (found["queue"], found["ready"], found["in_flight"]) == ("email", 12, None)
    assert by_topic(found, "ready") == SENT
    lines = run(emails, "queue", "stats", "--in-flight").lines
    assert [line.split()[:3] for line in lines[1:]] == [
        *([topic, str(count), str(count)] for topic, count in SENT.items()),
        ["all", "12", "12"],
    ]
    refused = emails("queue", "stats", "email__p1", "--all-partitions")
    assert (refused.code, "not the logical name" in refused.err) == (1, True)


def test_a_queue_is_paused_resumed_and_purged_whole(emails: Cli) -> None:
    topics = emails.application.outbox.topics
    assert run(emails, "queue", "pause").out == "3 partitions of queue email are paused\n"
    assert all(state.paused for state in topics())
    assert run(emails, "queue", "resume", "--json").json["paused"] is False
    assert not any(state.paused for state in topics())
    tried = run(emails, "queue", "purge", "--dry-run", "--json").json
    assert (tried["purged"], tried["would_purge"], by_topic(tried, "would_purge")) == (0, 12, SENT)
    asked = run(emails, "queue", "purge", stdin="n\n")
    assert (asked.code, "Purge all 3 partitions of queue email?" in asked.err) == (1, True)
    assert run(emails, "queue", "purge", "--yes").out == "12 purged\n"


def test_it_tells_what_was_done_where_a_partition_fails(emails: Cli) -> None:
    pushed = Subscription("email__p1", "billing", "sqs:http://q/q")
    emails.application.outbox.add_subscription(pushed)
    failed = run(emails, "queue", "purge", "--yes")
    assert (failed.code, failed.out) == (1, "")
    assert failed.err.endswith("; purged: 8; done: email, email__p2; failed: email__p1\n")
    failed = run(emails, "queue", "pause", "--json")
    assert (failed.code, failed.problem["failed"]) == (1, ["email__p1"])
    assert by_topic(failed.problem, "paused") == {"email": True, "email__p2": True}
    emails.application.outbox.create_topic(Topic("cut", partition=Partition("cut", 0, 2)))
    failed = emails("dlq", "redrive", "cut", "--all-partitions", "--yes")
    assert (failed.code, failed.err.endswith("; done: cut; failed: cut__p1\n")) == (1, True)


def test_dead_letters_of_all_partitions_are_put_back(emails: Cli) -> None:
    queue = emails.application.queue
    for received in [one for topic in SENT for one in queue.receive(topic)]:
        queue.bury(received.receipt, "no")
    tried = run(emails, "dlq", "redrive", "--dry-run", "--limit", "5", "--json").json
    assert (tried["count"], len(tried["refs"]), tried["more"]) == (5, 5, True)
    assert by_topic(tried, "count") == {"email": 3, "email__p1": 2, "email__p2": 0}
    asked = run(emails, "dlq", "redrive", stdin="n\n")
    assert "Put 12 dead letter(s) of 3 partitions of queue email back?" in asked.err
    emails.clock.sleeps.clear()
    done = run(emails, "dlq", "redrive", "--limit", "4", "--rate", "2", "--yes", "--json").json
    assert by_topic(done, "count") == {"email": 3, "email__p1": 1, "email__p2": 0}
    assert emails.clock.sleeps == [0.5, 0.5]
    assert run(emails, "dlq", "redrive", "--yes").out == "8 put back\n"
    assert run(emails, "dlq", "redrive", "--id", "x", "--yes").code == 2
