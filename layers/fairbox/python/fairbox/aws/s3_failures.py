"""Stream records in S3 that were given up, as Lambda's on-failure destination writes them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.dispatch.ports import GivenUpBatch
from fairbox.errors import Unreadable
from fairbox.sdk.service_errors import service_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PREFIX: Final = "aws/lambda/"
_SET_ASIDE: Final = f"{_PREFIX}set-aside/"


class S3Failures:
    """Implements the ports `GivenUp` of repair and `SetAside` of marking.

    Args:
        client: gives boto3's S3 client, when it is first needed.
        bucket: the on-failure bucket of the stream mappings.
    """

    def __init__(self, client: Callable[[], Any], bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def names(self) -> dict[str, float]:
        """Return the keys of all objects with their times; other objects stay for an operator.

        Raises:
            NotAllowed, Unavailable: S3 did not answer.
        """
        try:
            pages = (
                self._client()
                .get_paginator("list_objects_v2")
                .paginate(Bucket=self._bucket, Prefix=_PREFIX)
            )
            entries = [entry for page in pages for entry in page.get("Contents", [])]
        except (ClientError, BotoCoreError) as error:
            raise service_error("s3", error, "list_objects_v2") from error
        return {entry["Key"]: entry["LastModified"].timestamp() for entry in entries}

    def read(self, name: str) -> GivenUpBatch:
        """Return the batch of an object.

        Raises:
            Unreadable: it holds no records.
            NotAllowed, Unavailable: S3 did not answer.
        """
        try:
            body = self._client().get_object(Bucket=self._bucket, Key=name)["Body"].read()
        except (ClientError, BotoCoreError) as error:
            raise service_error("s3", error, "get_object") from error

        try:
            # Lambda puts the event into its object as text
            records = json.loads(json.loads(body)["payload"])["Records"]
            # what a record lacks shows when it is handled
            if not isinstance(records, list) or not all(isinstance(r, dict) for r in records):
                raise TypeError("the records are no objects")  # noqa: TRY301 - one handler for all
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable({"object": name}, f"{type(error).__name__}: {error}") from error
        return GivenUpBatch(records, counted=name.startswith(_SET_ASIDE))

    def done(self, name: str) -> None:
        """Delete the object of a batch that was replayed.

        Raises:
            NotAllowed, Unavailable: S3 did not answer; the batch is replayed once more.
        """
        try:
            self._client().delete_object(Bucket=self._bucket, Key=name)
        except (ClientError, BotoCoreError) as error:
            raise service_error("s3", error, "delete_object") from error

    def keep(self, reason: str, records: Sequence[Mapping[str, Any]]) -> str:
        """Put records into an object as Lambda does; the same records go into the same object.

        Raises:
            NotAllowed, Unavailable: S3 did not take it.
        """
        payload = json.dumps({"Records": list(records)}, separators=(",", ":"))
        digest = hashlib.sha256(payload.encode()).hexdigest()[:32]
        name = f"{_SET_ASIDE}{reason}/{digest}"
        body = json.dumps({"payload": payload}).encode()
        try:
            self._client().put_object(Bucket=self._bucket, Key=name, Body=body)
        except (ClientError, BotoCoreError) as error:
            raise service_error("s3", error, "put_object") from error
        return name
