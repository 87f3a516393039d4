"""Queues, topics, buses and streams of one smoke test, made in the caller's name and removed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.errors import Unavailable
from fairbox.sdk.service_errors import service_error

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from fairbox.model.clock import Clock

_STREAM_SECONDS: Final = 90
_POLICY: Final = "RelayedToTheSmokeTest"


class SmokeResources:
    """Resources of AWS whose names begin with one prefix.

    Args:
        client: gives boto3's clients by service.
        prefix: beginning of all names; the functions may send to names that begin with it.
        clock: waits for a stream to become active.
    """

    def __init__(self, client: Callable[[str], Any], prefix: str, clock: Clock) -> None:
        self._client = client
        self._prefix = prefix
        self._clock = clock
        self._undo: list[tuple[str, Callable[[], Any]]] = []

    def queue(self, name: str) -> str:
        """Create a queue, or find it; return its URL. SNS and EventBridge may send to it.

        Raises:
            Unavailable: SQS refuses; the message names the call.
        """
        sqs = self._client("sqs")
        full = f"{self._prefix}{name}"
        url = str(self._call(sqs, "create_queue", QueueName=full)["QueueUrl"])
        # noted at once: it is removed whatever fails after this
        self._undo.append((url, lambda: sqs.delete_queue(QueueUrl=url)))

        # only services of this account may send to it
        services = ["sns.amazonaws.com", "events.amazonaws.com"]
        arn = self.queue_arn(url)
        statement = {
            "Sid": _POLICY,
            "Effect": "Allow",
            "Principal": {"Service": services},
            "Action": "sqs:SendMessage",
            "Resource": arn,
            "Condition": {"StringEquals": {"aws:SourceAccount": arn.split(":")[4]}},
        }

        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self._call(sqs, "set_queue_attributes", QueueUrl=url, Attributes={"Policy": policy})
        return url

    def queue_arn(self, url: str) -> str:
        """Return the ARN of a queue."""
        names = {"QueueUrl": url, "AttributeNames": ["QueueArn"]}
        answer = self._call(self._client("sqs"), "get_queue_attributes", **names)
        return str(answer["Attributes"]["QueueArn"])

    def sns_topic(self, name: str, queue_arn: str) -> str:
        """Create an SNS topic in front of a queue; return its ARN."""
        sns = self._client("sns")
        full = f"{self._prefix}{name}"
        arn = str(self._call(sns, "create_topic", Name=full)["TopicArn"])
        self._undo.append((full, lambda: sns.delete_topic(TopicArn=arn)))

        self._call(
            sns,
            "subscribe",
            TopicArn=arn,
            Protocol="sqs",
            Endpoint=queue_arn,
            # the body as it was published: the test looks for ids in it
            Attributes={"RawMessageDelivery": "true"},
        )

        return arn

    def bus(self, name: str, queue_arn: str) -> str:
        """Create an event bus with a rule that sends everything to a queue; return its ARN."""
        events = self._client("events")
        full = f"{self._prefix}{name}"
        arn = str(self._call(events, "create_event_bus", Name=full)["EventBusArn"])
        self._undo.append((full, lambda: events.delete_event_bus(Name=full)))

        account = arn.split(":")[4]
        rule = {"Name": full, "EventBusName": full}
        # a rule needs a pattern: this one fits every event
        pattern = json.dumps({"account": [account]})
        self._call(events, "put_rule", **rule, EventPattern=pattern)
        self._undo.append((f"{full} (rule)", lambda: events.delete_rule(**rule)))

        target = {"Rule": full, "EventBusName": full}
        targets = [{"Id": "queue", "Arn": queue_arn}]
        self._call(events, "put_targets", **target, Targets=targets)
        # undone in reverse: a rule with targets cannot be deleted, nor a bus with rules
        self._undo.append(
            (f"{full} (target)", lambda: events.remove_targets(**target, Ids=["queue"]))
        )
        return arn

    def stream(self, name: str) -> str:
        """Create a Kinesis stream of one shard, and wait until it is active; return its ARN."""
        kinesis = self._client("kinesis")
        full = f"{self._prefix}{name}"
        self._call(kinesis, "create_stream", StreamName=full, ShardCount=1)
        self._undo.append((full, lambda: kinesis.delete_stream(StreamName=full)))

        end = self._clock.now() + _STREAM_SECONDS
        while self._clock.now() < end:
            answer = self._call(kinesis, "describe_stream_summary", StreamName=full)
            summary = answer["StreamDescriptionSummary"]
            if summary["StreamStatus"] == "ACTIVE":
                return str(summary["StreamARN"])
            self._clock.sleep(1)

        raise Unavailable("CreateStream", f"the stream is not active after {_STREAM_SECONDS} s")

    def received(self, url: str) -> list[str]:
        """Take the messages out of a queue, and return the bodies."""
        sqs = self._client("sqs")
        bodies: list[str] = []
        # a short poll asks some of SQS's servers: an empty answer ends this look, not the test
        while found := self._call(sqs, "receive_message", QueueUrl=url, MaxNumberOfMessages=10).get(
            "Messages"
        ):
            bodies += [message["Body"] for message in found]
            for message in found:
                receipt = message["ReceiptHandle"]
                self._call(sqs, "delete_message", QueueUrl=url, ReceiptHandle=receipt)
        return bodies

    def records(self, arn: str) -> list[str]:
        """Return everything in a stream of one shard."""
        kinesis = self._client("kinesis")
        shard = {"StreamARN": arn, "ShardId": "shardId-000000000000"}
        begin = self._call(
            kinesis, "get_shard_iterator", **shard, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        found = self._call(kinesis, "get_records", ShardIterator=begin, StreamARN=arn)
        return [record["Data"].decode() for record in found["Records"]]

    def remove(self, *, keep: Container[str] = ()) -> list[str]:
        """Remove everything except the queues `keep`, by URL; return the failures, with reasons."""
        left = []
        while self._undo:
            name, undo = self._undo.pop()
            if name in keep:
                continue
            try:
                undo()
            except (ClientError, BotoCoreError) as error:
                left.append(f"{name}: {error}")
        return left

    def _call(self, client: Any, operation: str, **request: Any) -> Any:
        try:
            return getattr(client, operation)(**request)
        except (ClientError, BotoCoreError) as error:
            # errors name what IAM allows, such as CreateQueue
            action = operation.title().replace("_", "")
            raise service_error("", error, action) from error
