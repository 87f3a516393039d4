"""The main job: a business row and its message in one transaction, out to every destination."""

from __future__ import annotations

import json

import pytest
from fairbox import Message, MessagesNotFound
from fairbox.model.topics import PULL
from fairbox.tables.keys import SK, key, lane_pk
from fairbox.tables.stored_messages import BODY, SIZE, VERSION

from tests.e2e.stage import BUSINESS_TABLE, Stage, eventually
from tests.support.archive_lines import check_line

pytestmark = [pytest.mark.engine, pytest.mark.e2e]


def test_a_transaction_reaches_every_destination_and_is_recorded(stage: Stage) -> None:
    topic = stage.topic("orders")
    queue, (arn, notified), (bus, event_queue) = stage.queue(), stage.sns(), stage.bus()
    destinations = {
        "queue": f"sqs:{queue.url}",
        "notice": f"sns:{arn}",
        "bus": f"events:{bus}",
        "hook": stage.sink.url(topic),
    }
    stage.subscribe(topic, destinations)
    bodies = [json.dumps({"order": n, "name": "Zoë"}, ensure_ascii=False) for n in range(5)]
    messages = [
        Message(
            topic=topic,
            body=body.encode(),
            partition_key=f"customer-{n % 2}",
            content_type="application/json",
            headers={"traceparent": f"00-{n:032x}-{1:016x}-01"},
        )
        for n, body in enumerate(bodies)
    ]
    sent = dict(zip([stage.transact(m) for m in messages], bodies, strict=True))

    for place in (queue, notified, event_queue):
        place.wait_for(sent)
        bodies_there = {a.ref: a.body.decode() for a in place.all}
        assert {ref: json.loads(b) for ref, b in bodies_there.items()} == {
            ref: json.loads(b) for ref, b in sent.items()
        }
    eventually(
        lambda: {c.ref for c in stage.sink.taken(topic)} == set(sent),
        failing=lambda: stage.sink.calls(topic),
    )
    for call in stage.sink.taken(topic):
        assert call.body.decode() == sent[call.ref]
        assert call.headers["ce-id"] == call.ref.id
        assert call.headers["content-type"] == "application/json"
    for message in messages:
        row = stage.dynamodb.get_item(TableName=BUSINESS_TABLE, Key={"id": {"S": message.id}})
        assert row["Item"]["topic"]["S"] == topic

    recorded = [(ref.id, name) for ref in sent for name in destinations]
    stage.wait_recorded(topic, recorded)
    deliveries = stage.deliveries(topic)
    assert sorted((d.id, d.subscription) for d in deliveries) == sorted(recorded)
    assert {d.size for d in deliveries} == {len(b.encode()) for b in bodies}
    assert stage.outbox.outstanding_count(topic) == 0
    stage.wait_counted(topic)
    stage.wait_unlisted(topic)

    lines = stage.archive(topic)
    for line in lines:
        check_line(line)
    assert {line["id"]: line["body"] for line in lines if line["event"] == "added"} == {
        ref.id: body for ref, body in sent.items()
    }
    told = [line for line in lines if line["event"] == "delivered"]
    assert sorted((line["id"], line["subscription"]) for line in told) == sorted(recorded)
    assert {line["subscription"]: line["destination"] for line in told} == destinations
    added = next(line for line in lines if line["id"] == messages[1].id)
    assert (added["partition_key"], added["body_encoding"]) == ("customer-1", "utf-8")
    assert added["headers"] == {"traceparent": f"00-{1:032x}-{1:016x}-01"}
    # a call that a busy machine answers too late is an attempt that failed
    assert {line["event"] for line in lines} <= {"added", "delivered", "failed"}
    assert len([line for line in lines if line["event"] == "added"]) == len(sent)


def test_a_transaction_that_is_refused_publishes_nothing(stage: Stage) -> None:
    topic, queue = stage.topic("refused"), stage.queue()
    stage.subscribe(topic, {"queue": f"sqs:{queue.url}"})
    message = Message(topic=topic, body=b"never")
    never = {
        "ConditionCheck": {
            "TableName": BUSINESS_TABLE,
            "Key": {"id": {"S": "nobody"}},
            "ConditionExpression": "attribute_exists(id)",
        }
    }
    with pytest.raises(Exception, match="ConditionalCheckFailed"):
        stage.outbox.transact([never], message)
    follower = stage.outbox.add(Message(topic=topic, body=b"after it"))
    queue.wait_for([follower])
    assert {arrived.body for arrived in queue.read()} == {b"after it"}


def test_a_body_that_does_not_fit_an_item_arrives_whole(stage: Stage) -> None:
    topic, queue = stage.topic("large"), stage.queue()
    stage.subscribe(topic, {"queue": f"sqs:{queue.url}", "hook": stage.sink.url(topic)})
    large = bytes(range(256)) * 20_000  # 5 MB: over an item, and over what a queue takes
    ref = stage.outbox.add(Message(topic=topic, body=large))
    eventually(lambda: bool(stage.sink.taken(topic)), failing=lambda: stage.sink.calls(topic))
    assert stage.sink.taken(topic)[0].body == large
    stage.wait_recorded(topic, [(ref.id, "hook"), (ref.id, "queue")])


@pytest.mark.extended  # waits for seconds on the running application
def test_a_delayed_message_arrives_when_it_is_due_and_not_before(stage: Stage) -> None:
    topic, queue = stage.topic("later"), stage.queue()
    stage.subscribe(topic, {"queue": f"sqs:{queue.url}"})
    soon = stage.outbox.add(Message(topic=topic, body=b"soon", delay=1))
    later = stage.outbox.add(Message(topic=topic, body=b"later", delay=4))
    cancelled = stage.outbox.add(Message(topic=topic, body=b"never", delay=3))
    at_once = stage.outbox.add(Message(topic=topic, body=b"at once"))
    assert [m.body for m in stage.outbox.waiting(topic)] == [b"soon", b"never", b"later"]
    stage.outbox.cancel([cancelled], reason="changed my mind")

    queue.wait_for([soon, later, at_once])
    stage.wait_recorded(topic, [(ref.id, "queue") for ref in (soon, later, at_once)])
    for arrived in queue.read():
        assert arrived.ref != cancelled
        assert arrived.at * 1000 >= (arrived.ref.due or 0), arrived
    assert stage.outbox.get(cancelled) is None
    with pytest.raises(MessagesNotFound):
        stage.outbox.cancel([later])
    stage.wait_counted(topic)
    stage.wait_unlisted(topic)
    (line,) = (one for one in stage.archive(topic) if one["event"] == "cancelled")
    check_line(line)
    assert (line["id"], line["reason"]) == (cancelled.id, "changed my mind")


@pytest.mark.extended  # waits for seconds on the running application
def test_a_pulled_topic_is_left_alone_until_the_caller_marks(stage: Stage) -> None:
    pulled, pushed, queue = stage.topic("pulled"), stage.topic("pushed"), stage.queue()
    stage.subscribe(pushed, {"queue": f"sqs:{queue.url}"})
    refs = stage.outbox.add_many(
        [Message(topic=pulled, body=b"%d" % n) for n in range(6)]
        + [Message(topic=pushed, body=b"to show that the relay runs")]
    )
    queue.wait_for(refs[6:])
    stage.wait_counted(pulled)
    stage.invoke("Sweep")
    listed = [row for row in stage.outbox.listed() if row.topic == pulled]
    assert sum(row.ready for row in listed) == 6
    assert [m.body for m in stage.outbox.outstanding(pulled)] == [b"%d" % n for n in range(6)]
    assert stage.deliveries(pulled) == []

    stage.outbox.mark_delivered(refs[:6])
    stage.wait_recorded(pulled, [(ref.id, PULL) for ref in refs[:6]])
    assert len(stage.deliveries(pulled)) == 6
    stage.wait_counted(pulled)
    stage.wait_unlisted(pulled)


@pytest.mark.extended  # waits for seconds on the running application
def test_a_change_of_subscriptions_is_in_force_when_the_call_returns(stage: Stage) -> None:
    topic, first, second = stage.topic("changing"), stage.queue(), stage.queue()
    stage.subscribe(topic, {"first": f"sqs:{first.url}"})
    before = stage.outbox.add(Message(topic=topic, body=b"before"))
    first.wait_for([before])
    stage.wait_recorded(topic, [(before.id, "first")])

    stage.subscribe(topic, {"second": f"sqs:{second.url}"})
    both = stage.outbox.add(Message(topic=topic, body=b"both"))
    first.wait_for([both])
    second.wait_for([both])
    stage.wait_recorded(topic, [(both.id, "first"), (both.id, "second")])

    stage.outbox.remove_subscription(topic, "first")
    after = stage.outbox.add(Message(topic=topic, body=b"after"))
    second.wait_for([after])
    stage.wait_recorded(topic, [(after.id, "second")])
    assert set(first.times()) == {before, both}
    assert set(second.times()) == {both, after}
    assert len(stage.deliveries(topic)) == 4


def test_an_unreadable_item_goes_to_the_dead_letters_and_stops_nothing(stage: Stage) -> None:
    topic, queue = stage.topic("unreadable", shards=1), stage.queue()
    stage.subscribe(topic, {"queue": f"sqs:{queue.url}"})
    first = stage.outbox.add(Message(topic=topic, body=b"first"))
    good = stage.outbox.add(Message(topic=topic, body=b"good"))
    raw = key(lane_pk("ready", topic, 0, 0), Message(topic=topic, body=b"").id)
    raw |= {
        SIZE: {"N": "3"},
        VERSION: {"N": "999"},
        BODY: {"S": "odd"},
    }
    client = stage.app.clients["dynamodb"]
    client.put_item(TableName=stage.app.env["FAIRBOX_OUTBOX_TABLE"], Item=raw)
    after = stage.outbox.add(Message(topic=topic, body=b"after"))

    queue.wait_for([first, good, after])
    eventually(
        lambda: len(list(stage.outbox.dead(topic))) == 1,
        failing=lambda: list(stage.outbox.dead(topic)),
    )
    (letter,) = stage.outbox.dead(topic)
    assert letter.stored is None
    assert letter.id == raw[SK]["S"]
    assert "99" in letter.reason
    assert json.loads(letter.raw)[BODY] == {"S": "odd"}
    stage.wait_recorded(topic, [(ref.id, "queue") for ref in (first, good, after)])
    eventually(
        lambda: stage.outbox.outstanding_count(topic) == 0,
        failing=lambda: stage.outbox.outstanding_count(topic),
    )
    stage.wait_counted(topic)
    assert [row.dead for row in stage.rows(topic)] == [1]
