"""The delivery functions' handlers, each given events as the running application sends them."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from fairbox import Message, MessageRef, PartitionedQueue, Subscription, Topic, Unavailable
from fairbox.model.ids import IdGenerator
from fairbox.model.topic_states import NEW
from fairbox.observability.metrics import (
    DEAD_COUNT,
    GIVEN_UP_AGE,
    GIVEN_UP_KEPT,
    NEWER,
    OLDEST_AGE,
    OLDEST_BATCH_AGE,
    OPEN_BATCHES,
    OPEN_CIRCUITS,
    OUTSTANDING_COUNT,
    PAUSED_SUBSCRIPTIONS,
    SENT_BYTES,
    UNREADABLE,
)
from fairbox.tables.repair_cursor import RepairTable

from tests.functions.api_client import read_event
from tests.functions.running import Context, Functions, figures

BILLING = "https://sqs.test/billing"
INVOICE = MessageRef("invoices", 0, 0, "01a1fd01-15da-76e0-b41a-bcc8489a4191")


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Functions:
    """The functions, with topics `orders` to a queue and `invoices` to one and a webhook."""
    functions = Functions(monkeypatch)
    functions.clock.set(1_795_246_060)
    for name in ("orders", "invoices"):
        functions.outbox.create_topic(Topic(name, shards=4))
    functions.outbox.add_subscriptions(
        [
            Subscription("orders", "billing", f"sqs:{BILLING}"),
            Subscription("invoices", "billing", f"sqs:{BILLING}"),
            Subscription("invoices", "hook", "https://hook.test/invoices"),
        ]
    )
    return functions


def inserted(functions: Functions) -> dict[str, Any]:
    event = read_event("stream_inserted")
    functions.put_images(event["Records"])
    return event


def _refs(functions: Functions, topic: str) -> list[MessageRef]:
    """Return the refs of everything in both lanes of a topic."""
    state = functions.outbox.topic(topic)
    lanes = (functions.outbox.outstanding(topic), functions.outbox.waiting(topic))
    found = []
    for message in (message for lane in lanes for message in lane):
        stored = functions.outbox.find(state.ref(message))
        assert stored is not None
        found.append(stored.ref)
    return found


def refs_at_billing(functions: Functions) -> list[MessageRef]:
    return [MessageRef.parse(body["fairboxref"]) for body in functions.sqs.bodies(BILLING)]


def orders(functions: Functions) -> list[Any]:
    """Return the data of what the queue has of topic `orders`."""
    bodies = functions.sqs.bodies(BILLING)
    refs = refs_at_billing(functions)
    return [b["data"] for b, r in zip(bodies, refs, strict=True) if r.topic == "orders"]


def metrics(capsys: pytest.CaptureFixture[str], topic: str | None = None) -> dict[str, Any]:
    """Return the figures written last for a topic, or for all."""
    lines = [json.loads(t) for t in capsys.readouterr().out.splitlines() if '"_aws"' in t]
    found: dict[str, Any] = {}
    for line in lines:
        if line.get("topic") == topic:
            found |= line
    return found


def test_relay_sends_what_is_quick_deletes_it_and_rings_for_the_rest(functions: Functions) -> None:
    event = inserted(functions)
    assert functions.invoke("relay", event) == {"batchItemFailures": []}
    assert orders(functions) == [{"order": 0}, {"order": 1}, {"order": 2}]
    # the webhook's copy is left to a visit, and the queue does not wait for it
    assert [ref.id for ref in refs_at_billing(functions) if ref.topic == "invoices"] == [INVOICE.id]
    assert functions.outbox.outstanding_count("orders") == 1  # the delayed one
    assert functions.outbox.outstanding_count("invoices") == 1
    (at_once,) = functions.sqs.bodies(functions.now)
    assert (at_once["topic"], at_once["ids"]) == ("invoices", [INVOICE.id])
    (later,) = functions.sqs.bodies(functions.later)
    assert later["topic"] == "orders"
    assert later["ids"][0].endswith("/1795246071012")
    assert later["not_before"] == 1_795_246_072_000


def test_relay_writes_how_many_bytes_each_destination_took_of_each_topic(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    event = inserted(functions)
    functions.invoke("count_outstanding", read_event("clock_count_outstanding"))  # ranks topics
    capsys.readouterr()
    functions.invoke("relay", event)
    lines = [json.loads(t) for t in capsys.readouterr().out.splitlines() if SENT_BYTES in t]
    invoices, line = lines
    assert (invoices["topic"], invoices[SENT_BYTES]) == ("invoices", 5)
    (written,) = line["_aws"]["CloudWatchMetrics"]
    assert written["Dimensions"] == [["service", "destination", "topic"]]
    assert written["Metrics"] == [{"Name": SENT_BYTES, "Unit": "Bytes"}]
    destination = Subscription("orders", "billing", f"sqs:{BILLING}").label
    assert (line["topic"], line["destination"]) == ("orders", destination)
    assert line[SENT_BYTES] == 3 * len(b'{"order": 0}')


def test_relay_buries_what_it_cannot_read_and_delivers_the_rest(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    event = inserted(functions)
    spoilt = event["Records"][1]["dynamodb"]["NewImage"]
    spoilt["v"] = {"N": "999"}
    assert functions.invoke("relay", event) == {"batchItemFailures": []}
    assert orders(functions) == [{"order": 0}, {"order": 2}]
    (letter,) = functions.outbox.dead("orders")
    assert (letter.id, letter.stored) == (spoilt["sk"]["S"], None)
    assert "99" in letter.reason
    assert metrics(capsys)[UNREADABLE] == 1


def test_relay_fails_no_record_when_a_destination_refuses(functions: Functions) -> None:
    event = inserted(functions)
    refs = [
        MessageRef("orders", 0, 1 - n % 2, message.id)
        for n, message in enumerate(functions.outbox.outstanding("orders"))
    ]
    functions.sqs.refusing.add(BILLING)
    assert functions.invoke("relay", event) == {"batchItemFailures": []}
    assert functions.outbox.outstanding_count("orders") == 4
    found = [functions.outbox.find(ref) for ref in refs]
    attempts = [stored and stored.state("billing").attempts for stored in found]
    assert attempts == [1, 1, 1]
    assert len(functions.sqs.bodies(functions.later)) >= 2  # one for the delayed message


def test_mark_delivered_writes_ledger_archive_and_counts_once_though_a_batch_repeats(
    functions: Functions,
) -> None:
    event = read_event("stream_of_messages")
    functions.put_images(event["Records"])
    for _ in range(2):
        assert functions.invoke("mark_delivered", event) == {"batchItemFailures": []}
    told = {line["event_id"]: line for line in functions.firehose.lines}
    kinds = [line["event"] for line in told.values()]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "added": 5,
        "failed": 2,
        "delivered": 6,
    }
    assert len(functions.firehose.lines) == 2 * len(told)
    deliveries = list(functions.outbox.delivered())
    assert len(deliveries) == 6
    attempts = {(d.topic, d.subscription): d.attempts for d in deliveries}
    assert attempts == {
        ("orders", "billing"): 1,
        ("invoices", "hook"): 3,
        ("invoices", "billing"): 1,
    }
    assert functions.outbox.listed() == []  # everything came and went


def test_mark_delivered_counts_what_is_still_there(functions: Functions) -> None:
    event = inserted(functions)
    for _ in range(2):
        assert functions.invoke("mark_delivered", event) == {"batchItemFailures": []}
    rows = {(r.topic, r.shard): (r.ready, r.later) for r in functions.outbox.listed()}
    assert rows == {
        ("orders", 1): (2, 0),
        ("orders", 0): (1, 0),
        ("orders", 3): (0, 1),
        ("invoices", 0): (1, 0),
    }


def test_deliver_shard_delivers_what_a_doorbell_names(functions: Functions) -> None:
    inserted(functions)
    functions.outbox.remove_subscription("invoices", "hook")
    event = read_event("doorbell_named")
    assert functions.invoke("deliver_shard", event) == {"batchItemFailures": []}
    (sent,) = functions.sqs.bodies(BILLING)
    assert sent["fairboxref"] == str(INVOICE)
    assert functions.outbox.outstanding_count("invoices") == 0
    assert functions.outbox.outstanding_count("orders") == 4


def test_deliver_shard_rung_by_the_sweep_takes_what_is_due(functions: Functions) -> None:
    inserted(functions)
    event = read_event("doorbell_of_sweep")
    functions.clock.set(1_795_246_071)  # a moment before the message of that shard is due
    functions.invoke("deliver_shard", event)
    assert functions.sqs.bodies(BILLING) == []
    functions.clock.advance(1)
    functions.invoke("deliver_shard", event)
    (sent,) = functions.sqs.bodies(BILLING)
    assert sent["fairboxref"].startswith("orders/0/3/")


def test_deliver_shard_passes_a_delayed_doorbell_on(functions: Functions) -> None:
    inserted(functions)
    functions.clock.set(1_795_246_072)
    event = read_event("doorbell_later")
    assert functions.invoke("deliver_shard", event) == {"batchItemFailures": []}
    (passed,) = functions.sqs.bodies(functions.now)
    assert (passed["topic"], passed["ids"], passed["not_before"]) == ("invoices", [INVOICE.id], 0)
    assert functions.sqs.bodies(functions.later) == []


def test_deliver_shard_waits_on_where_a_queue_could_not_delay_long_enough(
    functions: Functions,
) -> None:
    functions.clock.set(1_795_246_072 - 600)
    functions.invoke("deliver_shard", read_event("doorbell_later"))
    (entry,) = functions.sqs.sent[functions.later]
    assert entry["DelaySeconds"] == 600
    assert functions.now not in functions.sqs.sent


def test_deliver_shard_reports_a_doorbell_that_failed_and_those_behind_it(
    functions: Functions,
) -> None:
    event = read_event("doorbell_named")
    (good,) = event["Records"]
    broken = good | {"messageId": "broken", "body": '{"topic": 7}'}
    event["Records"] = [good | {"messageId": "first"}, broken, good | {"messageId": "last"}]
    assert functions.invoke("deliver_shard", event) == {
        "batchItemFailures": [{"itemIdentifier": "broken"}, {"itemIdentifier": "last"}]
    }


def test_sweep_rings_for_shards_with_overdue_messages_only(functions: Functions) -> None:
    event = inserted(functions)
    functions.invoke("mark_delivered", event)
    clock = read_event("clock_sweep")
    before = functions.invoke("sweep", clock)
    assert (before["rung"], functions.sqs.bodies(functions.now)) == (0, [])
    functions.clock.advance(70)
    after = functions.invoke("sweep", clock)
    assert (after["rung"], after["unfinished"]) == (4, False)
    rung = {(bell["topic"], bell["shard"]) for bell in functions.sqs.bodies(functions.now)}
    assert rung == {("orders", 0), ("orders", 1), ("orders", 3), ("invoices", 0)}


def test_repair_lists_overdue_lanes_and_replays_batches_that_were_given_up(
    functions: Functions,
) -> None:
    event = inserted(functions)
    given_up = {"version": "1.0", "payload": json.dumps(event)}
    name = "aws/lambda/mark-delivered/shard/2026/11/21/batch.json"
    functions.s3.objects = {name: json.dumps(given_up).encode(), "other": b"is no batch"}
    functions.clock.advance(120)
    figures = functions.invoke("repair", read_event("clock_repair"), Context(900_000))
    assert list(functions.s3.objects) == ["other"]
    assert sum(row.outstanding for row in functions.outbox.listed()) == 5
    assert len([line for line in functions.firehose.lines if line["event"] == "added"]) == 5
    assert figures.pop("orphans") == []
    assert all(isinstance(value, int | float | bool) for value in figures.values())


def test_mark_delivered_sets_aside_what_repair_replays_after_the_upgrade(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    event = inserted(functions)
    newer = event["Records"][1]["dynamodb"]["NewImage"]
    newer["v"] = {"N": "2"}
    assert functions.invoke("mark_delivered", event) == {"batchItemFailures": []}
    assert figures(capsys)[NEWER] == 1
    (name,) = functions.s3.objects
    assert name.startswith("aws/lambda/set-aside/NewerVersion/")
    assert sum(row.outstanding for row in functions.outbox.listed()) == 5
    functions.clock.advance(7 * 3600)
    functions.s3.times[name] = datetime.fromtimestamp(functions.clock.now() - 7 * 3600, UTC)
    functions.invoke("repair", read_event("clock_repair"), Context(900_000))
    told = figures(capsys)
    assert (told[GIVEN_UP_KEPT], round(told[GIVEN_UP_AGE])) == (1, 7)
    body = functions.s3.objects[name].decode()
    newer["v"] = {"N": "1"}
    payload = json.dumps({"Records": [event["Records"][1]]})
    assert len(json.loads(json.loads(body)["payload"])["Records"]) == 1
    functions.s3.objects[name] = json.dumps({"payload": payload}).encode()
    functions.invoke("repair", read_event("clock_repair"), Context(900_000))
    told = figures(capsys)
    assert (told[GIVEN_UP_KEPT], told[GIVEN_UP_AGE]) == (0, 0)
    assert functions.s3.objects == {}
    assert len([line for line in functions.firehose.lines if line["event"] == "added"]) == 5


def test_what_repair_keeps_is_told_though_its_scan_fails(
    functions: Functions, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    functions.s3.objects = {"aws/lambda/a": b"no batch"}

    def fails(*_: Any) -> Any:
        raise Unavailable("scan", "no")

    monkeypatch.setattr(RepairTable, "scan_page", fails)
    with pytest.raises(Unavailable):
        functions.invoke("repair", read_event("clock_repair"), Context(900_000))
    assert figures(capsys)[GIVEN_UP_KEPT] == 1


def test_repair_replays_what_the_cascade_gave_up_and_keeps_what_still_fails(
    functions: Functions,
) -> None:
    batch = functions.batch(1, 1)
    cascade: Any = functions.batches._context.cascade
    cascade.cascade = lambda _: []  # whoever acks dies before it looks at the parent
    functions.batches.ack([f"{batch}:0:0", f"{batch}:1:0"])
    name = "aws/lambda/cascade-batches/shard/2026/11/21/batch.json"
    payload = json.dumps(functions.stream())
    functions.s3.objects = {name: json.dumps({"payload": payload}).encode()}
    repair = functions.load("repair")
    keeper = repair.application().keeper
    finish = keeper.finish
    keeper.finish = lambda causes, **_: finish(causes, deadline=0)
    assert repair.handler({}, Context(900_000))["replayed"] == 0
    assert list(functions.s3.objects) == [name]
    assert functions.announced() == []
    assert functions.invoke("repair", {}, Context(900_000))["replayed"] == 2
    assert functions.s3.objects == {}
    assert [m["id"] for m in functions.announced()] == [batch]


def test_repair_finds_what_no_row_knows(functions: Functions) -> None:
    inserted(functions)
    assert functions.outbox.listed() == []
    functions.clock.advance(130)
    functions.invoke("repair", read_event("clock_repair"), Context(900_000))
    shards = {("orders", 0), ("orders", 1), ("orders", 3), ("invoices", 0)}
    assert {(row.topic, row.shard) for row in functions.outbox.listed()} == shards
    functions.invoke("sweep", read_event("clock_sweep"))
    assert {
        (bell["topic"], bell["shard"]) for bell in functions.sqs.bodies(functions.now)
    } == shards


def test_repair_takes_shards_off_the_index_that_it_listed_and_that_are_empty(
    functions: Functions,
) -> None:
    inserted(functions)
    refs = [ref for name in ("orders", "invoices") for ref in _refs(functions, name)]
    functions.clock.advance(130)
    functions.invoke("repair", read_event("clock_repair"), Context(900_000))
    assert len(functions.outbox.listed()) == 4
    functions.outbox.mark_delivered(refs)
    functions.clock.advance(3600)
    functions.invoke("repair", read_event("clock_repair"), Context(900_000))
    assert len(functions.outbox.listed()) == 4, "nobody has read the stream: counts are in doubt"
    images = ("NewImage", "OldImage")
    records = functions.engine.stream(functions.tables["outbox"]).take(None)
    messages = [r for r in records if any("z" in r["dynamodb"].get(i, {}) for i in images)]
    functions.invoke("mark_delivered", {"Records": messages})
    functions.invoke("repair", read_event("clock_repair"), Context(900_000))
    assert functions.outbox.listed() == []


def test_count_outstanding_writes_counts_and_ages_by_topic_and_in_all(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    event = inserted(functions)
    functions.invoke("mark_delivered", event)
    functions.clock.advance(30)
    capsys.readouterr()
    total = functions.invoke("count_outstanding", read_event("clock_count_outstanding"))
    assert total[OUTSTANDING_COUNT] == 5
    assert total[DEAD_COUNT] == 0
    assert 29 <= total[OLDEST_AGE] <= 31
    written = capsys.readouterr().out
    lines = [json.loads(text) for text in written.splitlines()]
    counts = {x.get("topic"): x[OUTSTANDING_COUNT] for x in lines if OUTSTANDING_COUNT in x}
    assert counts == {"orders": 4, "invoices": 1, None: 5}
    assert (total[OPEN_BATCHES], total[OLDEST_BATCH_AGE]) == (0, 0.0)
    assert [line[OPEN_BATCHES] for line in lines if OPEN_BATCHES in line] == [0]


def test_count_outstanding_writes_which_destinations_get_nothing(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    functions.outbox.pause_subscription("invoices", "hook")
    now = int(functions.clock.now() * 1000)
    opened = NEW.opened(now, "HTTP 500", random.Random(1))
    circuits = functions.outbox.tables.circuits
    assert circuits.write("orders", "billing", opened, NEW, announce=True) == opened
    functions.clock.advance(2)
    total = functions.invoke("count_outstanding", read_event("clock_count_outstanding"))
    assert (total[OPEN_CIRCUITS], total[PAUSED_SUBSCRIPTIONS]) == (1, 1)
    lines = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    ones = {(x.get("topic"), x.get("subscription")) for x in lines if x.get(OPEN_CIRCUITS) == 1}
    assert ones == {("orders", "billing"), (None, None)}
    ones = {
        (x.get("topic"), x.get("subscription")) for x in lines if x.get(PAUSED_SUBSCRIPTIONS) == 1
    }
    assert ones == {("invoices", "hook"), (None, None)}


def test_count_outstanding_writes_a_partition_under_its_logical_name_too(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    PartitionedQueue("email", 2).create(functions.outbox, shards=1)
    ids = IdGenerator(functions.clock)
    functions.outbox.add(Message(topic="email__p1", body=b"{}", id=ids.next()))
    functions.outbox.add(Message(topic="orders", body=b"{}", id=ids.next()))
    records = functions.engine.stream(functions.tables["outbox"]).take(None)
    messages = [r for r in records if "z" in r["dynamodb"].get("NewImage", {})]
    functions.invoke("mark_delivered", {"Records": messages})
    functions.invoke("count_outstanding", read_event("clock_count_outstanding"))  # ranks topics
    capsys.readouterr()
    functions.invoke("count_outstanding", read_event("clock_count_outstanding"))
    lines = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    by_topic = {line["topic"]: line for line in lines if "topic" in line}
    line = by_topic["email__p1"]
    assert (line["queue"], line["partition"], line[OUTSTANDING_COUNT]) == ("email", "1", 1)
    (metrics,) = line["_aws"]["CloudWatchMetrics"]
    assert metrics["Dimensions"] == [["service", "topic"], ["service", "queue", "partition"]]
    assert "queue" not in by_topic["orders"]


def test_a_function_without_its_settings_says_which_is_missing(
    functions: Functions,
) -> None:
    functions.settings["FAIRBOX_DOORBELL_QUEUE_URL"] = None
    event = inserted(functions)
    with pytest.raises(Exception, match="FAIRBOX_DOORBELL_QUEUE_URL"):
        functions.invoke("relay", event)


def test_a_message_added_by_the_library_is_what_the_handlers_read(functions: Functions) -> None:
    made = IdGenerator(functions.clock).next()
    ref = functions.outbox.add(
        Message(topic="orders", body=b"{}", partition_key="customer-0", id=made)
    )
    assert ref.shard == 1  # as in the recorded events
