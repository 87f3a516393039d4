"""A double of boto3's client `apigatewaymanagementapi`: the sockets of a WebSocket API."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

TIMEOUT = 0
"""In place of a status: no answer."""


@dataclass
class FakeSockets:
    """Keeps the frames of each connection.

    Attributes:
        frames: that were taken, parsed, by connection id.
        faults: statuses of the next posts to a connection; with `"*"`, of all to any.
        closed: ids whose socket is there no more.
    """

    frames: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    faults: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    closed: set[str] = field(default_factory=set)

    def post_to_connection(self, *, ConnectionId: str, Data: bytes) -> dict[str, Any]:  # noqa: N803 - boto3's names
        if ConnectionId in self.closed:
            raise _error(410)
        faults = self.faults[ConnectionId]
        if faults or self.faults["*"]:
            raise _error(faults.pop(0) if faults else self.faults["*"][0])
        self.frames[ConnectionId].append(json.loads(Data))
        return {}

    def delete_connection(self, *, ConnectionId: str) -> dict[str, Any]:  # noqa: N803
        self.closed.add(ConnectionId)
        return {}


def _error(status: int) -> Exception:
    if status == TIMEOUT:
        return ReadTimeoutError(endpoint_url="sockets")
    answer: Any = {
        "Error": {"Code": str(status), "Message": ""},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(answer, "PostToConnection")
