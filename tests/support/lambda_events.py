"""Lambda events as AWS makes them of the messages that our destinations send."""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING, Any

from botocore.response import StreamingBody
from fairbox.destinations.aws_services import EventBridge, Kinesis, Sns, Sqs
from fairbox.destinations.lambda_ import Lambda
from fairbox.dispatch.ports import TAKEN

from tests.support.destination_examples import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.tables.stored_messages import StoredMessage


class Aws:
    """The services' clients: they take everything, and keep the entries."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803 - the SDK's
        self.entries += Entries
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}

    def publish_batch(
        self,
        *,
        TopicArn: str,  # noqa: N803 - the SDK's
        PublishBatchRequestEntries: list[dict[str, Any]],  # noqa: N803 - the SDK's
    ) -> Any:
        return self.send_message_batch(QueueUrl=TopicArn, Entries=PublishBatchRequestEntries)

    def put_events(self, *, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803 - the SDK's
        self.entries += Entries
        return {"Entries": [{"EventId": "1"} for _ in Entries]}

    def put_records(self, *, StreamARN: str, Records: list[dict[str, Any]]) -> Any:  # noqa: N803 - the SDK's
        self.entries += Records
        return {"Records": [{"SequenceNumber": "1", "ShardId": "0"} for _ in Records]}

    def invoke(self, *, FunctionName: str, InvocationType: str, Payload: bytes) -> Any:  # noqa: N803 - the SDK's
        self.entries.append({"Payload": Payload})
        return {"Payload": StreamingBody(io.BytesIO(b"null"), 4)}


def sqs(messages: Sequence[StoredMessage], *, fifo: bool = False) -> dict[str, Any]:
    """An event source mapping's batch; the record of message n is called `record-n`."""
    aws = Aws()
    name = "billing.fifo" if fifo else "billing"
    url = f"https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/{name}"
    assert set(Sqs(aws, url).send(messages, 3)) == {TAKEN}
    return records_of_queue([entry["MessageBody"] for entry in aws.entries], name, aws.entries)


def records_of_queue(
    bodies: Sequence[str], name: str = "billing", entries: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    records = []
    for number, body in enumerate(bodies):
        attributes = {"ApproximateReceiveCount": "1"}
        if entries and "MessageGroupId" in entries[number]:
            attributes["MessageGroupId"] = entries[number]["MessageGroupId"]
        records.append(
            {
                "messageId": f"record-{number}",
                "body": body,
                "attributes": attributes,
                "eventSource": "aws:sqs",
                "eventSourceARN": f"arn:aws:sqs:us-east-1:{ACCOUNT}:{name}",
            }
        )
    return {"Records": records}


def sns(message: StoredMessage) -> dict[str, Any]:
    return {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": _published(message)}}]}


def sns_to_sqs(message: StoredMessage, *, raw: bool) -> dict[str, Any]:
    text = _published(message)
    wrapped = {"Type": "Notification", "MessageId": "1", "TopicArn": "arn", "Message": text}
    return records_of_queue([text if raw else json.dumps(wrapped)])


def _published(message: StoredMessage) -> str:
    aws = Aws()
    assert Sns(aws, f"arn:aws:sns:us-east-1:{ACCOUNT}:orders").send([message], 3) == [TAKEN]
    text: str = aws.entries[0]["Message"]
    return text


def kinesis(messages: Sequence[StoredMessage]) -> dict[str, Any]:
    """A batch of one shard; the record of message n has the sequence number `n`."""
    aws = Aws()
    arn = f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/orders"
    assert set(Kinesis(aws, arn).send(messages, 3)) == {TAKEN}
    return {
        "Records": [
            {
                "eventSource": "aws:kinesis",
                "eventSourceARN": arn,
                "kinesis": {
                    "data": base64.b64encode(entry["Data"]).decode(),
                    "sequenceNumber": str(number),
                },
            }
            for number, entry in enumerate(aws.entries)
        ]
    }


def eventbridge(message: StoredMessage) -> Any:
    return json.loads(_event_of_bus(message))


def eventbridge_to_sqs(message: StoredMessage) -> dict[str, Any]:
    return records_of_queue([_event_of_bus(message)])


def _event_of_bus(message: StoredMessage) -> str:
    aws = Aws()
    assert EventBridge(aws, "shop").send([message], 3) == [TAKEN]
    [entry] = aws.entries
    names = {"version": "0", "detail-type": entry["DetailType"], "source": entry["Source"]}
    return f'{json.dumps(names)[:-1]}, "detail": {entry["Detail"]}}}'


def invocation(message: StoredMessage) -> dict[str, Any]:
    aws = Aws()
    arn = f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:orders"
    assert Lambda(lambda _: aws, arn).send([message], 3) == [TAKEN]
    event: dict[str, Any] = json.loads(aws.entries[0]["Payload"])
    return event


def request(headers: dict[str, str], body: bytes) -> dict[str, Any]:
    """The event of a function URL, whose body is base64."""
    return {
        "version": "2.0",
        "requestContext": {"http": {"method": "POST"}},
        "headers": headers,
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }
