"""EventBridge, Kinesis, Lambda, and other topics."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.response import StreamingBody
from fairbox.destinations.aws_services import EventBridge, Kinesis
from fairbox.destinations.lambda_ import Lambda
from fairbox.destinations.topic import PulledTopic
from fairbox.dispatch.ports import TAKEN, Outcome
from fairbox.errors import InvalidInput, Throttled, TopicIsPushed, Unavailable
from fairbox.tables.stored_messages import Offloaded
from moto import mock_aws

from tests.support.destination_examples import ACCOUNT, client, stored, stubbed

if TYPE_CHECKING:
    from fairbox.model.messages import Message

STREAM = f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/orders"
FUNCTION = f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:orders:live"


def test_a_rule_of_the_bus_gets_the_envelope_as_detail() -> None:
    with mock_aws():
        events, sqs = client("events"), client("sqs")
        url = sqs.create_queue(QueueName="q")["QueueUrl"]
        events.create_event_bus(Name="bus")
        pattern = {"source": ["/fairbox/topics/orders"], "detail-type": ["order.paid"]}
        events.put_rule(Name="r", EventBusName="bus", EventPattern=json.dumps(pattern))
        target = {"Id": "1", "Arn": f"arn:aws:sqs:us-east-1:{ACCOUNT}:q"}
        events.put_targets(Rule="r", EventBusName="bus", Targets=[target])
        message = stored(b'{"a": 1}', headers={"ce-type": "order.paid"})
        assert EventBridge(events, "bus").send([message], 3) == [TAKEN]
        [got] = sqs.receive_message(QueueUrl=url)["Messages"]
        detail = json.loads(got["Body"])["detail"]
        assert detail["id"] == message.message.id
        assert detail["data"] == {"a": 1}


def test_each_event_gets_its_own_outcome() -> None:
    made, stubber = stubbed("events")
    answer = {
        "FailedEntryCount": 3,
        "Entries": [
            {"EventId": "1"},
            {"ErrorCode": "ThrottlingException", "ErrorMessage": "slow"},
            {"ErrorCode": "InternalFailure", "ErrorMessage": "oops"},
            {"ErrorCode": "NotAuthorizedForSourceException"},
        ],
    }
    stubber.add_response("put_events", answer)
    outcomes = EventBridge(made, "bus").send([stored() for _ in range(5)], 3)
    assert outcomes == [
        TAKEN,
        Outcome("throttled", "ThrottlingException: slow"),
        Outcome("refused", "InternalFailure: oops", fault="destination"),
        Outcome("refused", "NotAuthorizedForSourceException"),
        Outcome("refused", "the answer leaves it out"),
    ]


@pytest.mark.parametrize("source", ["/" + "s" * 300, "aws.", "aws.s3", "aws.partner/shop"])
def test_a_source_or_type_that_the_bus_refuses_stands_in_the_envelope_only(source: str) -> None:
    headers = {"ce-source": source, "ce-type": "t" * 200}
    entry = EventBridge(None, "bus").prepare(stored(headers=headers)).entry
    assert (entry["Source"], entry["DetailType"]) == ("fairbox", "fairbox.message")
    detail = json.loads(entry["Detail"])
    assert (detail["source"], detail["type"]) == (source, "t" * 200)


def test_each_record_of_a_stream_gets_its_own_outcome() -> None:
    made, stubber = stubbed("kinesis")
    messages = [stored(partition_key="k"), stored(partition_key=""), stored()]
    destination = Kinesis(made, STREAM)
    entries = [destination.prepare(m).entry for m in messages]
    assert [e["PartitionKey"] for e in entries] == ["k", messages[1].message.id, messages[2].ref.id]
    answer = {
        "FailedRecordCount": 2,
        "Records": [
            {"SequenceNumber": "1", "ShardId": "s"},
            {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "r"},
            {"ErrorCode": "InternalFailure", "ErrorMessage": "f"},
        ],
    }
    stubber.add_response("put_records", answer, {"StreamARN": STREAM, "Records": entries})
    verdicts = [o.verdict for o in destination.send(messages, 3)]
    assert verdicts == ["taken", "throttled", "refused"]


def test_a_record_over_one_mebibyte_is_refused_though_the_call_could_take_it() -> None:
    [outcome] = Kinesis(None, STREAM).send([stored(b"x" * 1_100_000)], 3)
    assert outcome.verdict == "refused"
    assert "1048576" in outcome.error


class Functions:
    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.answers = list(answers)
        self.calls: list[dict[str, Any]] = []
        self.timeouts: list[float] = []

    def client(self, timeout: float) -> Functions:
        self.timeouts.append(timeout)
        return self

    def invoke(self, **call: Any) -> dict[str, Any]:
        self.calls.append(call)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def payload(content: bytes) -> StreamingBody:
    return StreamingBody(io.BytesIO(content), len(content))


def test_a_function_takes_refuses_or_does_not_answer() -> None:
    failure = payload(b'{"errorMessage": "no\\nstock", "errorType": "Empty"}')
    trace = [f"  File {n}" for n in range(20_000)]
    long = {"errorMessage": "x" * 5000, "errorType": "Long", "stackTrace": trace}
    functions = Functions(
        {"StatusCode": 200, "Payload": payload(b"null")},
        {"StatusCode": 200, "FunctionError": "Unhandled", "Payload": failure},
        {"StatusCode": 200, "FunctionError": "Unhandled", "Payload": payload(b"\xff {")},
        {
            "StatusCode": 200,
            "FunctionError": "Unhandled",
            "Payload": payload(json.dumps(long).encode()),
        },
        ReadTimeoutError(endpoint_url="x"),
    )
    destination = Lambda(functions.client, FUNCTION)
    messages = [stored() for _ in range(5)]
    assert destination.send(messages, 7.9) == [
        TAKEN,
        Outcome("refused", "Empty: no stock"),
        Outcome("refused", "the function failed: \ufffd {"),
        Outcome("refused", "Long: " + "x" * 194),
        Outcome("refused", "no answer in time", fault="destination"),
    ]
    assert functions.timeouts == [7.0] * 5
    assert json.loads(functions.calls[0]["Payload"])["id"] == messages[0].message.id
    assert functions.calls[0]["InvocationType"] == "RequestResponse"


def test_a_function_is_not_called_with_what_it_cannot_take() -> None:
    functions = Functions()
    [outcome] = Lambda(functions.client, FUNCTION).send([stored(b"x" * 7_000_000)], 5)
    assert outcome.verdict == "refused"
    assert functions.calls == []


def test_another_topic_gets_the_same_id_due_at_once() -> None:
    added: list[Message] = []

    def add(messages: Any) -> list[Outcome]:
        added.extend(messages)
        return [TAKEN, Outcome("throttled", "later")]

    one, away, two = stored(delay=60, partition_key="k"), stored(b"", size=9), stored()
    away = stored(b"", offloaded=Offloaded("b", "k"), size=9)
    outcomes = PulledTopic("jobs", add).send([one, away, two], 3)
    assert [o.verdict for o in outcomes] == ["taken", "refused", "throttled"]
    assert [(m.topic, m.id, m.delay) for m in added] == [
        ("jobs", one.message.id, 0),
        ("jobs", two.message.id, 0),
    ]
    assert added[0].partition_key == "k"


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (Throttled("BatchWriteItem"), "throttled"),
        (Unavailable("BatchWriteItem", "500"), "unreachable"),
        (TopicIsPushed("jobs"), "refused"),
    ],
)
def test_errors_of_the_other_topic_become_outcomes(error: Exception, verdict: str) -> None:
    def add(_: object) -> list[Outcome]:
        raise error

    assert [o.verdict for o in PulledTopic("jobs", add).send([stored()], 3)] == [verdict]


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        (EventBridge, "a bus"),
        (EventBridge, ""),
        (Kinesis, "orders"),
        (Lambda, "orders"),
        (Lambda, FUNCTION.replace("function", "layer")),
    ],
)
def test_an_address_that_is_none_is_invalid(kind: Any, address: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        kind(None, address)
    assert caught.value.field == "destination"
