"""The tracker of source 004: one row a group, and all rows of a batch read with every ack.

Its documented behaviour, on DynamoDB: an ack reads the group's bitfield, clears bits, writes it
back, and then reads the bitfields of all groups of the batch and counts their bits, to learn
whether the batch is finished. Where the source locks the row (`FOR UPDATE`), this writes on the
row's version. The batch's own row lies beside its groups, so that one query brings both, which is
in its favour. Group sizes are the caller's: the source's are near 8,000.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TABLE: Final = "batch_groups"
NAME: Final = "source 004's design"
_HEAD: Final = "!"
_CONFLICT: Final = "ConditionalCheckFailedException"


def definition() -> dict[str, Any]:
    """Return the arguments of `create_table`."""
    return {
        "TableName": TABLE,
        "KeySchema": [
            {"AttributeName": "batch", "KeyType": "HASH"},
            {"AttributeName": "group", "KeyType": "RANGE"},
        ],
        "AttributeDefinitions": [
            {"AttributeName": "batch", "AttributeType": "S"},
            {"AttributeName": "group", "AttributeType": "S"},
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }


class SeedBatches:
    """Batches as source 004 tracks them.

    Args:
        dynamodb: boto3's DynamoDB client, or one that has its methods.
    """

    def __init__(self, dynamodb: Any) -> None:
        self._client = dynamodb

    def open(self, batch: str) -> None:
        """Write the batch's own row."""
        row = {"batch": {"S": batch}, "group": {"S": _HEAD}, "sealed": {"BOOL": False}}
        self._client.put_item(TableName=TABLE, Item=row)

    def add(self, batch: str, groups: int, size: int) -> None:
        """Write a row for each group, 25 a call."""
        rows = [
            {
                "batch": {"S": batch},
                "group": {"S": str(group)},
                "bits": {"B": ((1 << size) - 1).to_bytes((size + 7) // 8, "little")},
                "version": {"N": "1"},
            }
            for group in range(groups)
        ]
        for start in range(0, groups, 25):
            puts = [{"PutRequest": {"Item": row}} for row in rows[start : start + 25]]
            while puts:
                answer = self._client.batch_write_item(RequestItems={TABLE: puts})
                puts = answer.get("UnprocessedItems", {}).get(TABLE, [])

    def seal(self, batch: str) -> bool:
        """Seal the batch; return whether nothing is pending."""
        row = {"batch": {"S": batch}, "group": {"S": _HEAD}, "sealed": {"BOOL": True}}
        self._client.put_item(TableName=TABLE, Item=row)
        return self.finished(batch)

    def ack(self, batch: str, group: int, indexes: Iterable[int]) -> bool:
        """Clear bits of a group; return whether the batch is sealed and has none left."""
        hit = sum(1 << index for index in set(indexes))
        while not self._cleared(batch, group, hit):
            pass
        return self.finished(batch)

    def _cleared(self, batch: str, group: int, hit: int) -> bool:
        key = {"batch": {"S": batch}, "group": {"S": str(group)}}
        row = self._client.get_item(TableName=TABLE, Key=key, ConsistentRead=True)["Item"]
        raw, version = row["bits"]["B"], row["version"]["N"]
        field = int.from_bytes(raw, "little") & ~hit
        new = row | {
            "bits": {"B": field.to_bytes(len(raw), "little")},
            "version": {"N": str(int(version) + 1)},
        }
        try:
            self._client.put_item(
                TableName=TABLE,
                Item=new,
                ConditionExpression="#v = :v",
                ExpressionAttributeNames={"#v": "version"},
                ExpressionAttributeValues={":v": {"N": version}},
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != _CONFLICT:
                raise
            return False
        return True

    def finished(self, batch: str) -> bool:
        """Read all rows of the batch; return whether it is sealed and no bit is left."""
        sealed, pending = False, 0
        for row in self._rows(batch):
            if row["group"]["S"] == _HEAD:
                sealed = row["sealed"]["BOOL"]
            else:
                pending += int.from_bytes(row["bits"]["B"], "little").bit_count()
        return sealed and not pending

    def _rows(self, batch: str) -> Iterator[dict[str, Any]]:
        request: dict[str, Any] = {
            "TableName": TABLE,
            "ConsistentRead": True,
            "KeyConditionExpression": "#b = :b",
            "ExpressionAttributeNames": {"#b": "batch"},
            "ExpressionAttributeValues": {":b": {"S": batch}},
        }
        while True:
            page = self._client.query(**request)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]
