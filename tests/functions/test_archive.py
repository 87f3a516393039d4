"""The archive's failures beside the other work of marking, and what repair does about them."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ConnectTimeoutError
from fairbox import Message, Subscription, Topic
from fairbox.errors import Unavailable
from fairbox.model.ids import IdGenerator
from fairbox.sdk.clients import make_client

from local.engines.firehose import throttled
from tests.functions.api_client import read_event
from tests.functions.running import Context, Functions, figures
from tests.support.archive import Buckets, FirehoseClient, archived, moment
from tests.support.deployment import function_specifications, variable

if TYPE_CHECKING:
    from collections.abc import Collection

ARCHIVE = variable("FAIRBOX_ARCHIVE_BUCKET")
FAILURES = variable("FAIRBOX_FAILURES_BUCKET")


def refuse(_: int) -> Collection[int]:
    raise throttled()


class Failing:
    """The functions over a Firehose and buckets that can be made to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.functions = Functions(monkeypatch)
        self.functions.clock.set(1_795_246_060)
        self.buckets = Buckets()
        self.firehose = FirehoseClient(
            self.buckets,
            moment(self.functions.clock),
            stream=variable("FAIRBOX_ARCHIVE_STREAM"),
            bucket=ARCHIVE,
        )
        self.functions.clients |= {"firehose": self.firehose, "s3": self.buckets}
        outbox = self.functions.outbox
        for name in ("orders", "invoices"):
            outbox.create_topic(Topic(name, shards=4))
        billing = "sqs:https://sqs.test/billing"
        outbox.add_subscriptions(
            [Subscription("orders", "billing", billing), Subscription("invoices", "hook", billing)]
        )
        self.event = read_event("stream_of_messages")
        self.functions.put_images(self.event["Records"])

    def mark(self) -> Any:
        return self.functions.invoke("mark_delivered", self.event)

    def repair(self) -> Any:
        return self.functions.invoke("repair", {}, Context(900_000))

    def known(self) -> tuple[int, int]:
        """Return the deliveries of the ledger, and the messages that are counted."""
        outbox = self.functions.outbox
        return len(list(outbox.delivered())), sum(row.outstanding for row in outbox.listed())

    def missing(self) -> set[tuple[str, str, str]]:
        """Return the deliveries that the ledger knows and the archive does not."""
        self.firehose.service.flush()
        there = {
            (line["topic"], line["id"], line["subscription"])
            for line in archived(self.buckets, ARCHIVE)
            if line["event"] == "delivered"
        }
        ledger = self.functions.outbox.delivered()
        return {(d.topic, d.id, d.subscription) for d in ledger} - there


@pytest.mark.parametrize("bodies", [True, False])
@pytest.mark.parametrize("by", ["mark", "repair"])
def test_bodies_are_archived_unless_the_settings_say_otherwise(
    monkeypatch: pytest.MonkeyPatch, by: str, *, bodies: bool
) -> None:
    functions = Functions(monkeypatch)
    functions.settings["FAIRBOX_ARCHIVE_BODIES"] = None if bodies else "false"
    event = read_event("stream_of_messages")
    functions.put_images(event["Records"])
    if by == "repair":
        key = "aws/lambda/mark-delivered/shard/2026/11/21/batch.json"
        functions.s3.objects = {key: json.dumps({"payload": json.dumps(event)}).encode()}
        functions.invoke("repair", read_event("clock_repair"), Context(900_000))
    else:
        functions.invoke("mark_delivered", event)
    lines = [line for line in functions.firehose.lines if line["event"] == "added"]
    assert {line["body"] is None for line in lines} == {not bodies}


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    return Failing(monkeypatch)


@pytest.mark.guarantee("ledger-without-firehose")
@pytest.mark.parametrize("aside", [False, True], ids=["throttled", "and refused by the bucket"])
def test_ledger_and_counts_are_written_though_firehose_throttles_everything(
    failing: Failing, capsys: pytest.CaptureFixture[str], *, aside: bool
) -> None:
    failing.firehose.service.throttle = refuse
    failing.buckets.refusing |= {ARCHIVE} if aside else set()
    assert failing.mark() == {"batchItemFailures": []}
    assert failing.known() == (5, 0)
    told = figures(capsys)
    assert told["ArchiveBypassed"] == 12
    assert told.get("ArchiveWaiting", 0) == int(aside)
    assert bool(failing.missing()) == aside


@pytest.mark.guarantee("archive-after-repair")
def test_after_repair_the_archive_lacks_nothing_that_the_ledger_knows(
    failing: Failing, capsys: pytest.CaptureFixture[str]
) -> None:
    failing.firehose.service.throttle = refuse
    failing.buckets.refusing.add(ARCHIVE)
    failing.mark()
    assert len(failing.missing()) == 5
    found = failing.repair()
    assert (found["archived"], found["archive_waiting"]) == (0, 1)
    assert figures(capsys)["ArchiveWaiting"] == 1  # the alarm stays
    failing.buckets.refusing.clear()
    found = failing.repair()
    assert (found["archived"], found["archive_waiting"]) == (1, 0)
    assert failing.missing() == set()
    assert failing.buckets.keys(FAILURES) == []
    assert "ArchiveWaiting" not in figures(capsys)


def test_repair_goes_on_with_its_other_work_if_it_cannot_list_what_waits(
    failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    paginate = failing.buckets.paginate

    def deny(*, Bucket: str, Prefix: str) -> Any:  # noqa: N803 - boto3's names
        if Prefix.startswith("archive/"):
            raise ConnectTimeoutError(endpoint_url="https://s3.test")
        return paginate(Bucket=Bucket, Prefix=Prefix)

    monkeypatch.setattr(failing.buckets, "paginate", deny)
    failing.functions.clock.advance(600)
    assert failing.functions.outbox.listed() == []
    with pytest.raises(Unavailable):
        failing.repair()
    shards = {(row.topic, row.shard) for row in failing.functions.outbox.listed()}
    assert shards == {("orders", 0), ("orders", 1), ("orders", 3), ("invoices", 0)}


def test_an_archive_that_answers_nowhere_ends_long_before_the_function_does(
    failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_client("s3", "http://127.0.0.1:1").meta.config
    slowest = config.connect_timeout + config.read_timeout
    clock, calls = failing.functions.clock, []

    def silent(**_: Any) -> Any:
        calls.append(clock.advance(slowest))
        raise ConnectTimeoutError(endpoint_url="https://aws.test")

    monkeypatch.setattr(failing.firehose, "put_record_batch", silent)
    monkeypatch.setattr(failing.buckets, "put_object", silent)
    began = clock.now()
    with pytest.raises(Unavailable):
        failing.mark()
    assert len(calls) == 3
    assert clock.now() - began < function_specifications()["mark_delivered"].timeout / 2


@pytest.mark.extended  # 10,000 records through the handler
def test_ten_thousand_records_lack_nothing_whatever_fails_beside_the_ledger(
    failing: Failing,
) -> None:
    functions, table = failing.functions, failing.functions.tables["outbox"]
    functions.outbox.create_topic(Topic("many", shards=8))
    before = functions.engine.stream(table).take(None)[-1]["dynamodb"]["SequenceNumber"]
    texts = [b'{"n": %d, "text": "%s"}' % (n, b"a longer text " * 40) for n in range(5_000)]
    ids = IdGenerator(functions.clock, random.Random(14).getrandbits)
    refs = functions.outbox.add_many(
        [Message(topic="many", body=text, id=ids.next()) for text in texts]
    )
    functions.outbox.mark_delivered(refs)
    records = [
        record
        for record in functions.engine.stream(table).take(before)
        if record["dynamodb"]["Keys"]["pk"]["S"].startswith("ready#many#")
    ]
    assert len(records) == 10_000
    for number in range(10):
        batch = {"Records": records[1000 * number : 1000 * (number + 1)]}
        failing.firehose.service.throttle = (refuse, range, lambda _: ())[number % 3]
        failing.buckets.refusing |= {ARCHIVE} if number % 4 == 1 else set()
        failing.buckets.lost = number % 2
        for _ in range(2):  # what is killed comes again
            try:
                functions.invoke("mark_delivered", batch)
                break
            except KeyboardInterrupt:
                continue
        failing.buckets.refusing.clear()
        failing.buckets.lost = 0
    assert len(failing.missing()) > 0
    failing.repair()
    assert failing.missing() == set()
    events = {
        (line["id"], line["event"])
        for line in archived(failing.buckets, ARCHIVE)
        if line["topic"] == "many"
    }
    assert len(events) == 10_000
    assert len({d.id for d in functions.outbox.delivered() if d.topic == "many"}) == 5_000
    assert [row for row in functions.outbox.listed() if row.topic == "many"] == []
