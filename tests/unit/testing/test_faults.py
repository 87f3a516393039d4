"""Injected faults: each does what it says, and only where the service could."""

from __future__ import annotations

import random
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError
from fairbox.testing import Fault, FaultyDynamoDB, MemoryDynamoDB


def make() -> MemoryDynamoDB:
    client = MemoryDynamoDB()
    client.create_table(
        TableName="table",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
    )
    return client


def item(pk: str = "a") -> dict[str, Any]:
    return {"pk": {"S": pk}}


@pytest.mark.parametrize(
    "fault", [Fault.THROTTLED, Fault.THROTTLING, Fault.REQUEST_LIMIT, Fault.INTERNAL_ERROR]
)
def test_an_error_answer_has_its_code_and_nothing_is_written(fault: Fault) -> None:
    faulty = FaultyDynamoDB(make(), random.Random(1))
    faulty.next("put_item", fault)
    with pytest.raises(ClientError) as caught:
        faulty.put_item(TableName="table", Item=item())
    assert caught.value.response["Error"]["Code"] == fault.value
    assert faulty.scan(TableName="table")["Count"] == 0
    faulty.put_item(TableName="table", Item=item())
    assert faulty.scan(TableName="table")["Count"] == 1


def test_an_answer_may_be_lost_after_the_write_or_the_request_before_it() -> None:
    faulty = FaultyDynamoDB(make(), random.Random(1))
    faulty.next("put_item", Fault.APPLIED_THEN_TIMEOUT, None, Fault.TIMEOUT_UNAPPLIED)
    with pytest.raises(ReadTimeoutError):
        faulty.put_item(TableName="table", Item=item("applied"))
    faulty.put_item(TableName="table", Item=item("plain"))
    with pytest.raises(ConnectTimeoutError):
        faulty.put_item(TableName="table", Item=item("lost"))
    found = {i["pk"]["S"] for i in faulty.scan(TableName="table")["Items"]}
    assert found == {"applied", "plain"}
    assert faulty.injected == {
        ("put_item", Fault.APPLIED_THEN_TIMEOUT): 1,
        ("put_item", Fault.TIMEOUT_UNAPPLIED): 1,
    }


def test_unprocessed_writes_are_those_that_were_not_passed_on() -> None:
    faulty = FaultyDynamoDB(make(), random.Random(3))
    faulty.next("batch_write_item", Fault.UNPROCESSED)
    entries = [{"PutRequest": {"Item": item(str(n))}} for n in range(25)]
    answer = faulty.batch_write_item(RequestItems={"table": entries})
    left = {e["PutRequest"]["Item"]["pk"]["S"] for e in answer["UnprocessedItems"]["table"]}
    written = {i["pk"]["S"] for i in faulty.scan(TableName="table")["Items"]}
    assert left
    assert written
    assert left | written == {str(n) for n in range(25)}
    assert not left & written


def test_unprocessed_keys_keep_the_settings_of_their_table() -> None:
    faulty = FaultyDynamoDB(make(), random.Random(3))
    for n in range(10):
        faulty.put_item(TableName="table", Item=item(str(n)))
    faulty.next("batch_get_item", Fault.UNPROCESSED)
    keys = [item(str(n)) for n in range(10)]
    answer = faulty.batch_get_item(RequestItems={"table": {"Keys": keys, "ConsistentRead": True}})
    left = answer["UnprocessedKeys"]["table"]
    assert left["ConsistentRead"] is True
    rest = faulty.batch_get_item(RequestItems={"table": left})
    found = answer["Responses"]["table"] + rest["Responses"]["table"]
    assert sorted(i["pk"]["S"] for i in found) == [str(n) for n in range(10)]


def test_a_single_entry_is_throttled_as_a_whole() -> None:
    faulty = FaultyDynamoDB(make(), random.Random(3))
    faulty.next("batch_write_item", Fault.UNPROCESSED)
    with pytest.raises(ClientError) as caught:
        faulty.batch_write_item(RequestItems={"table": [{"PutRequest": {"Item": item()}}]})
    assert caught.value.response["Error"]["Code"] == "ProvisionedThroughputExceededException"


def test_a_conflict_cancels_a_transaction_and_names_one_action() -> None:
    faulty = FaultyDynamoDB(make(), random.Random(1))
    faulty.next("transact_write_items", Fault.CONFLICT)
    actions = [{"Put": {"TableName": "table", "Item": item(str(n))}} for n in range(3)]
    with pytest.raises(ClientError) as caught:
        faulty.transact_write_items(TransactItems=actions)
    response: Any = caught.value.response
    assert response["Error"]["Code"] == "TransactionCanceledException"
    codes = [reason["Code"] for reason in response["CancellationReasons"]]
    assert sorted(codes) == ["None", "None", "TransactionConflict"]
    assert faulty.scan(TableName="table")["Count"] == 0


def test_random_faults_follow_the_seed_and_the_rate() -> None:
    def run(seed: int) -> list[bool]:
        faulty = FaultyDynamoDB(
            make(), random.Random(seed), {Fault.THROTTLED: 0.2, Fault.UNPROCESSED: 0.1}
        )
        struck = []
        for _ in range(1000):
            try:
                faulty.put_item(TableName="table", Item=item())
            except ClientError:
                struck.append(True)
            else:
                struck.append(False)
        assert faulty.injected["put_item", Fault.THROTTLED] == sum(struck)
        assert faulty.calls["put_item"] == 1000
        return struck

    first = run(1)
    assert first == run(1)
    assert first != run(2)
    assert 150 < sum(first) < 250


def test_operations_that_are_not_named_are_left_alone() -> None:
    faulty = FaultyDynamoDB(
        make(), random.Random(1), {Fault.THROTTLED: 1.0}, operations=frozenset({"get_item"})
    )
    faulty.put_item(TableName="table", Item=item())
    with pytest.raises(ClientError):
        faulty.get_item(TableName="table", Key=item())


def test_a_paginator_meets_faults_too() -> None:
    faulty = FaultyDynamoDB(make(), random.Random(1))
    faulty.next("scan", Fault.THROTTLED)
    with pytest.raises(ClientError):
        list(faulty.get_paginator("scan").paginate(TableName="table"))
    with pytest.raises(ValueError, match="no paginator"):
        faulty.get_paginator("list_tables")


def test_scripts_and_rates_that_make_no_sense_are_refused() -> None:
    faulty = FaultyDynamoDB(make(), random.Random(1))
    with pytest.raises(ValueError, match="not one of"):
        faulty.next("describe_table", Fault.THROTTLED)
    with pytest.raises(ValueError, match="never answers"):
        faulty.next("put_item", Fault.UNPROCESSED)
    with pytest.raises(ValueError, match="at most 1"):
        FaultyDynamoDB(make(), random.Random(1), {Fault.THROTTLED: 0.6, Fault.THROTTLING: 0.6})
    with pytest.raises(ValueError, match="unknown"):
        FaultyDynamoDB(make(), random.Random(1), operations=frozenset({"nothing"}))
