"""Sending to SQS queues, ten a call, until every message is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.errors import Unavailable
from fairbox.model.chunks import chunks
from fairbox.model.clock import NO_TIME, out_of_time
from fairbox.sdk.service_errors import service_error

if TYPE_CHECKING:
    from collections.abc import Sequence

_PER_CALL: Final = 10
_CALL_BYTES: Final = 1_000_000
_TRIES: Final = 3


def send_all(client: Any, url: str, entries: Sequence[dict[str, Any]]) -> None:
    """Send messages, up to ten or 1 MB a call; refused messages are sent again.

    Args:
        client: boto3's SQS client.
        url: the queue.
        entries: as of `SendMessageBatch`, without `Id`.

    Raises:
        NotAllowed, Unavailable: some were refused to the last try; those before them are in the
            queue.
    """
    for chunk in chunks(entries, _size, items_most=_PER_CALL, bytes_most=_CALL_BYTES):
        waiting = [{"Id": str(n), **entry} for n, entry in enumerate(chunk)]
        failure = ""
        for _ in range(_TRIES):
            if out_of_time():
                # the caller learns of it before the function is cut off
                failure = failure or NO_TIME
                break

            try:
                answer = client.send_message_batch(QueueUrl=url, Entries=waiting)
            except (ClientError, BotoCoreError) as error:
                failed = service_error("sqs", error, "send_message_batch")
                if failed.retry == "never":
                    raise failed from error
                failure = str(error)
                continue

            refused = {entry["Id"] for entry in answer.get("Failed", [])}
            failure = str(answer.get("Failed", ""))
            waiting = [entry for entry in waiting if entry["Id"] in refused]
            if not waiting:
                break

        if waiting:
            raise Unavailable("send_message_batch", failure)


def _size(entry: dict[str, Any]) -> int:
    return len(entry["MessageBody"].encode())


class SqsAcks:
    """The ack queue: implements `fairbox.dispatch.ports.AckQueue`.

    Args:
        client: boto3's SQS client.
        queue_url: a standard queue; order and repetition of acks do not matter.
    """

    def __init__(self, client: Any, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def put(self, bodies: Sequence[str]) -> None:
        """Put messages of acks into the queue, ten of 64 KB a call.

        Raises:
            Unavailable: some could not be put there; all may be put again.
        """
        send_all(self._client, self._queue_url, [{"MessageBody": body} for body in bodies])
