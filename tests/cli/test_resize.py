"""Verbs `topic resize`, `topic size` by measured load, `outbox misplaced`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fairbox import Message, PartitionedQueue, Subscription, Topic
from fairbox.tables.keys import message_key
from fairbox.testing.application import OUTBOX

if TYPE_CHECKING:
    from tests.support.cli_runs import Cli


@pytest.fixture
def orders(cli: Cli) -> Cli:
    """`fairbox` with pulled topic `orders` of two shards, ten messages in it."""
    app = cli.application
    app.outbox.create_topic(Topic("orders", shards=2))
    app.outbox.add_many([message(cli) for _ in range(10)])
    app.mark()
    return cli


def message(cli: Cli, body: bytes = b"x", key: str | None = None) -> Message:
    return Message(topic="orders", body=body, partition_key=key, id=cli.application.ids.next())


def receive_all(cli: Cli) -> None:
    """Take every message of the topic, as its consumers would."""
    queue = cli.application.queue
    for _ in range(12):
        for received in queue.receive("orders"):
            queue.ack(received.receipt)
    cli.application.mark()


def test_a_resize_is_announced_a_minute_ahead(orders: Cli) -> None:
    shown = orders.ok("topic", "resize", "orders", "--shards", "8", "--json").json
    now = int(orders.clock.now() * 1000)
    assert shown == {
        "topic": "orders", "epoch": 1, "shards": 8, "before": 2, "begins_at": now + 60_000,
        "changed": True,
    }  # fmt: skip
    again = orders.ok("topic", "resize", "orders", "--shards", "8")
    assert again.out == "orders has, or will have, 8 shards: nothing to do\n"
    run = orders("topic", "resize", "orders", "--shards", "9", "--json")
    assert (run.code, run.problem["type"]) == (1, "urn:fairbox:problem:conflict")
    assert orders("topic", "resize", "orders", "--shards", "0").code == 2
    assert orders("topic", "resize", "nowhere", "--shards", "2").code == 1
    assert "2 to 4 shards, from 2025-" in resize_of_another(orders)


def resize_of_another(cli: Cli) -> str:
    cli.ok("topic", "create", "jobs", "--shards", "2")
    return cli.ok("topic", "resize", "jobs", "--shards", "4").out


def test_a_partitioned_queue_gets_another_number_of_partitions(orders: Cli) -> None:
    outbox = orders.application.outbox
    PartitionedQueue("email", 2).create(outbox, shards=1)
    shown = orders.ok("queue", "resize", "email", "--partitions", "4", "--json").json
    since = outbox.topic("email").widths[-1].since
    assert shown == {
        "queue": "email", "partitions": 4, "before": 2, "begins_at": since, "changed": True,
    }  # fmt: skip
    again = orders.ok("queue", "resize", "email", "--partitions", "4")
    assert again.out == "email has, or will have, 4 partitions: nothing to do\n"
    assert outbox.topic("email__p3").topic.shards == 1
    orders.clock.advance(200)
    text = orders.ok("queue", "resize", "email", "--partitions", "3").out
    assert text.startswith("email: 4 to 3 partitions, from 20")
    assert orders("queue", "resize", "orders", "--partitions", "3").code == 1
    assert orders("queue", "resize", "email", "--partitions", "0").code == 2


def test_topics_name_their_partitions(orders: Cli) -> None:
    outbox = orders.application.outbox
    PartitionedQueue("email", 2).create(outbox)
    PartitionedQueue("one", 1).create(outbox)
    outbox.create_topic(Topic("orders__p1"))
    shown = orders.ok("topic", "show", "email__p1", "--json").json
    assert shown["partition"] == {"queue": "email", "number": 1, "count": 2}
    assert "partition       1 of 2 of email" in orders.ok("topic", "show", "email__p1").lines
    listed = orders.ok("topic", "list", "--json").objects
    assert [t["name"] for t in listed if "partition" in t] == ["email", "email__p1"]
    assert orders.ok("topic", "list").lines[1].endswith("false   0 of 2 of email")


def test_show_tells_where_each_epoch_stands(orders: Cli) -> None:
    orders.ok("topic", "resize", "orders", "--shards", "8")
    orders.clock.advance(61)
    epochs = orders.ok("topic", "show", "orders", "--json").json["epochs"]
    assert [(e["number"], e["phase"], e["ready"]) for e in epochs] == [
        (0, "draining", 10),
        (1, "current", 0),
    ]


def test_waiting_tells_of_the_cut_and_of_what_drains_until_nothing_is_left(orders: Cli) -> None:
    orders.clock.events += [*[lambda: None] * 12, lambda: receive_all(orders)]
    run = orders.ok("topic", "resize", "orders", "--shards", "8", "--wait")
    assert run.out == "orders has 8 shards\n"
    assert run.err.splitlines()[1:] == [
        "epoch 0 (2 shards): current",
        "epoch 1 (8 shards): announced",
        "epoch 0 (2 shards): draining, 10 ready",
        "epoch 1 (8 shards): current",
        "epoch 0 (2 shards): drained; it is retired within hours",
    ]
    assert max(orders.clock.sleeps) == 15.0


def test_dead_letters_keep_an_epoch_and_no_one_waiting(orders: Cli) -> None:
    queue = orders.application.queue
    orders.clock.advance(1)
    (received, *_) = queue.receive("orders", 1)
    queue.bury(received.receipt, "no good")
    receive_all(orders)
    run = orders.ok("topic", "resize", "orders", "--shards", "8", "--wait", "--json")
    assert [(e["phase"], e["dead"]) for e in run.json["epochs"]] == [
        ("draining", 1),
        ("current", 0),
    ]


def test_waiting_ends_with_1_when_the_time_is_over(orders: Cli) -> None:
    run = orders("topic", "resize", "orders", "--shards", "8", "--wait", "--timeout", "200")
    assert run.code == 1
    assert run.err.endswith("fairbox: old epochs of orders hold messages after 200 s\n")


def test_a_retired_epoch_is_told(orders: Cli) -> None:
    def repaired() -> None:
        orders.clock.advance(3600)
        orders.application.repair()

    receive_all(orders)
    orders.ok("topic", "resize", "orders", "--shards", "8")
    repaired()
    orders.application.outbox.add(message(orders))
    # the repair finds the message, which nobody has counted: the resize waits for it too
    orders.clock.events = [repaired, lambda: receive_all(orders)]
    run = orders("topic", "resize", "orders", "--shards", "4", "--wait")
    assert "epoch 0 (2 shards): closed" in run.err
    assert "epoch 0: retired" in run.err


def test_a_size_is_advised_by_the_busiest_minute_of_the_ledger(cli: Cli) -> None:
    app = cli.application
    app.outbox.create_topic(Topic("orders", shards=2))
    app.outbox.add_subscription(Subscription("orders", "billing", "sqs:http://q/billing"))
    app.clock.set(app.clock.now() // 60 * 60)
    for count in (30, 600, 60):
        app.outbox.add_many([message(cli, app.rng.randbytes(1500)) for _ in range(count)])
        app.run()
        app.clock.advance(60)
    shown = cli.ok("topic", "size", "orders", "--json").json
    assert (shown["measured_messages"], shown["measured_per_second"]) == (690, 10)
    assert (shown["wcu_per_message"], shown["wcu_per_second"]) == (6, 60)
    assert (shown["shards"], shown["shards_now"]) == (1, 2)
    assert cli.ok("topic", "size", "orders", "--rate", "1000", "--json").json["shards"] == 9
    assert cli.ok("topic", "size", "orders", "--minutes", "1", "--json").json["shards"] == 1
    run = cli("topic", "size")
    assert (run.code, run.err.split()[1]) == (2, "rate:")


def test_misplaced_messages_are_listed_and_put_right(orders: Cli) -> None:
    outbox = orders.application.outbox
    assert orders.ok("outbox", "misplaced", "--json").objects == []
    (first, *_) = list(outbox.stored("ready", "orders"))
    wrong = replace(first.ref, shard=1 - first.ref.shard)
    item = outbox.tables.lanes.get(first.ref)
    assert item is not None
    orders.application.engine.put_item(TableName=OUTBOX, Item=item | message_key(wrong))
    orders.application.engine.delete_item(TableName=OUTBOX, Key=message_key(first.ref))
    found = {"ref": str(wrong), "belongs": str(first.ref)}
    assert orders.ok("outbox", "misplaced", "orders", "--json").objects == [found]
    dry = orders.ok("outbox", "misplaced", "--repair", "--dry-run", "--json").json
    assert (dry["moved"], dry["dry_run"]) == ([found], True)
    assert orders("outbox", "misplaced", "--repair", stdin="n\n").code == 1
    assert orders.ok("outbox", "misplaced", "--json").objects == [found]
    done = orders.ok("outbox", "misplaced", "--repair", "--yes")
    assert done.out.startswith("1 moved, 0 left, of ")
    assert orders.ok("outbox", "misplaced", "--json").objects == []
