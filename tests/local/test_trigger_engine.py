"""Triggers on a real engine's stream: records, latency of an idle stream, faults in between."""

from __future__ import annotations

import json
import random
import time
import uuid
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.faults.proxy import FaultProxy, Faults
from local.triggers import attach
from tests.local.trigger_fakes import FakeInvoker, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine


def clients_of(endpoint: str) -> dict[str, Any]:
    return {
        name: boto3.client(
            name,
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",
        )
        for name in ("dynamodb", "dynamodbstreams")
    }


@pytest.fixture
def clients(dynamodb_endpoint: str) -> Iterator[dict[str, Any]]:
    made = clients_of(dynamodb_endpoint)
    yield made
    for client in made.values():
        client.close()


@pytest.fixture
def table(clients: dict[str, Any]) -> Iterator[str]:
    name = f"triggers-{uuid.uuid4().hex}"
    clients["dynamodb"].create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
        ],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    yield name
    clients["dynamodb"].delete_table(TableName=name)


def mapping(table: str, function: str, **properties: Any) -> tuple[str, dict[str, Any]]:
    given = {
        "EventSourceArn": table,
        "FunctionName": function,
        "StartingPosition": "TRIM_HORIZON",
    }
    return "AWS::Lambda::EventSourceMapping", given | properties


def run(
    resources: dict[str, tuple[str, dict[str, Any]]], invoker: FakeInvoker, clients: dict[str, Any]
) -> list[Any]:
    triggers = attach(
        resources,
        invoker,
        clients,
        rng=random.Random(1),
        clock=time.time,
        function_names={"relay", "mark"},
    )
    for trigger in triggers:
        trigger.start()
    return list(triggers)


def of(invoker: FakeInvoker, function: str) -> list[dict[str, Any]]:
    return [
        one for name, event in list(invoker.calls) if name == function for one in event["Records"]
    ]


def item(key: str, order: int, **more: Any) -> dict[str, Any]:
    return {"pk": {"S": key}, "sk": {"S": f"{order:04}"}, **more}


def test_two_mappings_get_the_records_of_a_table_as_lambda_writes_them(
    clients: dict[str, Any], table: str
) -> None:
    invoker = FakeInvoker()
    database = clients["dynamodb"]
    database.put_item(TableName=table, Item=item("before", 0))
    pattern = json.dumps({"eventName": ["INSERT"]})
    criteria = {"Filters": [{"Pattern": pattern}]}
    triggers = run(
        {
            "Relay": mapping(table, "relay", FilterCriteria=criteria, StartingPosition="LATEST"),
            "Mark": mapping(table, "mark"),
        },
        invoker,
        clients,
    )
    began = time.time()
    first = item("a", 1, n={"N": "1.50"}, b={"B": b"\x00\xff"})
    database.put_item(TableName=table, Item=first)
    database.put_item(TableName=table, Item=item("a", 1, n={"N": "2"}))
    database.delete_item(TableName=table, Key=item("a", 1))
    wait_for(lambda: len(of(invoker, "mark")) == 4 and of(invoker, "relay"))
    for trigger in triggers:
        trigger.stop()
    (inserted,) = of(invoker, "relay")
    assert inserted["dynamodb"]["NewImage"]["n"] == {"N": "1.5"}
    assert inserted["dynamodb"]["NewImage"]["b"] == {"B": "AP8="}
    assert inserted["awsRegion"] == "us-east-1"
    assert f"table/{table}/stream/" in inserted["eventSourceARN"]
    assert inserted["dynamodb"]["ApproximateCreationDateTime"] >= int(began)
    changes = [one for one in of(invoker, "mark") if one["dynamodb"]["Keys"]["pk"]["S"] == "a"]
    assert [one["eventName"] for one in changes] == ["INSERT", "MODIFY", "REMOVE"]
    assert "NewImage" not in changes[2]["dynamodb"]
    assert changes[2]["dynamodb"]["OldImage"]["n"] == {"N": "2"}
    numbers = [int(one["dynamodb"]["SequenceNumber"]) for one in changes]
    assert numbers == sorted(numbers)


def test_faults_before_the_database_lose_no_record_that_was_written(
    clients: dict[str, Any], table: str, dynamodb_endpoint: str
) -> None:
    invoker = FakeInvoker()
    triggers = run({"Relay": mapping(table, "relay", BatchSize=10)}, invoker, clients)
    proxy = FaultProxy(dynamodb_endpoint, rng=random.Random(2))
    proxy.start()
    proxy.set_faults("BatchWriteItem", Faults(throttled=0.1, unprocessed=0.4, lost=0.1))
    through = clients_of(proxy.endpoint)
    for start in range(0, 200, 25):
        requests = [
            {"PutRequest": {"Item": item(f"p{order % 9}", order)}}
            for order in range(start, start + 25)
        ]
        while requests:
            answer = through["dynamodb"].batch_write_item(RequestItems={table: requests})
            requests = answer["UnprocessedItems"].get(table, [])
    wait_for(lambda: len({one["dynamodb"]["Keys"]["sk"]["S"] for one in invoker.records()}) == 200)
    for trigger in triggers:
        trigger.stop()
    assert proxy.injected["unprocessed", "BatchWriteItem"] > 0
    for client in through.values():
        client.close()
    proxy.stop()
