"""The archive's failures beside the other work of marking, and what repair does about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ConnectTimeoutError
from fairbox import Subscription, Topic
from fairbox.aws.clients import make_client
from fairbox.aws.s3_archive import S3Archive
from fairbox.errors import Unavailable

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


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    return Failing(monkeypatch)


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


def test_an_archive_that_waits_for_firehose_alone_is_found(
    failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_too(*_: Any) -> None:
        raise Unavailable("put_record_batch", "throttled")

    monkeypatch.setattr(S3Archive, "put", refuse_too)
    failing.firehose.service.throttle = refuse
    with pytest.raises(Unavailable):
        failing.mark()
