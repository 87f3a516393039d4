"""Features of the in-memory engine alone: its clock, its streams, its index lag, its isolation."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import pytest
from botocore.exceptions import ClientError
from fairbox.testing import ManualClock, MemoryDynamoDB

START = 1_700_000_000.75


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


def make(clock: ManualClock, *, view: str = "NEW_AND_OLD_IMAGES", lag: float = 0) -> MemoryDynamoDB:
    client = MemoryDynamoDB(clock, index_lag=lag)
    client.create_table(
        TableName="table",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "q", "AttributeType": "S"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "by_q",
                "KeySchema": [{"AttributeName": "q", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": view},
    )
    return client


def test_a_record_is_what_lambda_hands_to_a_function(clock: ManualClock) -> None:
    client = make(clock)
    nested = {"L": [{"B": b"\x01"}, {"BS": [b"\x02"]}, {"M": {"x": {"N": "1"}}}]}
    client.put_item(TableName="table", Item={"pk": {"S": "a"}, "b": {"B": b"\xff"}, "l": nested})
    (record,) = client.stream("table").take()
    assert json.loads(json.dumps(record)) == record
    data = record["dynamodb"]
    assert data["ApproximateCreationDateTime"] == 1_700_000_000
    assert data["NewImage"]["b"] == {"B": "/w=="}
    assert data["NewImage"]["l"] == {
        "L": [{"B": "AQ=="}, {"BS": ["Ag=="]}, {"M": {"x": {"N": "1"}}}]
    }
    assert record["eventSource"] == "aws:dynamodb"
    assert record["eventSourceARN"].startswith("arn:aws:dynamodb:us-east-1:")
    assert len(record["eventID"]) == 32
    assert "userIdentity" not in record


def test_records_are_taken_behind_a_sequence_number_and_trimmed_up_to_one(
    clock: ManualClock,
) -> None:
    client = make(clock)
    for n in range(5):
        client.put_item(TableName="table", Item={"pk": {"S": str(n)}})
    stream = client.stream("table")
    numbers = [record["dynamodb"]["SequenceNumber"] for record in stream]
    assert numbers == sorted(numbers)
    taken = stream.take(numbers[1], limit=2)
    assert [record["dynamodb"]["SequenceNumber"] for record in taken] == numbers[2:4]
    assert stream.trim(numbers[2]) == 3
    assert [record["dynamodb"]["SequenceNumber"] for record in stream.take()] == numbers[3:]
    assert len(stream) == 2


@pytest.mark.parametrize(
    ("view", "images"),
    [
        ("NEW_AND_OLD_IMAGES", {"NewImage", "OldImage"}),
        ("NEW_IMAGE", {"NewImage"}),
        ("OLD_IMAGE", {"OldImage"}),
        ("KEYS_ONLY", set()),
    ],
)
def test_a_view_shows_the_images_that_it_names(
    clock: ManualClock, view: str, images: set[str]
) -> None:
    client = make(clock, view=view)
    client.put_item(TableName="table", Item={"pk": {"S": "a"}})
    client.put_item(TableName="table", Item={"pk": {"S": "a"}, "v": {"S": "1"}})
    data = client.stream("table")[1]["dynamodb"]
    assert {name for name in data if name.endswith("Image")} == images


def test_expiry_deletes_what_is_over_and_says_who_did_it(clock: ManualClock) -> None:
    client = make(clock)
    client.update_time_to_live(
        TableName="table", TimeToLiveSpecification={"Enabled": True, "AttributeName": "x"}
    )
    now = int(START)
    for pk, expiry in {"over": now - 1, "later": now + 60}.items():
        client.put_item(TableName="table", Item={"pk": {"S": pk}, "x": {"N": str(expiry)}})
    client.put_item(TableName="table", Item={"pk": {"S": "never"}})
    assert client.expire("table") == 1
    assert {item["pk"]["S"] for item in client.items("table")} == {"later", "never"}
    record = client.stream("table").take()[-1]
    assert record["userIdentity"]["principalId"] == "dynamodb.amazonaws.com"
    assert record["eventName"] == "REMOVE"
    clock.advance(120)
    assert client.expire("table") == 1


def test_a_token_is_forgotten_after_ten_minutes(clock: ManualClock) -> None:
    client = make(clock)
    request: dict[str, Any] = {
        "TransactItems": [
            {
                "Update": {
                    "TableName": "table",
                    "Key": {"pk": {"S": "a"}},
                    "UpdateExpression": "ADD n :one",
                    "ExpressionAttributeValues": {":one": {"N": "1"}},
                }
            }
        ],
        "ClientRequestToken": "token",
        "ReturnConsumedCapacity": "TOTAL",
    }
    first = client.transact_write_items(**request)["ConsumedCapacity"][0]
    assert first["WriteCapacityUnits"] == 2
    clock.advance(599)
    repeated = client.transact_write_items(**request)["ConsumedCapacity"][0]
    assert repeated["ReadCapacityUnits"] == 2
    assert client.items("table")[0]["n"] == {"N": "1"}
    clock.advance(2)
    client.transact_write_items(**request)
    assert client.items("table")[0]["n"] == {"N": "2"}


def test_an_index_trails_its_table_by_the_lag(clock: ManualClock) -> None:
    client = make(clock, lag=1.5)

    def found() -> int:
        return client.query(  # type: ignore[no-any-return]  # a dict of Any
            TableName="table",
            IndexName="by_q",
            KeyConditionExpression="q = :q",
            ExpressionAttributeValues={":q": {"S": "0"}},
        )["Count"]

    client.put_item(TableName="table", Item={"pk": {"S": "a"}, "q": {"S": "0"}})
    clock.advance(1.4)
    assert found() == 0
    clock.advance(0.2)
    assert found() == 1
    client.delete_item(TableName="table", Key={"pk": {"S": "a"}})
    assert found() == 1
    clock.advance(1.5)
    assert found() == 0


def test_callers_never_share_state_with_the_tables(clock: ManualClock) -> None:
    client = make(clock)
    mine: dict[str, Any] = {"pk": {"S": "a"}, "m": {"M": {"l": {"L": [{"S": "x"}]}}}}
    client.put_item(TableName="table", Item=mine)
    mine["m"]["M"]["l"]["L"].append({"S": "y"})
    got = client.get_item(TableName="table", Key={"pk": {"S": "a"}})["Item"]
    got["m"]["M"]["l"]["L"].clear()
    old = client.update_item(
        TableName="table",
        Key={"pk": {"S": "a"}},
        UpdateExpression="SET m.l[0] = :v",
        ExpressionAttributeValues={":v": {"S": "z"}},
        ReturnValues="ALL_OLD",
    )["Attributes"]
    assert old["m"] == {"M": {"l": {"L": [{"S": "x"}]}}}
    images = client.stream("table")[1]["dynamodb"]
    assert images["OldImage"]["m"] == {"M": {"l": {"L": [{"S": "x"}]}}}
    assert images["NewImage"]["m"] == {"M": {"l": {"L": [{"S": "z"}]}}}


def test_an_update_in_a_transaction_that_cannot_be_is_a_validation_error(
    clock: ManualClock,
) -> None:
    client = make(clock)
    update = {
        "TableName": "table",
        "Key": {"pk": {"S": "a"}},
        "UpdateExpression": "SET x = gone",
    }
    with pytest.raises(ClientError) as caught:
        client.transact_write_items(TransactItems=[{"Update": update}])
    response: Any = caught.value.response
    assert [reason["Code"] for reason in response["CancellationReasons"]] == ["ValidationError"]


def test_an_update_with_an_index_key_of_the_wrong_type_is_refused(clock: ManualClock) -> None:
    client = make(clock)
    with pytest.raises(ClientError, match="Type mismatch for Index Key q"):
        client.update_item(
            TableName="table",
            Key={"pk": {"S": "a"}},
            UpdateExpression="SET q = :v",
            ExpressionAttributeValues={":v": {"N": "1"}},
        )
    assert client.items("table") == []


def test_threads_that_are_switched_at_every_step_lose_no_update(clock: ManualClock) -> None:
    client = make(clock)

    def add() -> None:
        for _ in range(300):
            client.update_item(
                TableName="table",
                Key={"pk": {"S": "a"}},
                UpdateExpression="ADD n :one",
                ExpressionAttributeValues={":one": {"N": "1"}},
            )

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert client.items("table")[0]["n"] == {"N": "1200"}


def test_a_clock_moves_only_when_told(clock: ManualClock) -> None:
    assert clock.now() == START
    clock.sleep(1.25)
    assert clock.now() == START + 1.25
    clock.set(5)
    assert clock.advance(1) == 6.0
    with pytest.raises(ValueError, match="negative"):
        clock.advance(-1)


def test_tables_that_make_no_sense_are_refused(clock: ManualClock) -> None:
    client = make(clock)
    with pytest.raises(ClientError, match="does not exactly match"):
        client.create_table(
            TableName="other",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "unused", "AttributeType": "S"},
            ],
        )
    with pytest.raises(KeyError, match="no stream"):
        client.stream("other")
