"""The on-failure destination of a stream mapping: a bucket, as the templates name it."""

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
    """Writes reports of given-up batches, with their payload, to a bucket named by its ARN."""

    def __init__(self, arn: str, clients: Mapping[str, Any], rng: random.Random) -> None:
        """Raise `ValueError` if the ARN is no bucket's. `clients` holds boto3's as `s3`."""
        if not arn.startswith("arn:aws:s3:::"):
            raise ValueError(f"{arn!r} is no bucket")
        self._bucket = arn.rpartition(":")[2]
        self._clients = clients
        self._rng = rng

    def send(self, given_up: GivenUp, origin: Origin, now: float) -> None:
        """Send one report; errors of the client are passed on."""
        report = self._report(given_up, origin, now)
        bodies = [record.body for record in given_up.batch.records]
        report["payload"] = payload(bodies).decode()
        self._clients["s3"].put_object(
            Bucket=self._bucket,
            Key=self._key(origin, now),
            Body=json.dumps(report).encode(),
            ContentType="application/json",
        )

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
