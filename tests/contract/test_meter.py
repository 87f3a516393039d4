"""The cost meter: the same figures around both engines, whatever they report themselves."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from fairbox.testing import CostMeter

from tests.contract.calls import key

BIG = {"b": {"B": b"x" * 1500}}
ENTRY = {"q": {"S": "0"}, "l": {"N": "1"}}


@pytest.fixture
def meter(client: Any) -> CostMeter:
    return CostMeter(client)


def sums(meter: CostMeter) -> dict[tuple[str, str], tuple[float, float]]:
    """Write and read units by operation and index, without what cost nothing."""
    return {
        (operation, index): (cost.wru, cost.rru)
        for (operation, _table, index), cost in meter.reading().costs.items()
        if cost.wru or cost.rru
    }


def test_plain_calls_cost_what_the_engine_reports(meter: CostMeter, table: str) -> None:
    meter.put_item(TableName=table, Item={**key(), **BIG, **ENTRY})
    meter.update_item(TableName=table, Key=key(), UpdateExpression="REMOVE l")
    meter.batch_write_item(RequestItems={table: [{"DeleteRequest": {"Key": key()}}]})
    assert sums(meter) == {
        ("put_item", ""): (2, 0),
        ("put_item", "due"): (1, 0),
        ("put_item", "by_q"): (1, 0),
        ("update_item", ""): (2, 0),
        ("update_item", "due"): (1, 0),
        ("batch_write_item", ""): (2, 0),
        ("batch_write_item", "by_q"): (1, 0),
    }
    assert meter.reading().calls == {"put_item": 1, "update_item": 1, "batch_write_item": 1}


def test_an_insert_costs_what_a_put_costs(meter: CostMeter, table: str) -> None:
    item = {**key(), **BIG}
    fields = ", ".join(f"'{name}': ?" for name in item)
    text = f'INSERT INTO "{table}" VALUE {{{fields}}}'
    entry = {"Statement": text, "Parameters": list(item.values())}
    for _ in range(2):  # the second is refused, and costs a write of what lies there
        meter.batch_execute_statement(Statements=[entry])
    assert sums(meter) == {("batch_execute_statement", ""): (4, 0)}


def test_a_transaction_costs_twice_on_the_table_and_once_on_an_index(
    meter: CostMeter, table: str
) -> None:
    puts = [{"Put": {"TableName": table, "Item": key("a", str(n))}} for n in range(98)]
    big = {"Put": {"TableName": table, "Item": {**key("b"), **BIG, **ENTRY}}}
    meter.transact_write_items(TransactItems=[*puts, big])
    assert sums(meter) == {
        ("transact_write_items", ""): (200, 0),
        ("transact_write_items", "due"): (1, 0),
        ("transact_write_items", "by_q"): (1, 0),
    }
    meter.reset()
    meter.transact_write_items(
        TransactItems=[
            {"Delete": {"TableName": table, "Key": key("b")}},
            {
                "Update": {
                    "TableName": table,
                    "Key": key("a", "1"),
                    "UpdateExpression": "SET b = :b",
                    "ExpressionAttributeValues": {":b": BIG["b"]},
                }
            },
        ]
    )
    assert sums(meter) == {
        ("transact_write_items", ""): (8, 0),
        ("transact_write_items", "due"): (1, 0),
        ("transact_write_items", "by_q"): (1, 0),
    }


def test_a_read_transaction_costs_twice(meter: CostMeter, table: str) -> None:
    gets = [{"Get": {"TableName": table, "Key": key("a", str(n))}} for n in range(3)]
    meter.transact_get_items(TransactItems=gets)
    assert sums(meter) == {("transact_get_items", ""): (0, 6)}


def test_what_finds_nothing_costs_the_smallest_read(meter: CostMeter, table: str) -> None:
    query = {
        "TableName": table,
        "KeyConditionExpression": "pk = :p",
        "ExpressionAttributeValues": {":p": {"S": "a"}},
    }
    meter.query(**query)
    assert sums(meter) == {("query", ""): (0, 0.5)}
    meter.query(**query, ConsistentRead=True)
    assert sums(meter) == {("query", ""): (0, 1.5)}
    meter.query(
        TableName=table,
        IndexName="due",
        KeyConditionExpression="q = :p",
        ExpressionAttributeValues={":p": {"S": "a"}},
    )
    meter.get_item(TableName=table, Key=key())
    meter.scan(TableName=table)
    assert sums(meter) == {
        ("query", ""): (0, 1.5),
        ("query", "due"): (0, 0.5),
        ("get_item", ""): (0, 0.5),
        ("scan", ""): (0, 0.5),
    }


def test_a_key_of_a_batch_without_an_item_costs_the_smallest_read(
    meter: CostMeter, table: str
) -> None:
    meter.put_item(TableName=table, Item={**key("a"), **BIG})
    for consistent, units in ((True, 3.0), (False, 1.5)):
        meter.reset()
        keys = [key("a"), key("b"), key("c")]
        meter.batch_get_item(RequestItems={table: {"Keys": keys, "ConsistentRead": consistent}})
        assert sums(meter) == {("batch_get_item", ""): (0, units)}


def test_a_failed_condition_costs_a_write_of_the_old_item(meter: CostMeter, table: str) -> None:
    meter.put_item(TableName=table, Item={**key(), **BIG})
    meter.reset()
    request = {
        "TableName": table,
        "Item": key(),
        "ConditionExpression": "attribute_not_exists(pk)",
    }
    with pytest.raises(ClientError) as caught:
        meter.put_item(**request)
    assert "Item" not in caught.value.response
    assert sums(meter) == {("put_item", ""): (2, 0)}
    with pytest.raises(ClientError):
        meter.transact_write_items(
            TransactItems=[
                {"Put": request},
                {"Put": {"TableName": table, "Item": key("z")}},
            ]
        )
    assert sums(meter) == {("put_item", ""): (2, 0), ("transact_write_items", ""): (6, 0)}


def test_answers_look_as_if_the_meter_were_not_there(meter: CostMeter, table: str) -> None:
    assert "ConsumedCapacity" not in meter.put_item(TableName=table, Item=key())
    told = meter.get_item(TableName=table, Key=key(), ReturnConsumedCapacity="TOTAL")
    assert told["ConsumedCapacity"]["CapacityUnits"] == 0.5
    assert meter.describe_table(TableName=table)["Table"]["TableName"] == table
    assert meter.reading().wru == 1
    assert sum(cost.bytes for cost in meter.reading().costs.values()) == 12 + 6


def test_pages_of_a_paginator_are_metered_each(meter: CostMeter, table: str) -> None:
    for n in range(3):
        meter.put_item(TableName=table, Item=key("a", str(n)))
    request = {
        "TableName": table,
        "KeyConditionExpression": "pk = :p",
        "ExpressionAttributeValues": {":p": {"S": "a"}},
        "PaginationConfig": {"PageSize": 1},
    }
    assert sum(page["Count"] for page in meter.get_paginator("query").paginate(**request)) == 3
    assert meter.reading().calls["query"] == 4
    assert sums(meter)["query", ""] == (0, 2)
