"""The call pattern of source 001: a message is sent, received and deleted by itself.

Table, index and transitions are those of its README: one item a message, keyed by id; a queueing
index over `queue_type` and `sent_at` with every attribute; sending puts; receiving reads the index
from its oldest message, takes the first that is visible and updates it where its `version` is as
read; deleting is by id. The library's query asks for 250 messages a page. Two more steps are left
out in its favour: a read of the id before each put, and a pause of a second between receives.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.model.clock import Clock

TABLE: Final = "dynamo-mq-table"
NAME: Final = "source 001's pattern"
PAGE: Final = 250
_INDEX: Final = "dynamo-mq-index-queue_type-sent_at"
_QUEUE: Final = "STANDARD"
_VISIBILITY_SECONDS: Final = 60.0
_TYPES: Final = {"id": "S", "queue_type": "S", "sent_at": "S"}


class LostRaceError(Exception):
    """Another consumer was faster: the message's version has changed since it was read."""


@dataclass(frozen=True, slots=True)
class SeedMessage:
    """A received message: its id and its body."""

    id: str
    body: bytes


def definition(table: str = TABLE) -> dict[str, Any]:
    """Return the arguments of `create_table`."""
    return {
        "TableName": table,
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name, kind in _TYPES.items()
        ],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": _INDEX,
                "KeySchema": [
                    {"AttributeName": "queue_type", "KeyType": "HASH"},
                    {"AttributeName": "sent_at", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }


class SeedQueue:
    """The queue of source 001.

    Args:
        dynamodb: boto3's DynamoDB client, or one that has its methods.
        clock: gives the times that messages carry.
        table: the queue's table.
        page: number of messages that a read of the index requests.
    """

    def __init__(
        self, dynamodb: Any, *, clock: Clock, table: str = TABLE, page: int = PAGE
    ) -> None:
        self._client = dynamodb
        self._clock = clock
        self._table = table
        self._page = page

    def send(self, message_id: str, body: bytes) -> None:
        """Put one message."""
        now = self._time()
        item = {
            "id": {"S": message_id},
            "data": {"B": body},
            "receive_count": {"N": "0"},
            "queue_type": {"S": _QUEUE},
            "version": {"N": "1"},
            "created_at": {"S": now},
            "updated_at": {"S": now},
            "sent_at": {"S": now},
        }
        self._client.put_item(TableName=self._table, Item=item)

    def receive(self) -> SeedMessage | None:
        """Hold the oldest visible message for a minute; None: there is none.

        Raises:
            LostRaceError: another consumer took it meanwhile.
        """
        now = self._time()
        for item in self._oldest_first():
            if item.get("invisible_until_at", {"S": ""})["S"] <= now:
                return self._hold(item, now)
        return None

    def _oldest_first(self) -> Iterator[dict[str, Any]]:
        start: dict[str, Any] = {}
        while True:
            answer = self._client.query(
                TableName=self._table,
                IndexName=_INDEX,
                KeyConditionExpression="queue_type = :q",
                ExpressionAttributeValues={":q": {"S": _QUEUE}},
                Limit=self._page,
                **start,
            )
            yield from answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def _hold(self, item: dict[str, Any], now: str) -> SeedMessage:
        try:
            answer = self._client.update_item(
                TableName=self._table,
                Key={"id": item["id"]},
                UpdateExpression="SET updated_at = :now, received_at = :now, "
                "invisible_until_at = :until ADD version :one, receive_count :one",
                ConditionExpression="version = :version",
                ExpressionAttributeValues={
                    ":now": {"S": now},
                    ":until": {"S": self._time(_VISIBILITY_SECONDS)},
                    ":one": {"N": "1"},
                    ":version": item["version"],
                },
                ReturnValues="ALL_NEW",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                raise LostRaceError from error
            raise
        new = answer["Attributes"]
        return SeedMessage(new["id"]["S"], bytes(new["data"]["B"]))

    def delete(self, message_id: str) -> None:
        """Delete one message."""
        self._client.delete_item(TableName=self._table, Key={"id": {"S": message_id}})

    def _time(self, later: float = 0.0) -> str:
        moment = datetime.fromtimestamp(self._clock.now() + later, UTC)
        return moment.isoformat(timespec="microseconds")
