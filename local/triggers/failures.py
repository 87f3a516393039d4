"""On-failure destinations of a stream mapping: S3 with payload, SQS and SNS with positions."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from local.triggers.records import payload

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from local.triggers.batches import GivenUp


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The origin of a report: the mapping that gave a batch up."""

    mapping_id: str
    function_arn: str
    stream_arn: str
    shard_id: str


class OnFailure:
    """Sends reports of given-up batches to a bucket, queue or topic, named by its ARN."""

    def __init__(self, arn: str, clients: Mapping[str, Any], rng: random.Random) -> None:
        """Raise `ValueError` if the ARN is of no service that takes reports.

        `clients` holds boto3 clients as `s3`, `sqs` and `sns`.
        """
        self._arn = arn
        self._service = arn.split(":")[2] if arn.startswith("arn:") else ""
        if self._service not in {"s3", "sqs", "sns"}:
            raise ValueError(f"{arn!r} is no bucket, queue or topic")
        self._clients = clients
        self._rng = rng

    def send(self, given_up: GivenUp, origin: Origin, now: float) -> None:
        """Send one report; errors of the client are passed on."""
        report = self._report(given_up, origin, now)
        target = self._arn.split(":")[5]
        if self._service == "s3":
            bodies = [record.body for record in given_up.batch.records]
            report["payload"] = payload(bodies).decode()
            self._clients["s3"].put_object(
                Bucket=target,
                Key=self._key(origin, now),
                Body=json.dumps(report).encode(),
                ContentType="application/json",
            )
        elif self._service == "sqs":
            url = self._clients["sqs"].get_queue_url(QueueName=target)["QueueUrl"]
            self._clients["sqs"].send_message(QueueUrl=url, MessageBody=json.dumps(report))
        else:
            self._clients["sns"].publish(TopicArn=self._arn, Message=json.dumps(report))

    def _key(self, origin: Origin, now: float) -> str:
        at = datetime.fromtimestamp(now, UTC)
        return (
            f"aws/lambda/{origin.mapping_id}/{origin.shard_id}/{at:%Y/%m/%d}/"
            f"{at:%Y-%m-%dT%H.%M.%S}-{self._uuid()}"
        )

    def _uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._rng.getrandbits(128), version=4)

    def _report(self, given_up: GivenUp, origin: Origin, now: float) -> dict[str, Any]:
        records = given_up.batch.records
        report: dict[str, Any] = {
            "requestContext": {
                "requestId": str(self._uuid()),
                "functionArn": origin.function_arn,
                "condition": given_up.condition,
                "approximateInvokeCount": given_up.batch.invokes,
            },
            "responseContext": None,
            "version": "1.0",
            "timestamp": _iso(now, "milliseconds"),
            "DDBStreamBatchInfo": {
                "shardId": origin.shard_id,
                "startSequenceNumber": records[0].sequence_number,
                "endSequenceNumber": records[-1].sequence_number,
                "approximateArrivalOfFirstRecord": _iso(records[0].created, "seconds"),
                "approximateArrivalOfLastRecord": _iso(records[-1].created, "seconds"),
                "batchSize": len(records),
                "streamArn": origin.stream_arn,
            },
        }
        if given_up.batch.invokes:
            report["responseContext"] = {
                "statusCode": 200,
                "executedVersion": "$LATEST",
                "functionError": given_up.function_error,
            }
        return report


def _iso(seconds: float, timespec: str) -> str:
    moment = datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec)
    return moment.replace("+00:00", "Z")
