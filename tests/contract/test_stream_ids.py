"""Records of the engine's stream keep their ids, on which the archive's event ids stand."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from fairbox.tables.definitions import table_definitions


def records(streams: Any, arn: str) -> list[tuple[str, str]]:
    """Return id and sequence number of every record, read from the beginning."""
    found = []
    for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        iterator = streams.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        page = streams.get_records(ShardIterator=iterator)["Records"]
        found += [(record["eventID"], record["dynamodb"]["SequenceNumber"]) for record in page]
    return found


@pytest.mark.engine
def test_a_record_that_is_read_again_has_the_same_id(dynamodb_local_endpoint: str) -> None:
    session = boto3.Session("local", "local", region_name="us-east-1")
    dynamodb = session.client("dynamodb", endpoint_url=dynamodb_local_endpoint)
    streams = session.client("dynamodbstreams", endpoint_url=dynamodb_local_endpoint)
    definition = table_definitions(outbox="stream-ids", deliveries="unused")[0]
    dynamodb.create_table(**definition)
    for n in range(5):
        key = {"pk": {"S": "ready#t#0#0"}, "sk": {"S": str(n)}}
        dynamodb.put_item(TableName="stream-ids", Item=key)
        dynamodb.delete_item(TableName="stream-ids", Key=key)
    arn = dynamodb.describe_table(TableName="stream-ids")["Table"]["LatestStreamArn"]
    first = records(streams, arn)
    assert len({event_id for event_id, _ in first}) == 10
    assert records(streams, arn) == first
