"""Transactions, statements and streams: the same cases against both engines."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.contract.calls import code_of, key, refusal

_tokens = itertools.count()


def put(table: str, sk: str, **more: Any) -> dict[str, Any]:
    return {"Put": {"TableName": table, "Item": {**key("a", sk)}, **more}}


def add_one(table: str, sk: str = "1") -> dict[str, Any]:
    return {
        "Update": {
            "TableName": table,
            "Key": key("a", sk),
            "UpdateExpression": "ADD n :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
    }


def number(client: Any, table: str, sk: str = "1") -> int:
    answer = client.get_item(TableName=table, Key=key("a", sk), ConsistentRead=True)
    return int(answer["Item"]["n"]["N"])


class TestTransactions:
    def test_one_hundred_actions_are_written_together(self, client: Any, table: str) -> None:
        client.transact_write_items(TransactItems=[put(table, f"{n:03d}") for n in range(100)])
        assert client.scan(TableName=table)["Count"] == 100

    def test_101_actions_are_refused(self, client: Any, table: str) -> None:
        items = [put(table, f"{n:03d}") for n in range(101)]
        assert code_of(client.transact_write_items, TransactItems=items) == "ValidationException"
        assert client.scan(TableName=table)["Count"] == 0

    def test_two_actions_on_one_item_are_refused(self, client: Any, table: str) -> None:
        items = [put(table, "1"), add_one(table, "1")]
        assert code_of(client.transact_write_items, TransactItems=items) == "ValidationException"

    def test_more_than_4_mb_are_refused(self, client: Any, table: str) -> None:
        items = [put(table, str(n)) for n in range(11)]
        for action in items:
            action["Put"]["Item"]["b"] = {"B": b"x" * 400_000}
        assert code_of(client.transact_write_items, TransactItems=items) == "ValidationException"
        assert client.scan(TableName=table)["Count"] == 0

    def test_reasons_stand_in_the_order_of_actions_with_the_old_item(
        self, client: Any, table: str
    ) -> None:
        old = {**key("a", "2"), "v": {"S": "old"}}
        client.put_item(TableName=table, Item=old)
        failing = {
            "ConditionExpression": "attribute_not_exists(pk)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        check = {
            "ConditionCheck": {
                "TableName": table,
                "Key": key("a", "3"),
                "ConditionExpression": "attribute_exists(pk)",
            }
        }
        shown = refusal(
            client.transact_write_items,
            TransactItems=[put(table, "1"), put(table, "2", **failing), check],
        )
        assert shown["Error"]["Code"] == "TransactionCanceledException"
        assert shown["Error"]["Message"].endswith(
            "[None, ConditionalCheckFailed, ConditionalCheckFailed]"
        )
        reasons = shown["CancellationReasons"]
        assert [reason["Code"] for reason in reasons] == [
            "None",
            "ConditionalCheckFailed",
            "ConditionalCheckFailed",
        ]
        assert [reason.get("Item") for reason in reasons] == [None, old, None]
        assert client.scan(TableName=table)["Count"] == 1

    def test_all_four_kinds_of_action_work_together(self, client: Any, table: str) -> None:
        for sk in ("del", "check"):
            client.put_item(TableName=table, Item=key("a", sk))
        condition = {"ConditionExpression": "attribute_exists(pk)"}
        client.transact_write_items(
            TransactItems=[
                put(table, "put"),
                add_one(table, "up"),
                {"Delete": {"TableName": table, "Key": key("a", "del"), **condition}},
                {"ConditionCheck": {"TableName": table, "Key": key("a", "check"), **condition}},
            ]
        )
        left = {item["sk"]["S"] for item in client.scan(TableName=table)["Items"]}
        assert left == {"put", "up", "check"}

    def test_an_update_that_cannot_be_refuses_the_whole(self, client: Any, table: str) -> None:
        client.put_item(TableName=table, Item={**key(), "n": {"S": "text"}})
        code_of(client.transact_write_items, TransactItems=[put(table, "2"), add_one(table)])
        assert client.scan(TableName=table)["Items"] == [{**key(), "n": {"S": "text"}}]

    def test_a_token_makes_a_repetition_harmless(self, client: Any, table: str) -> None:
        request = {
            "TransactItems": [add_one(table)],
            "ClientRequestToken": f"token-{next(_tokens)}-{table}",
        }
        client.transact_write_items(**request)
        client.transact_write_items(**request)
        assert number(client, table) == 1
        request["TransactItems"] = [add_one(table, "2")]
        code = code_of(client.transact_write_items, **request)
        assert code == "IdempotentParameterMismatchException"

    def test_a_refused_transaction_leaves_its_token_free(self, client: Any, table: str) -> None:
        request = {
            "TransactItems": [put(table, "1", ConditionExpression="attribute_exists(pk)")],
            "ClientRequestToken": f"token-{next(_tokens)}-{table}",
        }
        assert code_of(client.transact_write_items, **request) == "TransactionCanceledException"
        client.put_item(TableName=table, Item={**key("a", "1"), "v": {"S": "v"}})
        client.transact_write_items(**request)
        assert client.get_item(TableName=table, Key=key())["Item"] == key()

    def test_contended_transactions_are_all_counted(self, client: Any, table: str) -> None:
        def add() -> None:
            done = 0
            while done < 10:
                try:
                    client.transact_write_items(TransactItems=[add_one(table)])
                except ClientError as error:
                    assert "TransactionConflict" in str(error)  # noqa: PT017 - retried
                else:
                    done += 1

        threads = [threading.Thread(target=add) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert number(client, table) == 60

    def test_a_read_transaction_answers_in_order(self, client: Any, table: str) -> None:
        client.put_item(TableName=table, Item={**key("a", "2"), "v": {"S": "x"}})
        answer = client.transact_get_items(
            TransactItems=[
                {"Get": {"TableName": table, "Key": key("a", "1")}},
                {
                    "Get": {
                        "TableName": table,
                        "Key": key("a", "2"),
                        "ProjectionExpression": "v",
                    }
                },
            ]
        )
        assert answer["Responses"] == [{}, {"Item": {"v": {"S": "x"}}}]


class TestStatements:
    def test_each_statement_reports_for_itself(self, client: Any, table: str) -> None:
        for sk in ("1", "2", "3"):
            client.put_item(TableName=table, Item={**key("a", sk), "n": {"N": "1"}})
        update = 'UPDATE "TABLE" SET n = ? REMOVE v WHERE pk = ? AND sk = ? AND n = ?'
        delete = 'DELETE FROM "TABLE" WHERE pk = ? AND sk = ? AND n = ?'
        missing = 'UPDATE "TABLE" SET v = ? WHERE pk = ? AND sk = ? AND v IS MISSING'
        texts: list[tuple[str, list[Any]]] = [
            (update, [{"N": "2"}, {"S": "a"}, {"S": "1"}, {"N": "1"}]),
            (update, [{"N": "2"}, {"S": "a"}, {"S": "2"}, {"N": "9"}]),
            (delete, [{"S": "a"}, {"S": "3"}, {"N": "1"}]),
            (delete, [{"S": "a"}, {"S": "gone"}, {"N": "1"}]),
            (update, [{"N": "2"}, {"S": "a"}, {"S": "none"}, {"N": "1"}]),
        ]
        answer = client.batch_execute_statement(
            Statements=[
                {
                    "Statement": text.replace("TABLE", table),
                    "Parameters": values,
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                }
                for text, values in texts
            ]
        )
        errors = [response.get("Error", {}) for response in answer["Responses"]]
        codes = [error.get("Code") for error in errors]
        failed = "ConditionalCheckFailed"
        assert codes == [None, failed, None, None, failed]
        assert errors[1]["Item"] == {**key("a", "2"), "n": {"N": "1"}}
        left = {i["sk"]["S"]: i["n"]["N"] for i in client.scan(TableName=table)["Items"]}
        assert left == {"1": "2", "2": "1"}
        entry = {
            "Statement": missing.replace("TABLE", table),
            "Parameters": [{"S": "x"}, {"S": "a"}, {"S": "1"}],
        }
        again = [
            client.batch_execute_statement(Statements=[entry])["Responses"][0] for _ in range(2)
        ]
        assert [response.get("Error", {}).get("Code") for response in again] == [None, failed]

    def test_an_operand_of_another_kind_is_refused_before_the_condition(
        self, client: Any, table: str
    ) -> None:
        client.put_item(TableName=table, Item={**key("a", "1"), "n": {"N": "1"}})
        text = 'UPDATE "TABLE" SET n = n - ? WHERE pk = ? AND sk = ? AND n = ?'
        entry = {
            "Statement": text.replace("TABLE", table),
            "Parameters": [{"S": "x"}, {"S": "a"}, {"S": "1"}, {"N": "9"}],
        }
        answer = client.batch_execute_statement(Statements=[entry])["Responses"][0]
        assert answer["Error"]["Code"] == "ValidationError"

    def test_an_insert_writes_where_nothing_lies_and_is_refused_elsewhere(
        self, client: Any, table: str
    ) -> None:
        text = f"INSERT INTO \"{table}\" VALUE {{'pk': ?, 'sk': ?, 'v': ?}}"

        def insert(sk: str, value: str, text: str = text) -> dict[str, Any]:
            values = [{"S": "a"}, {"S": sk}, {"M": {"x": {"S": value}}}]
            return {"Statement": text, "Parameters": values}

        first = client.batch_execute_statement(Statements=[insert("1", "old")])
        assert [r.get("Error") for r in first["Responses"]] == [None]
        again = insert("1", "new") | {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        broken = insert("3", "x", text.replace("'v': ?", "'v': ?, 'w': ?"))
        answer = client.batch_execute_statement(Statements=[again, insert("2", "new"), broken])
        refused, taken, wrong = (r.get("Error", {}) for r in answer["Responses"])
        assert (refused["Code"], refused.get("Item")) == ("DuplicateItem", None)
        assert (taken, wrong["Code"]) == ({}, "ValidationError")
        values = {
            i["sk"]["S"]: i["v"]["M"]["x"]["S"] for i in client.scan(TableName=table)["Items"]
        }
        assert values == {"1": "old", "2": "new"}
        with pytest.raises(ClientError, match="contains duplicates"):
            client.batch_execute_statement(Statements=[insert("4", "a"), insert("4", "b")])


@pytest.fixture
def streamed(client: Any) -> str:
    name = f"streamed-{next(_tokens)}"
    client.create_table(
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
    return name


def records_of(client: Any, table: str) -> list[Any]:
    """Records of a table: from the memory engine, or through the streams API of the other."""
    if hasattr(client, "stream"):
        return list(client.stream(table))
    streams = boto3.client(
        "dynamodbstreams",
        endpoint_url=client.meta.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    arn = client.describe_table(TableName=table)["Table"]["LatestStreamArn"]
    records = []
    for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        iterator = streams.get_shard_iterator(
            StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        records += streams.get_records(ShardIterator=iterator)["Records"]
    return records


class TestStreams:
    def test_each_change_makes_one_record_and_no_change_none(
        self, client: Any, streamed: str
    ) -> None:
        item = {**key(), "n": {"N": "1.50"}}
        client.put_item(TableName=streamed, Item=item)
        client.put_item(TableName=streamed, Item=item)
        client.transact_write_items(TransactItems=[add_one(streamed)])
        client.delete_item(TableName=streamed, Key=key("a", "none"))
        client.delete_item(TableName=streamed, Key=key())
        client.batch_write_item(RequestItems={streamed: [{"PutRequest": {"Item": key("b", "1")}}]})
        records = records_of(client, streamed)
        names = [record["eventName"] for record in records]
        assert names == ["INSERT", "MODIFY", "REMOVE", "INSERT"]
        data = [record["dynamodb"] for record in records]
        assert [part["Keys"] for part in data] == [key(), key(), key(), key("b", "1")]
        assert [part.get("OldImage", {}).get("n") for part in data] == [
            None,
            {"N": "1.5"},
            {"N": "2.5"},
            None,
        ]
        assert data[1]["NewImage"] == {**key(), "n": {"N": "2.5"}}
        assert "NewImage" not in data[2]
        assert {part["StreamViewType"] for part in data} == {"NEW_AND_OLD_IMAGES"}
        numbers = [int(part["SequenceNumber"]) for part in data]
        assert numbers == sorted(set(numbers))
        sizes = [part["SizeBytes"] for part in data]
        assert all(size > 0 for size in sizes)

    def test_a_refused_transaction_makes_no_record(self, client: Any, streamed: str) -> None:
        failing = put(streamed, "2", ConditionExpression="attribute_exists(pk)")
        code_of(client.transact_write_items, TransactItems=[put(streamed, "1"), failing])
        assert records_of(client, streamed) == []


def test_tables_are_described_listed_and_dropped(client: Any, table: str) -> None:
    described = client.describe_table(TableName=table)["Table"]
    assert described["TableStatus"] == "ACTIVE"
    assert [part["AttributeName"] for part in described["KeySchema"]] == ["pk", "sk"]
    names = {index["IndexName"] for index in described["GlobalSecondaryIndexes"]}
    assert names == {"due", "by_q"}
    assert table in client.list_tables()["TableNames"] or len(client.list_tables()) > 1
    code = code_of(
        client.create_table,
        TableName=table,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    assert code == "ResourceInUseException"
    client.delete_table(TableName=table)
    assert code_of(client.describe_table, TableName=table) == "ResourceNotFoundException"
