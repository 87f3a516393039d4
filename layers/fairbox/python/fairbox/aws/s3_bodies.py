"""Offloaded bodies in S3: the claim check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.errors import Unavailable
from fairbox.model.messages import MAX_BODY_BYTES
from fairbox.sdk.service_errors import service_error

if TYPE_CHECKING:
    from collections.abc import Callable


class S3Bodies:
    """Bodies as objects `bodies/{topic}/{id}-{hash}` of one bucket.

    Objects live until their message is delivered: then they are tagged `fairbox=delivered`, and
    the bucket's life cycle expires objects with this tag.
    """

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self.bucket = bucket

    def put(self, key: str, body: bytes, content_type: str) -> None:
        """Store the body under the key; again is the same.

        Raises:
            NotAllowed, Unavailable: S3 did not take it.
        """
        self._call("put_object", Bucket=self.bucket, Key=key, Body=body, ContentType=content_type)

    def get(self, bucket: str, key: str) -> bytes:
        """Return the body.

        Raises:
            NotAllowed, Unavailable: it could not be read, or is larger than a message's; then the
                rest of it is not read: who may put objects must not fill a function's memory.
        """
        answer = self._call("get_object", Bucket=bucket, Key=key)
        try:
            body = bytes(answer["Body"].read(MAX_BODY_BYTES + 1))
        except BotoCoreError as error:
            raise service_error("s3", error, "get_object") from error
        if len(body) > MAX_BODY_BYTES:
            raise Unavailable("get_object", f"over {MAX_BODY_BYTES} bytes")
        return body

    def expire(self, bucket: str, key: str) -> None:
        """Tag the body for deletion by the bucket's life cycle; a missing body is ignored.

        Raises:
            NotAllowed, Unavailable: S3 did not do it.
        """
        # a tag, not a delete: others may still read the body, such as a receiver with its address
        tags = {"TagSet": [{"Key": "fairbox", "Value": "delivered"}]}
        try:
            self._call("put_object_tagging", Bucket=bucket, Key=key, Tagging=tags)
        except Unavailable as error:
            if "NoSuchKey" not in error.detail:
                raise

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        call: Callable[..., dict[str, Any]] = getattr(self._client, operation)
        try:
            return call(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise service_error("s3", error, operation) from error
