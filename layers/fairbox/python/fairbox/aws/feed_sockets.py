"""The sockets of feeds' clients, which API Gateway holds."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.errors import Unavailable

Posted = Literal["taken", "gone", "failed"]
"""The fate of a frame: the socket took it; there is no such socket; it may not have taken it."""
ANSWER_SECONDS = 0.5
"""Time for which a post waits for API Gateway's answer."""


class FeedSockets:
    """Sends to the sockets of one WebSocket API.

    Args:
        client: boto3's client `apigatewaymanagementapi` of the API's stage.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def post(self, connection_id: str, frame: bytes) -> Posted:
        """Send a frame of up to 128 KB; API Gateway meters each 32 KB.

        Raises:
            Unavailable: this function may not post to any socket.
        """
        try:
            self._client.post_to_connection(ConnectionId=connection_id, Data=frame)
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if status == 403:
                raise Unavailable("post_to_connection", str(error)) from error
            return "gone" if status == 410 else "failed"
        except BotoCoreError:
            return "failed"
        return "taken"

    def close(self, connection_id: str) -> None:
        """Close a socket, if API Gateway is there to do so."""
        with suppress(ClientError, BotoCoreError):
            self._client.delete_connection(ConnectionId=connection_id)
