"""The contract of SQS: the same cases against the model and against moto's server."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError
from fairbox.testing import ManualClock
from fairbox.testing.memory_sqs import MemorySqs, redrive
from moto.server import ThreadedMotoServer
from moto.sqs import models

from local.engines import moto_queues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT = 1.1


class Service:
    """A service under the contract, and how time passes there."""

    def __init__(self, client: Any, wait: Callable[[float], object]) -> None:
        self.client = client
        self.wait = wait

    def queue(self, *, fifo: bool = False, **attributes: str) -> str:
        if fifo:
            attributes |= {"FifoQueue": "true", "DeduplicationScope": "messageGroup"}
            attributes["FifoThroughputLimit"] = "perMessageGroupId"
        name = f"q-{uuid.uuid4().hex}" + (".fifo" if fifo else "")
        url: str = self.client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        return url

    def send(self, url: str, *entries: dict[str, Any]) -> dict[str, Any]:
        numbered = [{"Id": str(n), **entry} for n, entry in enumerate(entries)]
        answer: dict[str, Any] = self.client.send_message_batch(QueueUrl=url, Entries=numbered)
        return answer

    def receive(self, url: str, most: int = 10, **more: Any) -> list[dict[str, Any]]:
        answer = self.client.receive_message(
            QueueUrl=url, MaxNumberOfMessages=most, AttributeNames=["All"], **more
        )
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    def bodies(self, url: str, most: int = 10, **more: Any) -> list[str]:
        return [message["Body"] for message in self.receive(url, most, **more)]

    def delete(self, url: str, *messages: dict[str, Any]) -> dict[str, Any]:
        entries = [
            {"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages)
        ]
        answer: dict[str, Any] = self.client.delete_message_batch(QueueUrl=url, Entries=entries)
        return answer


def note(body: str, group: str = "", same: str = "", **more: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"MessageBody": body, **more}
    if group:
        named = {"MessageGroupId": group, "MessageDeduplicationId": same or uuid.uuid4().hex}
        entry = named | entry
    return entry


@pytest.fixture(scope="module", params=["model", "server"])
def sqs(request: pytest.FixtureRequest) -> Iterator[Service]:
    if request.param == "model":
        clock = ManualClock()
        yield Service(MemorySqs(clock, random.Random(0)), clock.advance)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "Queue", models.Queue)
        for name in ("receive_message", "change_message_visibility"):
            patch.setattr(models.SQSBackend, name, getattr(models.SQSBackend, name))
        moto_queues.install()
        clock = ManualClock()
        for module, name in ((moto_queues, "_now"), (models, "unix_time_millis")):
            patch.setattr(module, name, lambda: clock.now() * 1000)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        client = boto3.client(
            "sqs",
            endpoint_url=f"http://{host}:{port}",
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
        yield Service(client, clock.advance)
        client.close()
        server.stop()


def test_a_repeated_id_is_dropped_also_after_the_first_was_consumed(sqs: Service) -> None:
    url = sqs.queue(fifo=True)
    answers = [sqs.send(url, note("x", "a", "same"))["Successful"] for _ in range(2)]
    assert [len(answer) for answer in answers] == [1, 1], "the second is accepted, too"
    (message,) = sqs.receive(url)
    sqs.delete(url, message)
    sqs.send(url, note("x", "a", "same"), note("y", "a", "other"))
    assert sqs.bodies(url) == ["y"]


def test_ids_count_by_group(sqs: Service) -> None:
    url = sqs.queue(fifo=True)
    sqs.send(url, note("x", "a", "same"), note("y", "b", "same"))
    assert sorted(sqs.bodies(url)) == ["x", "y"]


def test_a_group_is_given_to_one_at_a_time_and_in_order(sqs: Service) -> None:
    url = sqs.queue(fifo=True)
    sqs.send(url, note("1", "a"), note("2", "a"), note("3", "b"))
    (first,) = sqs.receive(url, 1)
    assert first["Body"] == "1"
    assert first["Attributes"]["MessageGroupId"] == "a"
    (third,) = sqs.receive(url)
    assert third["Body"] == "3"
    assert not sqs.receive(url)
    sqs.delete(url, first)
    assert sqs.bodies(url) == ["2"]


def test_a_message_that_is_not_deleted_comes_again_before_its_followers(sqs: Service) -> None:
    url = sqs.queue(fifo=True, VisibilityTimeout="1")
    sqs.send(url, note("1", "a"), note("2", "a"))
    assert sqs.bodies(url, 1) == ["1"]
    sqs.wait(WAIT)
    (again,) = sqs.receive(url, 1)
    assert (again["Body"], again["Attributes"]["ApproximateReceiveCount"]) == ("1", "2")


def test_visibility_is_changed_by_a_receipt(sqs: Service) -> None:
    url = sqs.queue(VisibilityTimeout="30")
    sqs.send(url, note("x"))
    (message,) = sqs.receive(url)
    assert not sqs.receive(url)
    sqs.client.change_message_visibility(
        QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
    )
    assert sqs.bodies(url) == ["x"]


def test_a_message_waits_for_its_delay(sqs: Service) -> None:
    url = sqs.queue()
    sqs.send(url, note("later", DelaySeconds=1), note("now"))
    assert sqs.bodies(url) == ["now"]
    sqs.wait(WAIT)
    assert sqs.bodies(url) == ["later"]


def test_what_was_received_too_often_goes_to_the_dead_letters(sqs: Service) -> None:
    dead = sqs.queue(fifo=True)
    policy = redrive(dead.rsplit("/", maxsplit=1)[-1], 2)
    url = sqs.queue(fifo=True, VisibilityTimeout="0", RedrivePolicy=policy)
    sqs.send(url, note("x", "a"), note("y", "b"))
    for _ in range(2):
        assert sorted(sqs.bodies(url, VisibilityTimeout=0)) == ["x", "y"]
    assert not sqs.receive(url)
    assert sorted(sqs.bodies(dead)) == ["x", "y"]


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([note("x")] * 11, "TooManyEntriesInBatchRequest"),
        ([note("x" * 300_000)] * 4, "BatchRequestTooLong"),
    ],
)
def test_a_batch_that_is_none_is_refused(
    sqs: Service, entries: list[dict[str, Any]], code: str
) -> None:
    url = sqs.queue()
    with pytest.raises(ClientError) as caught:
        sqs.send(url, *entries)
    assert code in caught.value.response["Error"]["Code"]
    assert not sqs.receive(url)


def test_ids_of_a_batch_differ(sqs: Service) -> None:
    url = sqs.queue()
    entries = [{"Id": "0", "MessageBody": "x"}] * 2
    with pytest.raises(ClientError, match="Id"):
        sqs.client.send_message_batch(QueueUrl=url, Entries=entries)


def test_a_receipt_deletes_once_and_a_repetition_is_no_error(sqs: Service) -> None:
    url = sqs.queue()
    sqs.send(url, note("x"))
    (message,) = sqs.receive(url)
    for _ in range(2):
        sqs.client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    counts = sqs.client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessages"] == "0"
    assert counts["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_a_queue_that_is_not_there_is_named(sqs: Service) -> None:
    url = sqs.queue().rsplit("/", maxsplit=1)[0] + "/nowhere"
    with pytest.raises(ClientError, match=r"NonExistentQueue|does not exist"):
        sqs.receive(url)
