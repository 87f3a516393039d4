"""The four-index pattern, a usual outbox: an item a message, four indexes, an update a message.

The table and the calls are those of the decision record "Optimise reads/writes from/to Dynamo
outbox" before its batch operations: indexes `Outstanding`, `OutstandingAllTopics`, `Delivered`
and `DeliveredAllTopics` over every message, each message read by itself, published by itself and
marked with an update expression. The reads are eventually consistent, which is in its favour.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fairbox import Message
    from fairbox.model.clock import Clock

TABLE: Final = "brighter_outbox"
NAME: Final = "the four-index pattern"
PAGE: Final = 100
_INDEXES: Final = (
    ("Outstanding", "TopicShard", "OutstandingCreatedTime"),
    ("OutstandingAllTopics", "OutstandingCreatedTime", "MessageId"),
    ("Delivered", "TopicShard", "DeliveryTime"),
    ("DeliveredAllTopics", "DeliveryTime", "MessageId"),
)
_TYPES: Final = {
    "MessageId": "S",
    "TopicShard": "S",
    "OutstandingCreatedTime": "N",
    "DeliveryTime": "N",
}


def definition() -> dict[str, Any]:
    """Return the arguments of `create_table`."""
    return {
        "TableName": TABLE,
        "KeySchema": [{"AttributeName": "MessageId", "KeyType": "HASH"}],
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name, kind in _TYPES.items()
        ],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": name,
                "KeySchema": [
                    {"AttributeName": hash_key, "KeyType": "HASH"},
                    {"AttributeName": range_key, "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
            for name, hash_key, range_key in _INDEXES
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }


class SeedOutbox:
    """The outbox of four indexes.

    Args:
        dynamodb: boto3's DynamoDB client, or one that has its methods.
        shards: of each topic.
        clock: gives creation and delivery times.
    """

    def __init__(self, dynamodb: Any, *, shards: int, clock: Clock) -> None:
        self._client = dynamodb
        self._shards = shards
        self._clock = clock

    def item(self, message: Message) -> dict[str, Any]:
        """Return a new message's item."""
        now = str(int(self._clock.now() * 1000))
        digest = hashlib.sha256(message.shard_key.encode()).digest()
        shard = int.from_bytes(digest[:4], "little") % self._shards
        return {
            "MessageId": {"S": message.id},
            "Topic": {"S": message.topic},
            "TopicShard": {"S": f"{message.topic}_{shard}"},
            "PartitionKey": {"S": message.partition_key or ""},
            "ContentType": {"S": message.content_type},
            "Body": {"B": message.body},
            "CreatedTime": {"N": now},
            "OutstandingCreatedTime": {"N": now},
        }

    def add(self, message: Message) -> None:
        """Write a message by itself."""
        self._client.put_item(TableName=TABLE, Item=self.item(message))

    def transact(self, items: list[dict[str, Any]], message: Message) -> None:
        """Write a message with the caller's items in one transaction."""
        put = {"Put": {"TableName": TABLE, "Item": self.item(message)}}
        self._client.transact_write_items(TransactItems=[*items, put])

    def outstanding(self, topic: str, shard: int) -> Iterator[str]:
        """Yield a page of ids of a shard, oldest first."""
        answer = self._client.query(
            TableName=TABLE,
            IndexName="Outstanding",
            KeyConditionExpression="TopicShard = :s",
            ExpressionAttributeValues={":s": {"S": f"{topic}_{shard}"}},
            Limit=PAGE,
        )
        for item in answer["Items"]:
            yield item["MessageId"]["S"]

    def dispatch(self, message_id: str, publish: Callable[[bytes], None]) -> None:
        """Read one message, publish it, mark it as delivered."""
        key = {"MessageId": {"S": message_id}}
        item = self._client.get_item(TableName=TABLE, Key=key)["Item"]
        publish(bytes(item["Body"]["B"]))
        self._client.update_item(
            TableName=TABLE,
            Key=key,
            UpdateExpression="SET DeliveryTime = :t REMOVE OutstandingCreatedTime",
            ExpressionAttributeValues={":t": {"N": str(int(self._clock.now() * 1000))}},
        )
