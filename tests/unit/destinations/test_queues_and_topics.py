"""SQS and SNS: entries, groups, attributes, limits, and answers entry by entry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
)
from fairbox.cloudevents import parse_structured
from fairbox.destinations.aws_services import Sns, Sqs
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.errors import InvalidInput
from fairbox.tables.stored_messages import Offloaded
from moto import mock_aws

from tests.support.destination_examples import ACCOUNT, client, stored, stubbed

if TYPE_CHECKING:
    from collections.abc import Iterator

URL = f"https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/orders"
ARN = f"arn:aws:sns:us-east-1:{ACCOUNT}:orders"
HTTP_OK = {"ResponseMetadata": {"HTTPStatusCode": 200}}


@pytest.fixture
def sqs() -> Iterator[Any]:
    with mock_aws():
        yield client("sqs")


class Refusing:
    """A client whose every call raises, and which counts the calls."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    def send_message_batch(self, **_: Any) -> Any:
        self.calls += 1
        raise self.error

    publish_batch = send_message_batch


def received(sqs: Any, url: str) -> list[dict[str, Any]]:
    answer = sqs.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=10,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["All"],
    )
    return list(answer.get("Messages", ()))


def test_a_standard_queue_gets_the_envelope_with_headers_as_attributes(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    body = b'{ "a" : 1}\n'
    message = stored(body, headers={"x-tenant": "t1", "ce-type": "paid"}, partition_key="k")
    assert Sqs(sqs, url).send([message], 3) == [TAKEN]
    [got] = received(sqs, url)
    event = parse_structured(got["Body"].encode(), exact=True)
    assert (event.data, event.type, event.partitionkey) == (body, "paid", "k")
    attributes = {k: v["StringValue"] for k, v in got["MessageAttributes"].items()}
    assert attributes == {"content-type": "application/cloudevents+json", "x-tenant": "t1"}


def test_a_fifo_queue_keeps_groups_and_drops_what_was_sent_before(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    queue = Sqs(sqs, url)
    keyed, strange, keyless = stored(partition_key="k"), stored(partition_key="k é"), stored()
    assert queue.send([keyed, strange, keyless], 3) == [TAKEN] * 3
    assert queue.send([keyed], 3) == [TAKEN]
    groups = {m["Body"]: m["Attributes"]["MessageGroupId"] for m in received(sqs, url)}
    assert len(groups) == 3
    assert "k" in groups.values()
    assert keyless.message.id in groups.values()
    assert "k é" not in groups.values()


def test_the_deduplication_id_tells_two_topics_apart_and_attempts_not() -> None:
    queue = Sqs(None, URL + ".fifo")
    one = stored()
    other = stored(topic="copies", id=one.message.id)
    ids = [queue.prepare(m).entry["MessageDeduplicationId"] for m in (one, one, other)]
    assert ids[0] == ids[1] != ids[2]
    assert max(map(len, ids)) <= 128


def test_the_fairness_key_makes_a_standard_queue_fair() -> None:
    entry = Sqs(None, URL).prepare(stored(fairness_key="tenant-1", partition_key="k")).entry
    assert entry["MessageGroupId"] == "tenant-1"
    assert "MessageGroupId" not in Sqs(None, URL).prepare(stored(partition_key="k")).entry


def test_at_most_ten_attributes_go_along_and_none_that_sqs_refuses() -> None:
    headers = {"AWS.x": "1", "a..b": "1", "empty": "", "bad": "\uffff", "x!": "1"}
    headers |= {f"h{n}": str(n) for n in range(20)}
    entry = Sqs(None, URL).prepare(stored(headers=headers)).entry
    assert list(entry["MessageAttributes"]) == ["content-type", *(f"h{n}" for n in range(9))]
    kept = json.loads(json.loads(entry["MessageBody"])["fairboxheaders"])
    assert kept == headers


def test_each_entry_gets_its_own_outcome() -> None:
    made, stubber = stubbed("sqs")
    stubber.add_response(
        "send_message_batch",
        {
            "Successful": [{"Id": "0", "MessageId": "m", "MD5OfMessageBody": "x"}],
            "Failed": [
                {
                    "Id": "1",
                    "SenderFault": True,
                    "Code": "InvalidContents",
                    "Message": "a\nb",
                },
                {"Id": "2", "SenderFault": True, "Code": "RequestThrottled"},
                {"Id": "3", "SenderFault": False, "Code": "InternalError"},
                {"Id": "4", "SenderFault": False, "Code": "ServiceUnavailable"},
            ],
        },
    )
    outcomes = Sqs(made, URL).send([stored() for _ in range(6)], 3)
    assert outcomes == [
        TAKEN,
        Outcome("refused", "InvalidContents: a b"),
        Outcome("throttled", "RequestThrottled"),
        Outcome("refused", "InternalError", fault="destination"),
        Outcome("unreachable", "ServiceUnavailable"),
        Outcome("refused", "the answer leaves it out"),
    ]


@pytest.mark.parametrize(
    ("code", "status", "verdict"),
    [
        ("RequestThrottled", 403, "throttled"),
        ("ThrottlingException", 400, "throttled"),
        ("Whatever", 429, "throttled"),
        ("KmsThrottled", 400, "throttled"),
        ("AWS.SimpleQueueService.NonExistentQueue", 400, "refused"),
        ("AccessDenied", 403, "refused"),
        ("InternalError", 500, "refused"),
        ("Whatever", 503, "unreachable"),
    ],
)
@pytest.mark.parametrize("kind", [Sqs, Sns])
def test_an_error_of_the_whole_call_is_told_apart_by_code(
    kind: Any, code: str, status: int, verdict: str
) -> None:
    error = ClientError(
        {
            "Error": {"Code": code, "Message": "\x1b[31m" + "m" * 500},
            "ResponseMetadata": {"HTTPStatusCode": status},  # type: ignore[typeddict-item]
        },
        "Send",
    )
    destination = kind(Refusing(error), URL if kind is Sqs else ARN)
    outcomes = destination.send([stored(), stored()], 3)
    assert [o.verdict for o in outcomes] == [verdict] * 2
    assert all(len(o.error) <= 200 and o.error.isprintable() for o in outcomes)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (EndpointConnectionError(endpoint_url="http://x"), "unreachable"),
        (ConnectTimeoutError(endpoint_url="http://x"), "unreachable"),
        (ReadTimeoutError(endpoint_url="http://x"), "refused"),
        (ConnectionClosedError(endpoint_url="http://x"), "refused"),
    ],
)
def test_no_connection_counts_for_no_message_and_no_answer_does(
    error: Exception, verdict: str
) -> None:
    [outcome] = Sqs(Refusing(error), URL).send([stored()], 3)
    assert outcome.verdict == verdict


def test_a_message_that_cannot_fit_is_refused_by_name_of_the_limit_without_a_call() -> None:
    refusing = Refusing(AssertionError("called"))
    big = stored(b"x" * 300_000, content_type="text/plain")
    [outcome] = Sns(refusing, ARN).send([big], 3)
    assert outcome.verdict == "refused"
    assert "limit of 262144 bytes" in outcome.error
    assert refusing.calls == 0


def test_a_message_that_cannot_fit_goes_out_as_its_address_where_it_has_one() -> None:
    big = stored(b"x" * 300_000, offloaded=Offloaded("b", "k"), content_type="text/plain")
    prepared = Sns(None, ARN).prepare(big)
    assert json.loads(prepared.entry["Message"])["dataref"] == "s3://b/k"
    assert prepared.size < 1000


def test_a_body_not_in_place_counts_as_if_it_were_where_the_call_could_take_it() -> None:
    queue = Sqs(None, URL)
    near = stored(b"", offloaded=Offloaded("b", "k"), size=600_000)
    far = stored(b"", offloaded=Offloaded("b", "k"), size=5_000_000)
    assert queue.size(near) > 800_000
    assert queue.size(far) < 1000


def test_what_exceeds_one_call_goes_in_several_and_a_big_one_does_not_stop_the_rest() -> None:
    made, stubber = stubbed("sqs")
    for count in (10, 2):
        stubber.add_response(
            "send_message_batch",
            {
                "Successful": [
                    {"Id": str(n), "MessageId": "m", "MD5OfMessageBody": "x"} for n in range(count)
                ],
                "Failed": [],
            },
        )
    messages = [stored() for _ in range(12)]
    messages.insert(5, stored(b"x" * 2_000_000))
    outcomes = Sqs(made, URL).send(messages, 3)
    assert [o.verdict for o in outcomes] == ["taken"] * 5 + ["refused"] + ["taken"] * 7
    stubber.assert_no_pending_responses()


def test_no_call_begins_when_the_time_is_up() -> None:
    refusing = Refusing(AssertionError("called"))
    [outcome] = Sqs(refusing, URL).send([stored()], 0)
    assert outcome.verdict == "throttled"
    assert refusing.calls == 0


def test_an_sns_topic_gets_the_envelope_and_fifo_keeps_groups(sqs: Any) -> None:
    sns = client("sns")
    url = sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    arn = sns.create_topic(Name="t.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
    queue_arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:q.fifo"
    sns.subscribe(
        TopicArn=arn,
        Protocol="sqs",
        Endpoint=queue_arn,
        Attributes={"RawMessageDelivery": "true"},
    )
    assert Sns(sns, arn).send([stored(b"[1]", partition_key="k")], 3) == [TAKEN]
    [got] = received(sqs, url)
    assert json.loads(got["Body"])["data"] == [1]
    assert got["Attributes"]["MessageGroupId"] == "k"


def test_a_topic_that_is_gone_refuses(sqs: Any) -> None:
    [outcome] = Sns(client("sns"), ARN).send([stored()], 3)
    assert outcome.verdict == "refused"
    assert outcome.error.startswith("NotFound")


@pytest.mark.parametrize("url", ["", "orders", "ftp://h/1/q", "https://h/1/q?x=1", "https://h/1/ü"])
def test_what_is_no_queue_url_is_invalid(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Sqs(None, url)
    assert caught.value.field == "destination"


@pytest.mark.parametrize("arn", ["", "orders", ARN.replace("sns", "sqs"), ARN + ".fifo.x"])
def test_what_is_no_topic_arn_is_invalid(arn: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Sns(None, arn)
    assert caught.value.field == "destination"
