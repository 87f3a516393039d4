"""A scenario that takes every function through whatever makes it call AWS, and records the calls.

The handlers are the real ones, over the in-memory engine; the streams, the queues and the clock are
passed on as event source mappings do. What no scenario of the functions alone can bring about is in
`tests.support.iam.exceptions`.
"""

from __future__ import annotations

import base64
import copy
import json
import math
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from fairbox import Batches, Feed, Feeds, Message, Outbox, Queue, RetryPolicy, Subscription, Topic
from fairbox.aws.s3_bodies import S3Bodies
from fairbox.aws.sqs_queues import SqsDoorbells, encode
from fairbox.dispatch.burials import Burials
from fairbox.dispatch.ports import Doorbell
from fairbox.model.feed_types import KINDS
from fairbox.model.ids import IdGenerator
from fairbox.tables.stored_messages import SIZE

from tests.functions.feeds_client import FeedsClient
from tests.functions.running import Context, Functions, ack_event
from tests.support.deployment import environment, function_specifications, variable
from tests.support.iam.deployment import EXTERNAL, SMOKE
from tests.support.iam.recording import Recorded
from tests.support.iam.requests import arn
from tests.support.webhook_server import Server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    import pytest
    from fairbox import MessageRef

    from tests.support.iam.recording import Log

HOUR = 3600
QUEUE = "https://sqs.test/{}"
SOON = RetryPolicy(max_attempts=2, base=1, cap=1)
LARGE = random.Random(0).randbytes(400_000)  # no item holds it
KEYS = {"hooks/hook": ["whsec_" + "a" * 32]}


class Takers:
    """Destinations but queues, and secrets: each takes everything."""

    def publish_batch(self, *, PublishBatchRequestEntries: Any, **_: str) -> dict[str, Any]:  # noqa: N803 - boto3's names
        return {"Successful": [{"Id": one["Id"]} for one in PublishBatchRequestEntries]}

    def put_events(self, *, Entries: Any) -> dict[str, Any]:  # noqa: N803
        return {"Entries": [{"EventId": "1"} for _ in Entries]}

    def put_records(self, *, Records: Any, **_: str) -> dict[str, Any]:  # noqa: N803
        return {"Records": [{"SequenceNumber": "1"} for _ in Records]}

    def invoke(self, **_: Any) -> dict[str, Any]:
        return {"StatusCode": 200}

    def get_secret_value(self, **_: str) -> dict[str, Any]:
        return {"SecretString": json.dumps(KEYS), "VersionId": "1"}

    def get_parameter(self, **_: Any) -> dict[str, Any]:
        return {"Parameter": {"Value": "{}"}}


class Scenario:
    """The functions, each in a warm process, with everything that they may be asked to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
        self._monkeypatch = monkeypatch
        self.functions = Functions(monkeypatch)
        self.functions.caller.log = log
        self.clock, self.engine = self.functions.clock, self.functions.engine
        self.sqs, self.s3 = self.functions.sqs, self.functions.s3
        for service in ("sns", "events", "kinesis", "lambda", "secretsmanager", "ssm"):
            self.functions.clients[service] = Recorded(Takers(), service, self.functions.caller)
        self.functions.settings |= {
            "FAIRBOX_WEBHOOK_ALLOW_PRIVATE": "true",
            "FAIRBOX_WEBHOOK_SECRETS": f"{EXTERNAL['secretsmanager']},{EXTERNAL['ssm']}",
        }
        self.outbox, self.queue = self._facades()
        self.batches = self.functions.batches
        self.sqs.refusing.add(QUEUE.format("bad"))
        self._ids = IdGenerator(self.clock, random.Random(0).getrandbits)
        self._warm: dict[str, ModuleType] = {}
        self._after: dict[str, str | None] = {}

    def run(self) -> None:
        """Let all of it happen."""
        self.count_one_batch()
        self.deliver()
        self.bury_batch_items()
        self.meet_unreadable_items()
        self.wait_for_the_sweep()
        self.let_messages_expire()
        self.rank_topics()
        self.smoke()
        self.archive()
        self.repair()
        self.keep_batches()
        self.follow_feeds()
        with self.functions.caller.as_one("api"):
            self.operate()
            self.receive()
            self.track()
            self.keep_feeds()

    def count_one_batch(self) -> None:
        """Count while one batch is open, which is looked up by itself."""
        self.batches.open()
        self.invoke("count_outstanding", {})

    def deliver(self) -> None:
        """Deliver to every kind of destination: large bodies, throttling, circuits, repetition."""
        server, feeds = Server(), self._feeds()
        feeds.create(Feed("trades", "ring"))
        feeds.create(Feed("prices"))
        for name, more in (("orders", {"dedup_window": 600}), ("ordered", {"ordering": "key"}),
                           ("hooks", {}), ("failing", {}), ("screens", {}),
                           ("jobs", {"dedup_window": 600})):  # fmt: skip
            self.outbox.create_topic(Topic(name, shards=2, retry=SOON, **more))
        kinds = {
            "queue": f"sqs:{QUEUE.format('good')}",
            "news": f"sns:{EXTERNAL['sns']}",
            "bus": f"events:{EXTERNAL['events']}",
            "clicks": f"kinesis:{EXTERNAL['kinesis']}",
            "enrich": f"lambda:{EXTERNAL['lambda']}",
            "copies": "topic:jobs",
        }
        self.outbox.add_subscriptions(
            [
                *(Subscription("orders", name, to) for name, to in kinds.items()),
                Subscription("orders", "limited", f"sqs:{QUEUE.format('slow')}", rate=2),
                Subscription("ordered", "queue", f"sqs:{QUEUE.format('good.fifo')}"),
                Subscription("failing", "bad", f"sqs:{QUEUE.format('bad')}", max_attempts=1),
                Subscription("hooks", "hook", f"http://127.0.0.1:{server.port}/"),
                Subscription("screens", "trades", "feed:trades"),
                Subscription("screens", "prices", "feed:prices"),
            ]
        )
        for n in range(12):
            delay = n % 2 * 3
            self.add("orders", f"k{n % 5}", delay=delay, dedup_key=f"{n}" if n < 4 else None)
            for topic in ("ordered", "hooks", "failing"):
                self.add(topic, f"k{n % 5}")
            self.add("screens", f"k{n % 5}", delay=delay)
            if n in (2, 3):
                self.add("orders", "large", LARGE, delay=delay)
            self.pump(2)
        self.add("hooks", "k", batch_item=f"{self.batches.open().id}:0:0")
        # from a process that does not know the queue of visits apart
        self._ring(self.add("hooks", "k"), "hook")
        self.pump(100)
        assert self.s3.tags, "the scenario offloads no body"
        assert list(self.outbox.dead("failing")), "the scenario has no dead letter"

    def bury_batch_items(self) -> None:
        """Let messages die whose items are pending, ended or unknown; at once and in a visit."""
        for name, delay in (("dying", 0), ("later", 2)):
            self.outbox.create_topic(Topic(name, shards=1))
            self.outbox.add_subscription(
                Subscription(name, "bad", f"sqs:{QUEUE.format('bad')}", max_attempts=1)
            )
            alive, ended = self.batches.open().id, self.batches.open().id
            self.batches.add(alive, 3, request_id="r")
            self.batches.add(ended, 1, request_id="r")
            self.batches.cancel(ended)
            for item in (f"{alive}:0:0", f"{ended}:0:0", f"{alive}:500:0"):
                self.add(name, "k", batch_item=item, delay=delay)
                self.pump(3)
            assert list(self.outbox.dead(name)), "the scenario has no death of a batch item"

    def meet_unreadable_items(self) -> None:
        """Meet items that nothing can read: in the stream, and in the table."""
        table = self.functions.tables["outbox"]
        self.pump(1)
        ref = self.add("hooks", "k")
        records = [r for r in self._records("outbox") if _of_message(r)]
        record = next(copy.deepcopy(r) for r in records if ref.id in str(r["dynamodb"]["Keys"]))
        record["dynamodb"]["NewImage"]["v"] = {"N": "999"}
        self._invoke("relay", [record])
        for name in ("hooks", "ordered"):
            ref = self.add(name, "k")
            found = next(i for i in self.engine.items(table) if i["sk"]["S"].startswith(ref.id))
            self.engine.put_item(TableName=table, Item=found | {"z": {"N": "-1"}})
            self._records("outbox")
            if name == "hooks":  # the other is left to repair
                self._ring(ref)
        self.pump(1)

    def wait_for_the_sweep(self) -> None:
        """Let the sweep find what no doorbell names."""
        self.add("hooks", "k")
        self.add("failing", "k", delay=960)  # too long for a doorbell: the sweep sends it
        self._invoke("mark_delivered", [r for r in self._records("outbox") if _of_message(r)])
        self.clock.advance(930)
        self.invoke("sweep", {})
        for url in (self.functions.now, self.functions.later):
            assert self.sqs.bodies(url), f"the sweep of the scenario finds nothing for {url}"
        self.pump(2)

    def let_messages_expire(self) -> None:
        """Let the sweep remove what lies too long, with an item of a batch and without."""
        batch = self.batches.open().id
        self.batches.add(batch, 1, request_id="r")
        for ordering in ("none", "key"):
            name = f"kept-{ordering}"
            self.outbox.create_topic(
                Topic(name, shards=1, ordering=ordering, message_retention=300)
            )
            self.add(name, "k")
            self.add(name, "k", delay=0 if ordering == "key" else 1)
        self.add("kept-none", "k", batch_item=f"{batch}:0:0")
        self.pump(190)  # a check that finds nothing
        self.pump(420)
        left = [m for name in ("kept-none", "kept-key") for m in self.outbox.outstanding(name)]
        assert not left, "the sweep of the scenario lets nothing expire"

    def rank_topics(self) -> None:
        """Count in another hour, a quarter of an hour after a delivery."""
        self.clock.advance(HOUR)
        self.add("orders", "ranked")
        self.pump(30)
        self.clock.advance(HOUR / 4)
        self.invoke("count_outstanding", {})

    def smoke(self) -> None:
        """Deliver to what a smoke test makes, and let the canary run."""
        sweep = function_specifications()["sweep"].arn
        kinds = {
            "sqs": f"sqs:{QUEUE.format(SMOKE)}sqs",
            "sns": f"sns:{arn('sns', SMOKE)}sns",
            "events": f"events:{arn('events', f'event-bus/{SMOKE}')}events",
            "kinesis": f"kinesis:{arn('kinesis', f'stream/{SMOKE}')}kinesis",
            "lambda": f"lambda:{sweep}",
        }
        self.outbox.create_topic(Topic("smoke", shards=1))
        self.outbox.add_subscriptions(Subscription("smoke", *kind) for kind in kinds.items())
        self.add("smoke", "k")
        self.add("smoke", "k", delay=2)
        self.pump(5)
        arrived, late = (f"{QUEUE.format(SMOKE)}canary-{name}" for name in ("arrived", "late"))
        self.sqs.refusing.add(late)
        acks = variable("FAIRBOX_ACK_QUEUE_URL")

        def sleep(seconds: float) -> None:
            self.pump(math.ceil(seconds))
            for entry in self.sqs.sent.pop(acks, []):
                self.invoke("ack_batches", ack_event(entry["MessageBody"]))

        with self._monkeypatch.context() as patch:
            patch.setattr(self.clock, "sleep", sleep)
            self.invoke("canary", {})
            # a queue that cannot be made leaves a dead letter
            patch.setattr(self.sqs, "create_queue", lambda **_: {"QueueUrl": arrived})
            self.sqs.refusing.add(late)
            with suppress(RuntimeError):
                self.invoke("canary", {})
        with suppress(RuntimeError):  # nothing is delivered
            self.invoke("canary", {})

    def archive(self) -> None:
        """Mark while Firehose throttles and the archive's bucket refuses."""
        self.functions.firehose.throttling = True
        self.s3.refusing.add(variable("FAIRBOX_ARCHIVE_BUCKET"))
        self.add("hooks", "k")
        self.pump(2)

    def repair(self) -> None:
        """Repair given-up batches, half-done removals and empty epochs; move what waits."""
        records = self.engine.stream(self.functions.tables["outbox"]).take(None)
        messages = [r for r in records if _of_message(r)]
        for number in range(0, len(messages), 500):
            self._give_up(f"mark-delivered/{number}", messages[number : number + 500])
        with self._monkeypatch.context() as patch:
            patch.setattr(Burials, "bury", lambda *_: None)  # as if the function died here
            self.add("dying", "k")
            self.pump(1)
        cancelled = self.add("hooks", "k", delay=900)
        self.outbox.tables.lanes.mark_gone(cancelled, "cancelled", "")
        self.outbox.create_topic(Topic("resized", shards=2))
        self.outbox.resize("resized", 3)
        retired = 0
        for _ in range(3):
            self.clock.advance(HOUR)
            retired += self.invoke("repair", {}, Context(900_000))["retired"]
            self.s3.refusing.clear()
        assert retired, "the scenario retires no epoch"
        assert not any("waiting" in key for key in self.s3.objects), "what waits is not moved"

    def keep_batches(self) -> None:
        """Let batches complete, fail, nest, orphan and be erased, by every function that may."""
        batches = self.batches
        for who in ("ack_batches", "cascade_batches", "clean_orphans", "repair"):
            self._forget_topics_of_batches()
            parent = batches.open(metadata={"a": 1}).id
            batches.add(parent, 2, request_id="r", group_size=1)
            batch = batches.open(metadata={"a": 1}, parent_item=f"{parent}:0:0").id
            batches.add(batch, 97 * 2, request_id="large", group_size=2)
            batches.seal(batch)
            batches.fail([f"{batch}:3:1"])
            ids = [f"{batch}:{group}:{n}" for group in range(97) for n in (0, 1)]
            if who == "ack_batches":
                self.invoke(who, ack_event(ids))
            else:  # who acks dies before it cascades
                cascade: Any = batches._context.cascade
                cascade.cascade = lambda _: []
                batches.ack(ids)
                del cascade.cascade
            cut_off = batches.open().id
            batches.add(cut_off, 1, request_id="r")
            lifecycle: Any = batches._context.lifecycle
            lifecycle.fence = lambda *_: True  # who cancels dies before it erases
            batches.cancel(cut_off)
            del lifecycle.fence
            event = self.functions.stream()
            if who == "cascade_batches":
                self.invoke(who, event)
            elif who == "clean_orphans":
                self.clock.advance(25 * HOUR)
                self.invoke(who, {}, Context(900_000))
            elif who == "repair":
                self._give_up("cascade-batches/0", event["Records"])
                self.invoke(who, {}, Context(900_000))
            assert batches.progress(batch).state == "complete", who
        self.invoke("count_outstanding", {})
        self.clock.advance(30 * 24 * HOUR)
        for _ in range(2):
            self.invoke("clean_orphans", {}, Context(900_000))

    def follow_feeds(self) -> None:
        """Connect, follow, acknowledge, take a frame, fail to take one, leave, go."""
        feeds = self._feeds()
        feeds.create(Feed("inbox", "private"))
        for body in (b"1", b"2"):
            feeds.publish("inbox", "u7", body)
        client = FeedsClient(self.functions)
        client.connect("u7", "inbox/u7", "prices/*")
        for position in (None, 1):
            client.say(op="sync", id=1, topics={"inbox/u7": position})
        client.say(op="sync", id=2, topics={"prices/eur": None})
        for topic, faults in (("inbox", []), ("prices", [500, 500])):
            self.functions.sockets.faults[client.id] = faults
            feeds.publish(topic, {"inbox": "u7", "prices": "eur"}[topic], b"3")
            client.push()
        feeds.publish("prices", "eur", b"4")
        client.push(age=11)
        for position in (1, 3):
            client.poll(client.token("u7", "inbox/u7"), {"inbox/u7": position}, wait=1)
        client.say(op="leave", id=3, topics=["inbox/u7"])
        client.disconnect()

    def keep_feeds(self) -> None:
        """Create feeds, publish to them, show and delete them, as over HTTP."""
        table = self.functions.tables["feeds"]
        feeds = Feeds(self.functions.clients["dynamodb"], table=table, clock=self.clock)
        for kind in KINDS:
            feeds.create(Feed("kept", kind))
            feeds.publish("kept", kind, b"1")
            feeds.topic("kept", kind)
            feeds.delete("kept")

    def _feeds(self) -> Feeds:
        return Feeds(self.engine, table=self.functions.tables["feeds"], clock=self.clock)

    def skip(self) -> None:
        """Skip messages for a subscription, one of an ordered topic too."""
        outbox = self.outbox
        for topic in (Topic("skips"), Topic("keys", ordering="key")):
            name = outbox.create_topic(topic).topic.name
            outbox.add_subscription(Subscription(name, "billing", f"sqs:{QUEUE.format('good')}"))
            ref = self.add(name, "k")
            outbox.skip(ref, subscription="billing", reason="closed account")
            assert outbox.skip_outstanding(name, "billing").count == 0

    def operate(self) -> None:
        """Do what the routes of producers and operators do, with the facades that they call."""
        outbox, queue = self.outbox, self.queue
        outbox.create_topic(Topic("new", dedup_window=600))
        outbox.add_subscription(Subscription("new", "billing", f"sqs:{QUEUE.format('good')}"))
        outbox.pause_subscription("new", "billing")
        outbox.resume_subscription("new", "billing")
        outbox.remove_subscription("new", "billing")
        outbox.resize("new", 3)
        large, *refs = [self.add("new", "k", LARGE), self.add("new", "k", dedup_key="a"),
                        self.add("new", "k", delay=300)]  # fmt: skip
        outbox.add_many([Message(topic="new", body=b"x", id=self._ids.next())])
        assert outbox.get(large) is not None
        outbox.get_many([large, *refs])
        (dead, *_) = outbox.dead("failing")
        assert dead.ref is not None
        outbox.get(dead.ref)
        outbox.cancel([large], reason="by mistake")
        self.skip()
        queue.edit(refs[0], body=LARGE)
        queue.edit(refs[0], body=b"y")
        queue.reschedule(refs[1], 600)
        for listed in (outbox.outstanding(), outbox.waiting("new"), outbox.delivered()):
            list(listed)
        outbox.topics()
        outbox.listed()
        queue.stats("new")
        queue.stats("new", count_in_flight=True)
        letters = list(outbox.dead("failing"))
        assert outbox.redrive("failing", [letters[0].id], body=b"better").count
        assert outbox.purge_dead("failing", limit=1).count
        assert outbox.redrive("failing").count
        outbox.redrive("dying")
        FeedsClient(self.functions).token("u7", "inbox/u7")
        outbox.pause_topic("new")
        outbox.resume_topic("new")
        assert queue.purge("new")
        assert outbox.delete_topic("new") == 0

    def receive(self) -> None:
        """Do what the routes of consumers do."""
        outbox, queue = self.outbox, self.queue
        items = [f"{self.batches.open().id}:0:0" for _ in range(2)]
        orders: tuple[tuple[str, Literal["none", "key"]], ...]
        orders = (("pulled", "none"), ("in-order", "key"))
        for topic, ordering in orders:
            outbox.create_topic(Topic(topic, shards=1, retry=SOON, ordering=ordering))
            for n in range(8):
                self.add(topic, f"k{n}", batch_item=items[n] if n < len(items) else None)
            self.clock.advance(3)
            list(map(outbox.receives().of, outbox.stored("ready", topic)))
            for _ in range(12):
                for number, received in enumerate(queue.receive(topic, 3, 20)):
                    queue.extend(received.receipt, 25)
                    if number == 0:
                        queue.nack(received.receipt, reason="why")
                    elif number == 1:
                        queue.release([received.receipt])
                    else:
                        queue.ack([received.receipt])
                self.clock.advance(30)

        self._wait()

    def _wait(self) -> None:
        """Let more keys of an ordered shard wait than its row lists, and come back."""
        outbox, queue = self.outbox, self.queue
        outbox.create_topic(Topic("waiting", shards=1, ordering="key"))
        for failed in (True, False):
            for n in range(20):
                self.add("waiting", f"k{n}")
            self.clock.advance(3)
            for received in queue.receive("waiting", 20):
                queue.nack(received.receipt, 300)
            queue.receive("waiting")
            if failed:
                list(map(outbox.receives().of, outbox.stored("ready", "waiting")))
        self.clock.advance(300)
        queue.ack(r.receipt for r in queue.receive("waiting", 20))

    def track(self) -> None:
        """Do what the routes of batches do."""
        batches = self.batches = self._recorded_batches()
        batch = batches.open(metadata={"a": 1}).id
        (group,) = batches.add(batch, 40, request_id="r")
        batches.add(batch, 97, request_id="large", group_size=1)
        first, second, *_ = group.item_ids()
        batches.fail([first])
        batches.retry([first])
        batches.ack([first, f"{batch}:0:7"])
        batches.fail([second])
        child = batches.open(parent_item=f"{batch}:0:3").id
        batches.seal(child)
        batches.progress(batch, exact=True)
        list(batches.missing(batch))
        list(batches.failed(batch))
        batches.list_page()
        batches.seal(batch)
        batches.cancel(batch)

    def invoke(self, function: str, event: dict[str, Any], context: Context | None = None) -> Any:
        """Return what the function's process answers, which is started at the first event."""
        if function not in self._warm:
            self._warm[function] = self.functions.load(function)
        return self._warm[function].handler(event, context or Context.of(function))

    def pump(self, seconds: int) -> None:
        """Pass streams and queues on for so many seconds, and the clock once a minute."""
        for second in range(seconds):
            records = [r for r in self._records("outbox") if _of_message(r)]
            if records:
                self._invoke("relay", records)
                self._invoke("mark_delivered", records)
            for url in (self.functions.now, self.functions.apart, self.functions.later):
                for entry in self.sqs.sent.pop(url, []):
                    self._visit(entry["MessageBody"], url)
            if second % 60 == 59:
                self.invoke("sweep", {})
                self.invoke("count_outstanding", {})
            self.clock.advance(1)

    def add(self, topic: str, key: str, body: bytes = b"x", **given: Any) -> MessageRef:
        """Publish a message."""
        message = Message(topic=topic, body=body, partition_key=key, id=self._ids.next(), **given)
        return self.outbox.add(message)

    def _facades(self) -> tuple[Outbox, Queue]:
        """Return the facades that the API opens, over the clients of the functions."""
        given = environment("api")
        client = self.functions.clients
        outbox = Outbox(
            client["dynamodb"],
            table=given["FAIRBOX_OUTBOX_TABLE"],
            deliveries_table=given["FAIRBOX_DELIVERIES_TABLE"],
            batches_table=given["FAIRBOX_BATCHES_TABLE"],
            bodies=S3Bodies(client["s3"], given["FAIRBOX_BODIES_BUCKET"]),
            doorbells=SqsDoorbells(
                client["sqs"],
                given["FAIRBOX_DOORBELL_QUEUE_URL"],
                given["FAIRBOX_LATER_QUEUE_URL"],
                clock=self.clock,
            ),
            clock=self.clock,
        )
        return outbox, Queue.over(outbox)

    def _recorded_batches(self) -> Batches:
        tables = self.functions.tables
        return Batches(
            self.functions.clients["dynamodb"],
            table=tables["batches"],
            outbox_table=tables["outbox"],
            deliveries_table=tables["deliveries"],
            clock=self.clock,
        )

    def _records(self, table: str) -> list[dict[str, Any]]:
        found = self.engine.stream(self.functions.tables[table]).take(self._after.get(table))
        if found:
            self._after[table] = found[-1]["dynamodb"]["SequenceNumber"]
        return found

    def _invoke(self, function: str, records: Sequence[dict[str, Any]]) -> None:
        assert self.invoke(function, {"Records": records}) == {"batchItemFailures": []}

    def _visit(self, body: str, url: str) -> None:
        arn = url.rpartition("/")[2]
        self._invoke("deliver_shard", [{"messageId": "1", "body": body, "eventSourceARN": arn}])

    def _ring(self, ref: MessageRef, subscription: str = "") -> None:
        bell = Doorbell(ref.topic, ref.epoch, ref.shard, subscription=subscription)
        self._visit(encode(bell), self.functions.now)

    def _give_up(self, name: str, records: Sequence[dict[str, Any]]) -> None:
        payload = json.dumps({"Records": records}, default=_encoded)
        self.s3.objects[f"aws/lambda/{name}.json"] = json.dumps({"payload": payload}).encode()

    def _forget_topics_of_batches(self) -> None:
        """Let the next message of a batch make its topic."""
        table = self.functions.tables["outbox"]
        for item in self.engine.items(table):
            if "fairbox.batches" in item["sk"]["S"]:
                key = {name: item[name] for name in ("pk", "sk")}
                self.engine.delete_item(TableName=table, Key=key)


def _encoded(value: Any) -> str:
    return base64.b64encode(value).decode()


def _of_message(record: dict[str, Any]) -> bool:
    body = record["dynamodb"]
    return SIZE in body.get("NewImage", {}) or SIZE in body.get("OldImage", {})
