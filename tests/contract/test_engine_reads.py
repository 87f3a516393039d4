"""Queries, scans, indexes, batches and units: the same cases against both engines."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ParamValidationError

from tests.contract.calls import code_of, key, units


def fill(client: Any, table: str, count: int = 30, size: int = 10) -> list[str]:
    """`count` items of `size` bytes in partition a, some of them in the index."""
    sks = [f"{number:03d}" for number in range(count)]
    for sk in sks:
        item = {**key("a", sk), "b": {"B": b"x" * size}, "n": {"N": str(int(sk))}}
        if int(sk) % 10 == 0:
            item |= {"q": {"S": "0"}, "l": {"N": str(100 - int(sk))}, "rc": {"N": sk}}
        client.put_item(TableName=table, Item=item)
    return sks


def sks_of(answer: dict[str, Any]) -> list[str]:
    return [item["sk"]["S"] for item in answer["Items"]]


class TestQuery:
    @pytest.mark.parametrize(
        ("condition", "values", "expected"),
        [
            ("pk = :p", {}, range(30)),
            ("pk = :p AND sk < :s", {":s": {"S": "005"}}, range(5)),
            ("pk = :p AND sk <= :s", {":s": {"S": "005"}}, range(6)),
            ("sk > :s AND pk = :p", {":s": {"S": "027"}}, range(28, 30)),
            ("(pk = :p) AND (sk >= :s)", {":s": {"S": "027"}}, range(27, 30)),
            ("pk = :p AND sk = :s", {":s": {"S": "007"}}, range(7, 8)),
            (
                "pk = :p AND sk BETWEEN :s AND :t",
                {":s": {"S": "0055"}, ":t": {"S": "008"}},
                range(6, 9),
            ),
            ("pk = :p AND begins_with(sk, :s)", {":s": {"S": "01"}}, range(10, 20)),
        ],
    )
    def test_ranges_come_in_order_both_ways(
        self, client: Any, table: str, condition: str, values: Any, expected: range
    ) -> None:
        fill(client, table)
        request = {
            "TableName": table,
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": {":p": {"S": "a"}, **values},
        }
        forward = sks_of(client.query(**request))
        assert forward == [f"{number:03d}" for number in expected]
        assert sks_of(client.query(**request, ScanIndexForward=False)) == forward[::-1]

    @pytest.mark.parametrize("forward", [True, False])
    def test_pages_follow_each_other_and_limit_counts_evaluated_items(
        self, client: Any, table: str, forward: bool
    ) -> None:
        sks = fill(client, table)
        request: dict[str, Any] = {
            "TableName": table,
            "KeyConditionExpression": "pk = :p",
            "FilterExpression": "n <> :four",
            "ExpressionAttributeValues": {":p": {"S": "a"}, ":four": {"N": "4"}},
            "Limit": 7,
            "ScanIndexForward": forward,
        }
        pages = [client.query(**request)]
        while "LastEvaluatedKey" in pages[-1]:
            pages.append(client.query(**request, ExclusiveStartKey=pages[-1]["LastEvaluatedKey"]))
        read = [sk for page in pages for sk in sks_of(page)]
        expected = [sk for sk in sks if sk != "004"]
        assert read == (expected if forward else expected[::-1])
        assert [page["ScannedCount"] for page in pages] == [7, 7, 7, 7, 2]

    def test_a_limit_that_is_reached_leaves_a_key_even_at_the_end(
        self, client: Any, table: str
    ) -> None:
        fill(client, table, 3)
        request = {
            "TableName": table,
            "KeyConditionExpression": "pk = :p",
            "ExpressionAttributeValues": {":p": {"S": "a"}},
        }
        full = client.query(**request, Limit=3)
        assert full["LastEvaluatedKey"] == key("a", "002")
        after = client.query(**request, ExclusiveStartKey=full["LastEvaluatedKey"])
        assert (after["Count"], "LastEvaluatedKey" in after) == (0, False)

    def test_a_page_ends_at_one_megabyte(self, client: Any, table: str) -> None:
        fill(client, table, 6, size=300 * 1024)
        request = {
            "TableName": table,
            "KeyConditionExpression": "pk = :p",
            "ExpressionAttributeValues": {":p": {"S": "a"}},
        }
        first = client.query(**request)
        assert first["Count"] < 6
        rest = client.query(**request, ExclusiveStartKey=first["LastEvaluatedKey"])
        assert sks_of(first) + sks_of(rest) == [f"{number:03d}" for number in range(6)]
        pages = list(client.get_paginator("query").paginate(**request))
        assert sum(page["Count"] for page in pages) == 6

    def test_counting_returns_no_items(self, client: Any, table: str) -> None:
        fill(client, table)
        answer = client.query(
            TableName=table,
            KeyConditionExpression="pk = :p",
            FilterExpression="n < :ten",
            ExpressionAttributeValues={":p": {"S": "a"}, ":ten": {"N": "10"}},
            Select="COUNT",
        )
        assert (answer["Count"], answer["ScannedCount"], "Items" in answer) == (10, 30, False)

    @pytest.mark.parametrize(
        "request_part",
        [
            {"KeyConditionExpression": "sk = :p"},
            {"KeyConditionExpression": "pk > :p"},
            {"KeyConditionExpression": "pk = :p AND n = :p"},
            {"KeyConditionExpression": "pk = :p OR sk = :p"},
            {"KeyConditionExpression": "pk = :p AND sk <> :p"},
            {"KeyConditionExpression": "pk = :p", "FilterExpression": "sk = :p"},
            {"KeyConditionExpression": "pk = :p", "IndexName": "none"},
            {"KeyConditionExpression": "q = :p", "IndexName": "due", "ConsistentRead": True},
            {"KeyConditionExpression": "q = :p", "IndexName": "due", "Select": "ALL_ATTRIBUTES"},
            {
                "KeyConditionExpression": "q = :p",
                "IndexName": "due",
                "Select": "ALL_PROJECTED_ATTRIBUTES",
                "ProjectionExpression": "sk",
            },
            {"KeyConditionExpression": "pk = :p", "ExclusiveStartKey": {"pk": {"S": "a"}}},
            {"KeyConditionExpression": "pk = :p", "ExclusiveStartKey": key("b")},
        ],
    )
    def test_queries_that_make_no_sense_are_refused(
        self, client: Any, table: str, request_part: dict[str, Any]
    ) -> None:
        code = code_of(
            client.query,
            TableName=table,
            ExpressionAttributeValues={":p": {"S": "a"}},
            **request_part,
        )
        assert code == "ValidationException"


class TestIndexes:
    def due(self, client: Any, table: str, **request: Any) -> dict[str, Any]:
        return client.query(  # type: ignore[no-any-return]  # the client is Any
            TableName=table,
            IndexName="due",
            KeyConditionExpression="q = :q AND l <= :l",
            ExpressionAttributeValues={":q": {"S": "0"}, ":l": {"N": "95"}},
            **request,
        )

    def test_only_items_with_the_keys_are_in_and_only_what_is_projected(
        self, client: Any, table: str
    ) -> None:
        fill(client, table)
        answer = self.due(client, table)
        assert sks_of(answer) == ["020", "010"]
        assert answer["Items"][0].keys() == {"pk", "sk", "q", "l", "rc"}

    def test_pages_of_an_index_go_on_after_its_own_key(self, client: Any, table: str) -> None:
        fill(client, table)
        first = self.due(client, table, Limit=1)
        assert first["LastEvaluatedKey"].keys() == {"pk", "sk", "q", "l"}
        rest = self.due(client, table, ExclusiveStartKey=first["LastEvaluatedKey"])
        assert sks_of(first) + sks_of(rest) == ["020", "010"]

    def test_an_entry_leaves_and_moves_with_its_attributes(self, client: Any, table: str) -> None:
        fill(client, table)
        client.update_item(TableName=table, Key=key("a", "020"), UpdateExpression="REMOVE l")
        client.update_item(
            TableName=table,
            Key=key("a", "000"),
            UpdateExpression="SET l = :l",
            ExpressionAttributeValues={":l": {"N": "-3.5"}},
        )
        assert sks_of(self.due(client, table)) == ["000", "010"]
        client.delete_item(TableName=table, Key=key("a", "000"))
        assert sks_of(self.due(client, table)) == ["010"]
        assert client.scan(TableName=table, IndexName="due")["Count"] == 1


class TestScan:
    def test_segments_share_all_items_between_them(self, client: Any, table: str) -> None:
        keys = [key(f"p{number}", "1") for number in range(40)]
        for item in keys:
            client.put_item(TableName=table, Item=item)
        found = [
            item["pk"]["S"]
            for segment in range(4)
            for page in client.get_paginator("scan").paginate(
                TableName=table, Segment=segment, TotalSegments=4, PaginationConfig={"PageSize": 3}
            )
            for item in page["Items"]
        ]
        assert sorted(found) == sorted(item["pk"]["S"] for item in keys)

    def test_filters_and_counts_work_on_scans(self, client: Any, table: str) -> None:
        fill(client, table)
        answer = client.scan(
            TableName=table,
            FilterExpression="attribute_exists(q)",
            Select="COUNT",
        )
        assert (answer["Count"], answer["ScannedCount"]) == (3, 30)

    @pytest.mark.parametrize(
        "bad",
        [{"Segment": 4, "TotalSegments": 4}, {"Segment": 0}, {"TotalSegments": 2}],
    )
    def test_segments_that_do_not_exist_are_refused(
        self, client: Any, table: str, bad: dict[str, int]
    ) -> None:
        assert code_of(client.scan, TableName=table, **bad) == "ValidationException"


class TestBatches:
    def test_a_batch_writes_deletes_and_reads(self, client: Any, table: str) -> None:
        fill(client, table, 5)
        entries: list[Any] = [{"PutRequest": {"Item": key("b", str(n))}} for n in range(20)]
        entries += [{"DeleteRequest": {"Key": key("a", f"00{n}")}} for n in range(5)]
        answer = client.batch_write_item(RequestItems={table: entries})
        assert answer["UnprocessedItems"] == {}
        keys = [key("b", str(n)) for n in range(30)] + [key("a", "001")]
        found = client.batch_get_item(RequestItems={table: {"Keys": keys}})
        assert found["UnprocessedKeys"] == {}
        assert sorted(int(item["sk"]["S"]) for item in found["Responses"][table]) == [*range(20)]

    def test_too_many_and_repeated_entries_are_refused_whole(self, client: Any, table: str) -> None:
        def put(*sks: str) -> dict[str, Any]:
            return {table: [{"PutRequest": {"Item": key("a", sk)}} for sk in sks]}

        for request in (
            put(*map(str, range(26))),
            put("1", "1"),
            {table: [{"PutRequest": {"Item": key()}}, {"DeleteRequest": {"Key": key()}}]},
            {table: [{"PutRequest": {"Item": {"pk": {"S": "a"}}}}]},
        ):
            assert code_of(client.batch_write_item, RequestItems=request) == "ValidationException"
        assert client.scan(TableName=table)["Count"] == 0
        for keys in ([key("a", str(n)) for n in range(101)], [key(), key()]):
            code = code_of(client.batch_get_item, RequestItems={table: {"Keys": keys}})
            assert code == "ValidationException"

    def test_empty_lists_and_limits_never_leave(self, client: Any, table: str) -> None:
        calls: list[tuple[Any, dict[str, Any]]] = [
            (client.batch_write_item, {"RequestItems": {table: []}}),
            (client.batch_get_item, {"RequestItems": {table: {"Keys": []}}}),
            (client.transact_write_items, {"TransactItems": []}),
            (client.scan, {"TableName": table, "Limit": 0}),
        ]
        for call, request in calls:
            with pytest.raises(ParamValidationError):
                call(**request)

    @pytest.mark.extended  # size
    def test_a_read_of_more_than_16_mb_comes_in_parts(self, client: Any, table: str) -> None:
        keys = [key("a", f"{n:03d}") for n in range(50)]
        for item in keys:
            client.put_item(TableName=table, Item={**item, "b": {"B": b"x" * 390_000}})
        todo = {table: {"Keys": keys}}
        sizes = []
        while todo:
            answer = client.batch_get_item(RequestItems=todo)
            sizes.append(len(answer["Responses"][table]))
            todo = answer["UnprocessedKeys"]
        assert sum(sizes) == 50
        assert len(sizes) == 2


class TestUnits:
    @pytest.mark.parametrize(("size", "expected"), [(900, 1), (1100, 2), (5000, 5)])
    def test_a_write_costs_one_a_kilobyte_of_the_larger_item(
        self, client: Any, table: str, size: int, expected: int
    ) -> None:
        item = {**key(), "b": {"B": b"x" * size}}
        ask: dict[str, Any] = {"TableName": table, "ReturnConsumedCapacity": "INDEXES"}
        assert units(client.put_item(Item=item, **ask)) == (expected, {})
        assert units(client.put_item(Item=key(), **ask)) == (expected, {})
        assert units(client.put_item(Item=item, **ask)) == (expected, {})
        assert units(client.delete_item(Key=key(), **ask)) == (expected, {})
        assert units(client.delete_item(Key=key(), **ask)) == (1, {})

    def test_an_index_costs_by_what_happens_to_its_entry(self, client: Any, table: str) -> None:
        ask: dict[str, Any] = {"TableName": table, "ReturnConsumedCapacity": "INDEXES"}
        entry = {**key(), "q": {"S": "0"}, "l": {"N": "1"}}
        steps: list[tuple[dict[str, Any], dict[str, float]]] = [
            (entry, {"due": 1, "by_q": 1}),
            (entry, {}),
            ({**entry, "other": {"S": "x"}}, {}),
            ({**entry, "rc": {"N": "5"}}, {"due": 1}),
            ({**entry, "l": {"N": "2"}}, {"due": 2}),
            (key(), {"due": 1, "by_q": 1}),
        ]
        for item, expected in steps:
            assert units(client.put_item(Item=item, **ask)) == (1, expected)

    @pytest.mark.parametrize(("size", "consistent"), [(100, 1), (4090, 2), (9000, 3)])
    def test_a_read_costs_one_a_4_kilobytes_and_half_where_eventual(
        self, client: Any, table: str, size: int, consistent: int
    ) -> None:
        client.put_item(TableName=table, Item={**key(), "b": {"B": b"x" * size}})
        ask: dict[str, Any] = {"TableName": table, "ReturnConsumedCapacity": "INDEXES"}
        assert units(client.get_item(Key=key(), ConsistentRead=True, **ask))[0] == consistent
        assert units(client.get_item(Key=key(), **ask))[0] == consistent / 2
        read = client.query(
            KeyConditionExpression="pk = :p",
            ExpressionAttributeValues={":p": {"S": "a"}},
            Select="COUNT",
            **ask,
        )
        assert units(read)[0] == consistent / 2

    def test_a_query_rounds_its_sum_and_a_batch_each_item(self, client: Any, table: str) -> None:
        fill(client, table, 4, size=1100)
        ask: dict[str, Any] = {"ReturnConsumedCapacity": "INDEXES"}
        query = client.query(
            TableName=table,
            KeyConditionExpression="pk = :p",
            ExpressionAttributeValues={":p": {"S": "a"}},
            ConsistentRead=True,
            **ask,
        )
        assert units(query)[0] == 2
        keys = [key("a", f"00{n}") for n in range(4)]
        batch = client.batch_get_item(
            RequestItems={table: {"Keys": keys, "ConsistentRead": True}}, **ask
        )
        assert batch["ConsumedCapacity"][0]["CapacityUnits"] == 4

    def test_a_query_of_an_index_is_charged_to_the_index(self, client: Any, table: str) -> None:
        fill(client, table)
        answer = client.query(
            TableName=table,
            IndexName="due",
            KeyConditionExpression="q = :q",
            ExpressionAttributeValues={":q": {"S": "0"}},
            ReturnConsumedCapacity="INDEXES",
        )
        assert units(answer) == (0, {"due": 0.5})

    def test_a_batch_of_writes_sums_its_items(self, client: Any, table: str) -> None:
        entries = [
            {"PutRequest": {"Item": {**key("a", str(n)), "b": {"B": b"x" * 1100}}}}
            for n in range(10)
        ]
        answer = client.batch_write_item(
            RequestItems={table: entries}, ReturnConsumedCapacity="INDEXES"
        )
        assert answer["ConsumedCapacity"][0]["CapacityUnits"] == 20
