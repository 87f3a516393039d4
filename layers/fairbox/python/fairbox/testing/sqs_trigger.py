"""The event source mappings of queues: batches of messages for a function, deleted on success."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.testing.memory_sqs import REGION, arn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairbox.testing.memory_sqs import MemorySqs

Record = dict[str, Any]


class SqsTrigger:
    """Invokes a function with the batches of its queues, of the first one that has any.

    A message that failed, or whose invocation raised, stays hidden until its visibility ends.

    Args:
        urls: the queues; a batch is from one of them.
        batch: messages of one invocation at most.
    """

    def __init__(self, sqs: MemorySqs, *urls: str, batch: int = 10) -> None:
        self._sqs = sqs
        self._urls = urls
        self._batch = batch

    def receive(self) -> list[Record]:
        """Take a batch out of a queue; return it as the records of an event."""
        for url in self._urls:
            answer = self._sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=self._batch)
            # messages of two queues never share an invocation
            if "Messages" in answer:
                return [_record(message, url) for message in answer["Messages"]]
        return []

    def settle(
        self, records: Sequence[Record], answer: Mapping[str, Sequence[Mapping[str, str]]]
    ) -> None:
        """Delete the records that a function handled; failed ones come again."""
        failed = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        entries = [
            {"Id": str(n), "ReceiptHandle": record["receiptHandle"]}
            for n, record in enumerate(records)
            if record["messageId"] not in failed
        ]
        # an empty batch is refused by the service
        if entries:
            name = records[0]["eventSourceARN"].rpartition(":")[2]
            self._sqs.delete_message_batch(QueueUrl=name, Entries=entries)

    def invoke(
        self, function: Callable[[list[Record]], Mapping[str, Sequence[Mapping[str, str]]]]
    ) -> int:
        """Invoke a function with the next batch; return how many messages it got."""
        records = self.receive()
        if records:
            self.settle(records, function(records))
        return len(records)


def _record(message: dict[str, Any], url: str) -> Record:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": message.get("MessageAttributes", {}),
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": arn(url.rpartition("/")[2]),
        "awsRegion": REGION,
    }
