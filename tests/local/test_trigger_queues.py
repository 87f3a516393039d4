"""Queues of the local application: groups, visibility, redrive, concurrency, Lambda's event."""

from __future__ import annotations

import random
import threading
import uuid
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from local.triggers.queues import QueueMapping, QueueTrigger, fitting
from tests.local.trigger_fakes import ERROR, OK, FakeInvoker, report, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.functions.invoker import InvokeResult


@pytest.fixture(scope="module")
def sqs(local_queues: None) -> Iterator[Any]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield boto3.client(
        "sqs",
        endpoint_url=f"http://{host}:{port}",
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    server.stop()


class Queue:
    """A queue of its own for a test."""

    def __init__(self, sqs: Any, *, fifo: bool = False, **attributes: str) -> None:
        self.sqs = sqs
        name = f"q-{uuid.uuid4().hex}" + (".fifo" if fifo else "")
        if fifo:
            attributes["FifoQueue"] = "true"
        self.url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        self.arn = f"arn:aws:sqs:us-east-1:123456789012:{name}"

    def send(self, *bodies: str, **fields: Any) -> None:
        for body in bodies:
            extra = dict(fields)
            if self.url.endswith(".fifo"):
                extra = {"MessageDeduplicationId": uuid.uuid4().hex, "MessageGroupId": "g"} | extra
            self.sqs.send_message(QueueUrl=self.url, MessageBody=body, **extra)

    def left(self) -> int:
        """Approximately: a message whose time in flight just ends may be in neither number."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)
        return sum(int(number) for number in answer["Attributes"].values())


@pytest.fixture
def run(sqs: Any) -> Iterator[Callable[..., QueueTrigger]]:
    started: list[QueueTrigger] = []

    def start(
        queue: Queue, invoker: FakeInvoker, *, repeat_share: float = 0.0, **properties: Any
    ) -> QueueTrigger:
        given = {"EventSourceArn": queue.arn, "FunctionName": "f"}
        trigger = QueueTrigger(
            "Mapping",
            QueueMapping.from_properties(given | properties),
            client=sqs,
            invoker=invoker,
            rng=random.Random(3),
            repeat_share=repeat_share,
            poll_interval=0.01,
        )
        trigger.start()
        started.append(trigger)
        return trigger

    yield start
    for trigger in started:
        trigger.stop()


def bodies(invoker: FakeInvoker) -> list[str]:
    return [record["body"] for record in invoker.records()]


def test_messages_arrive_as_lambda_shows_them_and_are_deleted(
    sqs: Any, run: Callable[..., QueueTrigger]
) -> None:
    queue = Queue(sqs, fifo=True)
    attributes = {
        "kind": {"DataType": "String", "StringValue": "bell"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    queue.send("hello", MessageAttributes=attributes, MessageGroupId="orders#3")
    invoker = FakeInvoker()
    run(queue, invoker)
    wait_for(lambda: invoker.calls and queue.left() == 0)
    (record,) = invoker.records()
    assert record["body"] == "hello"
    assert record["md5OfBody"] == "5d41402abc4b2a76b9719d911017c592"
    assert record["eventSource"] == "aws:sqs"
    assert record["eventSourceARN"] == queue.arn
    assert record["awsRegion"] == "us-east-1"
    assert record["attributes"]["MessageGroupId"] == "orders#3"
    assert record["attributes"]["ApproximateReceiveCount"] == "1"
    assert int(record["attributes"]["SentTimestamp"]) > 1_600_000_000_000
    assert record["attributes"]["SequenceNumber"]
    assert record["attributes"]["MessageDeduplicationId"]
    assert record["messageAttributes"]["kind"] == {
        "stringValue": "bell",
        "stringListValues": [],
        "binaryListValues": [],
        "dataType": "String",
    }
    assert record["messageAttributes"]["raw"]["binaryValue"] == "AP8="
    assert {"messageId", "receiptHandle"} <= set(record)


def test_a_failed_message_comes_back(sqs: Any, run: Callable[..., QueueTrigger]) -> None:
    queue = Queue(sqs, VisibilityTimeout="1")
    answers = iter([ERROR, OK])
    invoker = FakeInvoker(lambda _: next(answers))
    queue.send("x")
    run(queue, invoker)
    wait_for(lambda: len(invoker.calls) == 2 and queue.left() == 0)
    counts = [one["attributes"]["ApproximateReceiveCount"] for one in invoker.records()]
    assert counts == ["1", "2"]


def test_only_the_messages_named_in_a_partial_answer_stay(
    sqs: Any, run: Callable[..., QueueTrigger]
) -> None:
    queue = Queue(sqs, VisibilityTimeout="60")
    queue.send("a", "b", "c")

    def answer(event: dict[str, Any]) -> InvokeResult:
        return report(*[one["messageId"] for one in event["Records"] if one["body"] == "b"])

    trigger = run(queue, FakeInvoker(answer), FunctionResponseTypes=["ReportBatchItemFailures"])
    wait_for(lambda: trigger.counts["deleted"] == 2)
    assert queue.left() == 1
    assert trigger.counts["failed_messages"] == 1


def test_a_message_that_always_fails_reaches_the_dead_letter_queue(
    sqs: Any, run: Callable[..., QueueTrigger]
) -> None:
    dead = Queue(sqs)
    policy = f'{{"deadLetterTargetArn": "{dead.arn}", "maxReceiveCount": 2}}'
    queue = Queue(sqs, VisibilityTimeout="1", RedrivePolicy=policy)
    invoker = FakeInvoker(lambda _: ERROR)
    queue.send("poison")
    run(queue, invoker)
    wait_for(lambda: dead.left() == 1)
    assert len(invoker.calls) == 2
    assert queue.left() == 0


def test_a_group_has_one_batch_in_flight_while_other_groups_go_on(
    sqs: Any, run: Callable[..., QueueTrigger]
) -> None:
    queue = Queue(sqs, fifo=True, VisibilityTimeout="30")
    for number in range(6):
        queue.send(f"a{number}", MessageGroupId="a")
        queue.send(f"b{number}", MessageGroupId="b")
    flying: list[str] = []
    clashes: list[str] = []
    both = threading.Event()

    def answer(event: dict[str, Any]) -> InvokeResult:
        groups = {one["attributes"]["MessageGroupId"] for one in event["Records"]}
        clashes.extend(groups & set(flying))
        flying.extend(groups)
        if {"a", "b"} <= set(flying):
            both.set()
        assert both.wait(60)
        for group in groups:
            flying.remove(group)
        return OK

    invoker = FakeInvoker(answer)
    run(queue, invoker, BatchSize=1, ScalingConfig={"MaximumConcurrency": 4})
    wait_for(lambda: queue.left() == 0)
    assert clashes == []
    for group in "ab":
        mine = [body for body in bodies(invoker) if body.startswith(group)]
        assert mine == [f"{group}{number}" for number in range(6)]


def test_a_failed_message_of_a_group_holds_back_what_follows_it(
    sqs: Any, run: Callable[..., QueueTrigger]
) -> None:
    queue = Queue(sqs, fifo=True, VisibilityTimeout="1")
    turns = iter([ERROR, OK, OK])
    invoker = FakeInvoker(lambda _: next(turns))
    queue.send("1", "2")
    run(queue, invoker, BatchSize=1)
    wait_for(lambda: len(invoker.calls) == 3 and queue.left() == 0)
    assert bodies(invoker) == ["1", "1", "2"]


def test_no_more_invocations_run_at_once_than_the_mapping_allows(
    sqs: Any, run: Callable[..., QueueTrigger]
) -> None:
    queue = Queue(sqs)

    def answer(_: dict[str, Any]) -> InvokeResult:
        wait_for(lambda: invoker.most_flying == 2)
        return OK

    invoker = FakeInvoker(answer)
    queue.send(*"abcdefghijkl")
    run(queue, invoker, BatchSize=1, ScalingConfig={"MaximumConcurrency": 2})
    wait_for(lambda: queue.left() == 0)
    assert invoker.most_flying == 2


def test_a_window_gathers_what_comes_later_into_one_batch(
    sqs: Any, run: Callable[..., QueueTrigger]
) -> None:
    queue = Queue(sqs)
    invoker = FakeInvoker()
    run(queue, invoker, BatchSize=15, MaximumBatchingWindowInSeconds=60)
    for number in range(15):
        queue.send(str(number))
    wait_for(lambda: len(bodies(invoker)) == 15)
    assert len(invoker.calls) == 1


def test_a_share_of_successes_is_delivered_again_before_it_is_deleted(
    sqs: Any, run: Callable[..., QueueTrigger]
) -> None:
    queue = Queue(sqs)
    queue.send(*"abcdef")
    invoker = FakeInvoker()
    trigger = run(queue, invoker, BatchSize=2, repeat_share=1.0)
    wait_for(lambda: trigger.counts["deleted"] == 6)
    assert trigger.counts["repeats"] == trigger.counts["invocations"]
    assert set(bodies(invoker)) == set("abcdef")
    assert len(bodies(invoker)) > 6
    counts = {one["attributes"]["ApproximateReceiveCount"] for one in invoker.records()}
    assert counts == {"1", "2"}


def test_several_queues_feed_one_function(sqs: Any, run: Callable[..., QueueTrigger]) -> None:
    first, second = Queue(sqs), Queue(sqs)
    invoker = FakeInvoker()
    run(first, invoker)
    run(second, invoker)
    first.send("one")
    second.send("two")
    wait_for(lambda: sorted(bodies(invoker)) == ["one", "two"])
    assert {one["eventSourceARN"] for one in invoker.records()} == {first.arn, second.arn}


def test_a_stopped_trigger_receives_no_more(sqs: Any, run: Callable[..., QueueTrigger]) -> None:
    queue = Queue(sqs)
    invoker = FakeInvoker()
    trigger = run(queue, invoker)
    trigger.stop()
    assert trigger._thread is None, "nothing receives"
    queue.send("x")
    trigger.start()
    wait_for(lambda: bodies(invoker) == ["x"])


def test_a_batch_is_cut_where_it_would_not_fit_the_payload() -> None:
    messages = [{"Body": "x" * 3000, "n": number} for number in range(5)]
    parts = fitting(messages, 8200)
    assert [[one["n"] for one in part] for part in parts] == [[0, 1], [2, 3], [4]]
    assert fitting(messages[:1], 10) == [messages[:1]]
    assert fitting([], 10) == []
