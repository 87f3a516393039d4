"""Given-up stream batches in S3, as Lambda's on-failure destination writes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class S3Failures:
    """Implements `fairbox.dispatch.maintenance.repair.GivenUp`.

    Args:
        client: boto3's S3 client.
        bucket: the on-failure bucket of the stream mappings.
    """

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def batches(self) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
        """Yield (object key, records) of each; other objects stay for an operator.

        Raises:
            Unavailable: S3 did not answer.
        """
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix="aws/lambda/"
            )
            for page in pages:
                for entry in page.get("Contents", []):
                    answer = self._client.get_object(Bucket=self._bucket, Key=entry["Key"])
                    records = _records(answer["Body"].read())
                    if records is not None:
                        yield entry["Key"], records
        except (ClientError, BotoCoreError) as error:
            raise Unavailable("list_objects_v2", type(error).__name__) from error

    def done(self, name: str) -> None:
        """Delete the object of a batch that was replayed.

        Raises:
            Unavailable: S3 did not answer; the batch is replayed once more.
        """
        try:
            self._client.delete_object(Bucket=self._bucket, Key=name)
        except (ClientError, BotoCoreError) as error:
            raise Unavailable("delete_object", type(error).__name__) from error


def _records(body: bytes) -> list[Mapping[str, Any]] | None:
    try:
        records: list[Mapping[str, Any]] = json.loads(json.loads(body)["payload"])["Records"]
    except (ValueError, KeyError, TypeError):
        return None
    return records
