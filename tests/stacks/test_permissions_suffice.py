"""The calls of each function on the tables against its role: no engine enforces IAM."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import Batches, Message, Subscription, Topic
from fairbox.batches.ack_messages import pack
from fairbox.batches.ack_window import ack_messages
from fairbox.client.batch_maintenance import BatchMaintenance
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.testing.application import BATCHES, DELIVERIES, OUTBOX, MemoryApplication

from tests.stacks.test_permissions import EXPECTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stacks.assembly import Assembly

Call = tuple[str, str]  # resource, action

ACTIONS = {
    "get_item": "GetItem",
    "put_item": "PutItem",
    "update_item": "UpdateItem",
    "delete_item": "DeleteItem",
    "query": "Query",
    "scan": "Scan",
    "batch_get_item": "BatchGetItem",
    "batch_write_item": "BatchWriteItem",
}
IN_TRANSACTIONS = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}
NAMES = {OUTBOX: "Outbox", DELIVERIES: "Deliveries", BATCHES: "Batches"}
HOUR = 3600.0
_STATEMENT = re.compile(r'(UPDATE|DELETE FROM) "([^"]+)"')


class Recorder:
    """Stands before the engine and notes who calls what."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.who = ""
        self.calls: dict[str, set[Call]] = {}

    def __getattr__(self, operation: str) -> Any:
        def call(**request: Any) -> Any:
            self.calls.setdefault(self.who, set()).update(_calls(operation, request))
            return getattr(self._client, operation)(**request)

        return call

    @contextmanager
    def as_function(self, who: str) -> Iterator[None]:
        self.who = who
        yield
        self.who = ""


def _calls(operation: str, request: dict[str, Any]) -> Iterator[Call]:
    if operation == "transact_write_items":
        for action in request["TransactItems"]:
            (verb, given), *_ = action.items()
            yield NAMES[given["TableName"]], IN_TRANSACTIONS[verb]
        return
    if operation == "batch_execute_statement":
        for one in request["Statements"]:
            found = _STATEMENT.match(one["Statement"])
            assert found is not None
            yield NAMES[found[2]], "PartiQLUpdate" if found[1] == "UPDATE" else "PartiQLDelete"
        return
    tables = [request["TableName"]] if "TableName" in request else request["RequestItems"]
    for table in tables:
        index = f"/index/{request['IndexName']}" if "IndexName" in request else ""
        yield f"{NAMES[table]}{index}", ACTIONS[operation]


@pytest.fixture(scope="module")
def calls() -> dict[str, set[Call]]:
    """Run every function through what makes it call the tables, and return what it called."""
    recorder: list[Recorder] = []

    def wrap(client: Any) -> Recorder:
        recorder.append(Recorder(client))
        return recorder[0]

    app = MemoryApplication(wrap=wrap)
    refused = Outcome("refused", "no", fault="message")
    app.outbox.create_topic(Topic("orders"))
    app.outbox.create_topic(Topic("ordered", ordering="key"))
    app.outbox.add_subscriptions(
        [
            Subscription("orders", "good", "sqs:good"),
            Subscription("orders", "bad", "sqs:bad", max_attempts=2),
            Subscription("orders", "worse", "sqs:worse", max_attempts=1),
            Subscription("orders", "busy", "sqs:busy", rate=100),
            Subscription("ordered", "good", "sqs:good"),
        ]
    )
    app.destinations["sqs:bad"].answer = lambda _: refused
    app.destinations["sqs:worse"].answer = lambda _: refused
    busy = app.destinations["sqs:busy"]
    busy.answer = lambda _: (
        Outcome("throttled", "slower", retry_after=20) if busy.calls < 3 else TAKEN
    )
    batch = app.batches.open().id
    (group,) = app.batches.add(batch, 40, request_id="r")
    for n, item in enumerate(group.item_ids()):
        topic = "ordered" if n % 4 == 0 else "orders"
        delay = 5 if n % 4 == 1 else 0
        app.outbox.add(
            Message(
                topic=topic,
                body=b"x",
                partition_key=f"k{n}",
                delay=delay,
                batch_item=item if n % 2 else None,
                id=app.ids.next(),
            )
        )
    unreadable = app.engine.items(OUTBOX)[-1] | {"z": {"N": "-1"}, "sk": {"S": "zz"}}
    app.engine.put_item(TableName=OUTBOX, Item=unreadable)
    with recorder[0].as_function("MarkDelivered"):
        app.mark()
    app.clock.advance(70)
    with recorder[0].as_function("Sweep"):
        assert app.sweep().rung, "the sweep of the scenario finds nothing"
    for n in range(200):
        for who, work in (
            ("Relay", app.relay),
            ("MarkDelivered", app.mark),
            ("Sweep", app.sweep if n % 60 == 59 else int),
            ("DeliverShard", app.visit),
            ("CountOutstanding", app.figures if n % 60 == 2 else int),
        ):
            with recorder[0].as_function(who):
                work()
        app.clock.advance(1)
    app.given_up.kept["batch"] = app.records()
    with recorder[0].as_function("Repair"):
        app.repair()
    assert app.outbox.outstanding_count() == 0
    assert busy.calls > 3, "the scenario opens no circuit"
    with recorder[0].as_function("Api"):
        letters = list(app.outbox.dead("orders"))
        assert app.outbox.redrive("orders", [letters[0].id], body=b"better").count
        assert app.outbox.purge_dead("orders", limit=1).count
        assert app.outbox.redrive("orders").count, "the scenario has no dead letter"
        operate(app)
    keep_batches(app, recorder[0])
    return recorder[0].calls


def operate(app: MemoryApplication) -> None:
    """Do what the routes of operators do to a pulled topic, and delete it."""
    app.outbox.create_topic(Topic("jobs", shards=2))
    made = [Message(topic="jobs", body=b"x", delay=d, id=app.ids.next()) for d in (0, 0, 300)]
    refs = app.outbox.add_many(made)
    app.queue.edit(refs[0], body=b"y")
    app.queue.reschedule(refs[2], 600)
    app.outbox.pause_topic("jobs")
    app.outbox.resume_topic("jobs")
    app.clock.advance(3)
    (held, *_) = app.queue.receive("jobs")
    app.queue.release([held.receipt])
    app.queue.stats("jobs")
    assert app.queue.purge("jobs") == 3
    assert app.outbox.delete_topic("jobs") == 0


def keep_batches(app: MemoryApplication, recorder: Recorder) -> None:
    """Let batches complete, fail, nest, orphan and be erased, by every function that may do it."""
    ended: list[str] = []
    for who in ("AckBatches", "CascadeBatches", "CleanOrphans", "Repair"):
        parent = app.batches.open(metadata={"a": 1}).id
        app.batches.add(parent, 2, request_id="r", group_size=1)
        batch = app.batches.open(metadata={"a": 1}, parent_item=f"{parent}:0:0").id
        app.batches.add(batch, 97 * 2, request_id="large", group_size=2)
        app.batches.seal(batch)
        app.batches.fail([f"{batch}:3:1"])
        ids = [i for group in range(97) for i in (f"{batch}:{group}:0", f"{batch}:{group}:1")]
        with recorder.as_function("AckBatches"):
            if who != "AckBatches":  # it dies before it cascades
                cascade: Any = app.batches._context.cascade
                cascade.cascade = lambda _: []
                app.batches.ack(ids)
                del cascade.cascade
            else:
                acked = ack_messages(enumerated(pack(ids)), started(app), deadline=1e10)
                assert acked.completed == [batch]
        records = app.engine.stream(BATCHES).take()
        with recorder.as_function(who):
            if who == "CleanOrphans":
                app.clock.advance(25 * HOUR)
                assert started(app).clean(deadline=1e10, open_hours=24, sealed_hours=24)
            elif who != "AckBatches":
                started(app).cascade_records(records, deadline=1e10)
        assert app.batches.progress(batch).state == "complete", who
        ended.append(batch)
    with recorder.as_function("CountOutstanding"):
        assert started(app).open_batches().count > 0
    with recorder.as_function("CleanOrphans"):
        app.clock.advance(9 * 24 * HOUR)
        cleaned = started(app).clean(deadline=1e10, open_hours=24, sealed_hours=24)
        assert started(app).stalled(24, deadline=1e10).finished
    assert cleaned.reaped
    assert cleaned.erased >= len(ended)


def started(app: MemoryApplication) -> BatchMaintenance:
    """The state after a cold start, in an application without a topic of batches."""
    for item in app.engine.items(OUTBOX):
        if "fairbox.batches" in item["sk"]["S"]:
            app.engine.delete_item(TableName=OUTBOX, Key={n: item[n] for n in ("pk", "sk")})
    batches = Batches(
        app.client,
        table=BATCHES,
        outbox_table=OUTBOX,
        deliveries_table=DELIVERIES,
        clock=app.clock,
        rng=app.rng,
    )
    return BatchMaintenance(batches)


def enumerated(bodies: list[str]) -> list[tuple[str, str]]:
    return [(str(number), body) for number, body in enumerate(bodies)]


@pytest.mark.parametrize(
    "function",
    [
        *("Relay", "MarkDelivered", "Sweep", "DeliverShard", "CountOutstanding", "Repair"),
        *("AckBatches", "CascadeBatches", "CleanOrphans", "Api"),
    ],
)
def test_a_function_may_do_what_it_does(
    function: str, calls: dict[str, set[Call]], assembly: Assembly
) -> None:
    allowed = assembly.permissions(f"{function}Role")
    assert calls[function], f"{function} called nothing: the scenario does not reach it"
    missing = {
        (resource, action)
        for resource, action in calls[function]
        if f"dynamodb:{action}" not in allowed.get(resource, set())
    }
    assert not missing


STREAM = ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")
"""Called by Lambda itself, in the function's name."""
A_DEATH = "a message that carries an item of a batch dies here"
TO_PULLED = "destination `topic:` adds messages to a pulled topic"
ROUTES = "routes of batches, and lists over all topics; their calls are those of the operator"
UNSEEN: dict[str, dict[str, dict[str, str]]] = {
    "Relay": {
        "Batches": dict.fromkeys(("GetItem", "BatchGetItem", "PutItem"), A_DEATH),
        "Deliveries": {"UpdateItem": "a death; the scenario's come in visits"},
        "Outbox": {
            "PutItem": TO_PULLED,
            "Query": "topics, where the copy is old",
            "GetItem": "the version of the topics, and a circuit",
            "BatchGetItem": "what a circuit or a rate keeps",
            "UpdateItem": "attempts, circuits and rates",
            "DeleteItem": "one message that is marked as gone",
        },
    },
    "DeliverShard": {
        "Batches": {"BatchGetItem": "an item whose group and root are looked up together"},
        "Deliveries": {"PutItem": "an item that nothing can read"},
        "Outbox": {"PutItem": TO_PULLED},
    },
    "MarkDelivered": {"Deliveries": {"PutItem": "an item that nothing can read"}},
    "CountOutstanding": {"Batches": {"GetItem": "one batch alone is looked up by itself"}},
    "Repair": {
        "Deliveries": {
            "PutItem": "an item that nothing can read",
            "UpdateItem": "a death that is finished",
            "Query": "whether an old epoch has dead letters",
        },
        "Outbox": {
            "DeleteItem": "a message that is marked as gone",
            "BatchWriteItem": "rows of epochs that have ended",
        },
    },
    "Api": {
        "Batches": dict.fromkeys(("BatchGetItem", "ConditionCheckItem", "Query"), ROUTES),
        "Batches/index/OpenBatches": {"Query": ROUTES},
        "Deliveries": {
            "GetItem": ROUTES,
            "PutItem": "deduplication",
            "UpdateItem": "a consumer's death",
        },
        "Deliveries/index/DeliveredAllTopics": {"Query": ROUTES},
        "Outbox": {"ConditionCheckItem": "a subscription is added while its topic stays"},
        "Outbox/index/OutstandingAllTopics": {"Query": ROUTES},
    },
}
"""By function and resource: what is granted and no call of the scenario asks for, and why."""


@pytest.mark.parametrize("function", sorted(EXPECTED))
def test_what_is_granted_and_never_asked_for_has_its_reason(
    function: str, calls: dict[str, set[Call]], assembly: Assembly
) -> None:
    granted = {
        (resource, action.removeprefix("dynamodb:"))
        for resource, actions in assembly.permissions(f"{function}Role").items()
        for action in actions
        if action.startswith("dynamodb:") and action.removeprefix("dynamodb:") not in STREAM
    }
    reasons = {
        (resource, action)
        for resource, actions in UNSEEN.get(function, {}).items()
        for action in actions
    }
    assert granted - calls[function] == reasons
