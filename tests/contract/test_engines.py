"""Items, conditions and updates: the same cases against both engines."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from botocore.exceptions import ParamValidationError

from tests.contract.calls import code_of, key, refusal

RICH: dict[str, Any] = {
    **key(),
    "s": {"S": "ünï"},
    "n": {"N": "12.50"},
    "b": {"B": b"\x00\xff"},
    "t": {"BOOL": True},
    "z": {"NULL": True},
    "m": {"M": {"in": {"L": [{"N": "1"}, {"S": ""}]}}},
    "ss": {"SS": ["y", "x"]},
    "ns": {"NS": ["2", "1.0"]},
    "bs": {"BS": [b"2", b"1"]},
}


class TestPutAndGet:
    def test_every_type_comes_back_with_numbers_in_their_normal_form(
        self, client: Any, table: str
    ) -> None:
        client.put_item(TableName=table, Item=RICH)
        item = client.get_item(TableName=table, Key=key(), ConsistentRead=True)["Item"]
        assert item["n"] == {"N": "12.5"}
        assert sorted(item["ns"]["NS"]) == ["1", "2"]
        assert sorted(item["ss"]["SS"]) == ["x", "y"]
        assert sorted(item["bs"]["BS"]) == [b"1", b"2"]
        for name in ("s", "b", "t", "z", "m"):
            assert item[name] == RICH[name]

    @pytest.mark.parametrize(
        ("given", "stored"),
        [("007", "7"), ("1e3", "1000"), ("-0", "0"), (".5", "0.5"), ("1.10", "1.1"), ("+3", "3")],
    )
    def test_numbers_are_stored_in_one_form(
        self, client: Any, table: str, given: str, stored: str
    ) -> None:
        client.put_item(TableName=table, Item={**key(), "n": {"N": given}})
        assert client.get_item(TableName=table, Key=key())["Item"]["n"] == {"N": stored}

    def test_a_missing_item_is_an_answer_without_item(self, client: Any, table: str) -> None:
        assert "Item" not in client.get_item(TableName=table, Key=key())

    def test_a_put_returns_the_old_item_when_asked(self, client: Any, table: str) -> None:
        client.put_item(TableName=table, Item={**key(), "v": {"S": "1"}})
        answer = client.put_item(TableName=table, Item=key(), ReturnValues="ALL_OLD")
        assert answer["Attributes"] == {**key(), "v": {"S": "1"}}

    def test_a_delete_returns_the_old_item_once(self, client: Any, table: str) -> None:
        client.put_item(TableName=table, Item=key())
        first = client.delete_item(TableName=table, Key=key(), ReturnValues="ALL_OLD")
        second = client.delete_item(TableName=table, Key=key(), ReturnValues="ALL_OLD")
        assert first["Attributes"] == key()
        assert "Attributes" not in second

    def test_a_projection_keeps_nested_paths(self, client: Any, table: str) -> None:
        client.put_item(TableName=table, Item=RICH)
        answer = client.get_item(
            TableName=table,
            Key=key(),
            ProjectionExpression="s, m.#in[1], gone",
            ExpressionAttributeNames={"#in": "in"},
        )
        assert answer["Item"] == {"s": RICH["s"], "m": {"M": {"in": {"L": [{"S": ""}]}}}}

    def test_paths_into_one_element_keep_one_element_in_its_order(
        self, client: Any, table: str
    ) -> None:
        elements = [{"M": {name: {"S": name} for name in "xyz"}} for _ in range(3)]
        client.put_item(TableName=table, Item={**key(), "a": {"L": elements}})
        answer = client.get_item(
            TableName=table, Key=key(), ProjectionExpression="a[2].x, a[0].y, a[0].z, a[1].gone"
        )
        kept = [{"M": {"y": {"S": "y"}, "z": {"S": "z"}}}, {"M": {"x": {"S": "x"}}}]
        assert answer["Item"] == {"a": {"L": kept}}

    @pytest.mark.parametrize(
        "item",
        [
            {"pk": {"S": "a"}},
            {**key(), "sk": {"N": "1"}},
            {**key(), "sk": {"S": ""}},
            key("p" * 2049),
            key("a", "s" * 1025),
            {**key(), "ss": {"SS": []}},
            {**key(), "ss": {"SS": ["a", "a"]}},
            {**key(), "n": {"N": "one"}},
            {**key(), "n": {"N": "1" * 39}},
            {**key(), "n": {"N": "1e127"}},
            {**key(), "q": {"N": "1"}},
            {**key(), "q": {"S": ""}},
            {**key(), "z": {"NULL": False}},
            {**key(), "b": {"B": b"x" * 409_600}},
        ],
    )
    def test_malformed_items_are_refused(
        self, client: Any, table: str, item: dict[str, Any]
    ) -> None:
        assert code_of(client.put_item, TableName=table, Item=item) == "ValidationException"
        assert client.scan(TableName=table)["Count"] == 0

    def test_the_largest_item_fits(self, client: Any, table: str) -> None:
        item = {**key(), "b": {"B": b"x" * (409_600 - 7)}}
        answer = client.put_item(TableName=table, Item=item, ReturnConsumedCapacity="TOTAL")
        assert answer["ConsumedCapacity"]["CapacityUnits"] == 400

    @pytest.mark.parametrize(
        "bad", [{"pk": {"S": "a"}}, {**key(), "x": {"S": "1"}}, {**key(), "sk": {"N": "1"}}]
    )
    def test_keys_that_do_not_fit_are_refused(self, client: Any, table: str, bad: Any) -> None:
        assert code_of(client.get_item, TableName=table, Key=bad) == "ValidationException"
        assert code_of(client.delete_item, TableName=table, Key=bad) == "ValidationException"

    def test_a_table_that_is_not_there_is_named_by_the_code(self, client: Any) -> None:
        code = code_of(client.get_item, TableName="nowhere", Key=key())
        assert code == "ResourceNotFoundException"

    def test_unknown_and_missing_parameters_never_leave(self, client: Any, table: str) -> None:
        with pytest.raises(ParamValidationError):
            client.put_item(TableName=table, Items=[])
        with pytest.raises(ParamValidationError):
            client.put_item(TableName=table)


CONDITIONS = [
    ("n = :n", True),
    ("n <> :n", False),
    ("gone <> :n", True),
    ("gone = :n", False),
    ("NOT gone = :n", True),
    ("gone < :n", False),
    ("n < :big AND n > :small", True),
    ("n BETWEEN :small AND :big", True),
    ("s < :n", False),
    ("s IN (:text, :n)", True),
    ("n IN (:small, :big)", False),
    ("attribute_exists(m.a) AND attribute_not_exists(m.b)", True),
    ("attribute_exists(l[0]) AND attribute_not_exists(l[1])", True),
    ("attribute_type(ss, :ss)", True),
    ("begins_with(s, :prefix)", True),
    ("contains(s, :prefix) AND contains(ss, :text)", True),
    ("contains(l, :n)", True),
    ("size(s) = :size OR size(n) = :n", True),
    ("size(m) > :small", True),
    ("size(n) > :small", False),
    ("NOT (n = :n OR s = :text)", False),
    ("NOT n = :n AND n = :n OR n = :n", True),
    ("m.a = l[0]", True),
    ("ss = :set", True),
]
CONDITION_VALUES = {
    ":n": {"N": "7.0"},
    ":big": {"N": "10"},
    ":small": {"N": "0"},
    ":text": {"S": "text"},
    ":prefix": {"S": "te"},
    ":ss": {"S": "SS"},
    ":size": {"N": "4"},
    ":set": {"SS": ["other", "text"]},
}


class TestConditions:
    @pytest.mark.parametrize(("expression", "holds"), CONDITIONS)
    def test_conditions_decide_alike(
        self, client: Any, table: str, expression: str, holds: bool
    ) -> None:
        client.put_item(
            TableName=table,
            Item={
                **key(),
                "n": {"N": "7"},
                "s": {"S": "text"},
                "m": {"M": {"a": {"N": "7"}}},
                "l": {"N": "1"},
                "ss": {"SS": ["text", "other"]},
            }
            | ({"ls": {"L": [{"N": "7"}]}}),
        )
        expression = expression.replace("l[", "ls[").replace("contains(l,", "contains(ls,")
        used = {ref: v for ref, v in CONDITION_VALUES.items() if uses(expression, ref)}
        request: dict[str, Any] = {
            "TableName": table,
            "Key": key(),
            "UpdateExpression": "SET seen = :seen",
            "ConditionExpression": expression,
            "ExpressionAttributeValues": {**used, ":seen": {"BOOL": True}},
        }
        if holds:
            client.update_item(**request)
            assert client.get_item(TableName=table, Key=key())["Item"]["seen"] == {"BOOL": True}
        else:
            assert code_of(client.update_item, **request) == "ConditionalCheckFailedException"

    def test_the_old_item_comes_with_the_refusal_when_asked(self, client: Any, table: str) -> None:
        item = {**key(), "v": {"N": "1"}}
        client.put_item(TableName=table, Item=item)
        request = {
            "TableName": table,
            "Item": key(),
            "ConditionExpression": "attribute_not_exists(pk)",
        }
        shown = refusal(client.put_item, **request, ReturnValuesOnConditionCheckFailure="ALL_OLD")
        assert shown["Item"] == item
        assert "Item" not in refusal(client.put_item, **request)
        assert client.get_item(TableName=table, Key=key())["Item"] == item

    @pytest.mark.parametrize(
        ("expression", "names", "values"),
        [
            ("", None, None),
            ("a = ", None, None),
            ("a == :v", None, {":v": {"N": "1"}}),
            ("a = :v", None, None),
            ("#a = :v", None, {":v": {"N": "1"}}),
            ("a = :v", {"#b": "b"}, {":v": {"N": "1"}}),
            ("a = :v", None, {":v": {"N": "1"}, ":w": {"N": "1"}}),
            ("status = :v", None, {":v": {"N": "1"}}),
            ("unknown(a)", None, None),
            ("attribute_exists(a, b)", None, None),
            ("attribute_type(a, :v)", None, {":v": {"S": "X"}}),
            ("begins_with(a, :v)", None, {":v": {"N": "1"}}),
            ("a BETWEEN :v AND :w", None, {":v": {"N": "2"}, ":w": {"N": "1"}}),
            ("attribute_exists(a)", {}, None),
        ],
    )
    def test_malformed_expressions_are_refused(
        self, client: Any, table: str, expression: str, names: Any, values: Any
    ) -> None:
        request: dict[str, Any] = {"ConditionExpression": expression}
        if names is not None:
            request["ExpressionAttributeNames"] = names
        if values is not None:
            request["ExpressionAttributeValues"] = values
        code = code_of(client.put_item, TableName=table, Item=key(), **request)
        assert code == "ValidationException"


def uses(expression: str, ref: str) -> bool:
    words = expression.replace("(", " ").replace(")", " ").replace(",", " ").split()
    return ref in words


LONG = "0." + "1" * 38
"""A number of as many digits as an item can hold."""


class TestUpdates:
    @pytest.mark.parametrize(
        ("expression", "values", "expected"),
        [
            ("SET n = n + :v", {":v": {"N": "1.5"}}, {"n": {"N": "8.5"}}),
            ("SET n = :v - n", {":v": {"N": "1"}}, {"n": {"N": "-6"}}),
            ("SET n = z - :v", {":v": {"N": LONG}}, {"n": {"N": f"-{LONG}"}}),
            ("SET x = if_not_exists(x, :v)", {":v": {"N": "1"}}, {"x": {"N": "1"}}),
            ("SET n = if_not_exists(n, :v) + :v", {":v": {"N": "1"}}, {"n": {"N": "8"}}),
            (
                "SET li = list_append(li, :v)",
                {":v": {"L": [{"S": "c"}]}},
                {"li": {"L": [{"S": "a"}, {"S": "b"}, {"S": "c"}]}},
            ),
            ("SET m.a = :v", {":v": {"S": "x"}}, {"m": {"M": {"a": {"S": "x"}}}}),
            (
                "SET li[0] = :v, li[9] = :v",
                {":v": {"S": "x"}},
                {"li": {"L": [{"S": "x"}, {"S": "b"}, {"S": "x"}]}},
            ),
            ("REMOVE li[0], n", None, {"li": {"L": [{"S": "b"}]}, "n": None}),
            ("REMOVE m.a, gone", None, {"m": {"M": {}}}),
            ("SET n = m.a, m.a = n", None, {"n": {"N": "1"}, "m": {"M": {"a": {"N": "7"}}}}),
            ("ADD n :v", {":v": {"N": "-2"}}, {"n": {"N": "5"}}),
            ("ADD x :v", {":v": {"N": "3"}}, {"x": {"N": "3"}}),
            ("DELETE ss :v", {":v": {"SS": ["x", "q"]}}, {"ss": {"SS": ["y"]}}),
            ("DELETE ss :v", {":v": {"SS": ["x", "y"]}}, {"ss": None}),
            ("DELETE gone :v", {":v": {"SS": ["x"]}}, {"gone": None}),
            ("SET x = :v REMOVE n", {":v": {"S": "1"}}, {"x": {"S": "1"}, "n": None}),
            ("set x = :v remove n", {":v": {"S": "1"}}, {"x": {"S": "1"}, "n": None}),
        ],
    )
    def test_updates_change_items_alike(
        self, client: Any, table: str, expression: str, values: Any, expected: dict[str, Any]
    ) -> None:
        self.prepare(client, table)
        more = {} if values is None else {"ExpressionAttributeValues": values}
        new = client.update_item(
            TableName=table,
            Key=key(),
            UpdateExpression=expression,
            ReturnValues="ALL_NEW",
            **more,
        )["Attributes"]
        assert {name: new.get(name) for name in expected} == expected
        assert client.get_item(TableName=table, Key=key())["Item"] == new

    def prepare(self, client: Any, table: str) -> None:
        client.put_item(
            TableName=table,
            Item={
                **key(),
                "n": {"N": "7"},
                "z": {"N": "0"},
                "m": {"M": {"a": {"N": "1"}}},
                "li": {"L": [{"S": "a"}, {"S": "b"}]},
                "ss": {"SS": ["x", "y"]},
                "s": {"S": "text"},
            },
        )

    @pytest.mark.parametrize(
        ("expression", "values"),
        [
            ("SET pk = :v", {":v": {"S": "b"}}),
            ("SET x = gone", None),
            ("SET x = gone + :v", {":v": {"N": "1"}}),
            ("SET x = s + :v", {":v": {"N": "1"}}),
            ("SET gone.a = :v", {":v": {"N": "1"}}),
            ("SET s.a = :v", {":v": {"N": "1"}}),
            ("SET m.a = :v, m = :v", {":v": {"N": "1"}}),
            ("SET n = :v REMOVE n", {":v": {"N": "1"}}),
            ("SET n = :v SET x = :v", {":v": {"N": "1"}}),
            ("SET n :v", {":v": {"N": "1"}}),
            ("ADD s :v", {":v": {"N": "1"}}),
            ("ADD n :v", {":v": {"S": "1"}}),
            ("DELETE n :v", {":v": {"SS": ["1"]}}),
            ("DELETE ss :v", {":v": {"N": "1"}}),
            ("SET x = list_append(s, :v)", {":v": {"L": []}}),
            ("DROP n", None),
            ("SET x = :v", {":v": {"B": b"x" * 409_600}}),
        ],
    )
    def test_what_cannot_be_updated_is_refused_and_changes_nothing(
        self, client: Any, table: str, expression: str, values: Any
    ) -> None:
        self.prepare(client, table)
        before = client.get_item(TableName=table, Key=key())["Item"]
        more = {} if values is None else {"ExpressionAttributeValues": values}
        code = code_of(
            client.update_item, TableName=table, Key=key(), UpdateExpression=expression, **more
        )
        assert code == "ValidationException"
        assert client.get_item(TableName=table, Key=key())["Item"] == before

    @pytest.mark.parametrize(
        ("returns", "expected"),
        [
            ("NONE", None),
            ("ALL_OLD", {**key(), "n": {"N": "1"}, "o": {"S": "o"}}),
            ("UPDATED_OLD", {"n": {"N": "1"}}),
            ("ALL_NEW", {**key(), "n": {"N": "2"}, "o": {"S": "o"}, "x": {"S": "new"}}),
            ("UPDATED_NEW", {"n": {"N": "2"}, "x": {"S": "new"}}),
        ],
    )
    def test_return_values_show_what_was_asked_for(
        self, client: Any, table: str, returns: str, expected: Any
    ) -> None:
        client.put_item(TableName=table, Item={**key(), "n": {"N": "1"}, "o": {"S": "o"}})
        answer = client.update_item(
            TableName=table,
            Key=key(),
            UpdateExpression="SET n = n + :one, x = :new",
            ExpressionAttributeValues={":one": {"N": "1"}, ":new": {"S": "new"}},
            ReturnValues=returns,
        )
        assert answer.get("Attributes") == expected

    def test_an_update_of_a_missing_item_makes_it(self, client: Any, table: str) -> None:
        answer = client.update_item(TableName=table, Key=key(), ReturnValues="ALL_OLD")
        assert "Attributes" not in answer
        assert client.get_item(TableName=table, Key=key())["Item"] == key()

    def test_contended_updates_are_all_counted(self, client: Any, table: str) -> None:
        def add() -> None:
            for _ in range(20):
                client.update_item(
                    TableName=table,
                    Key=key(),
                    UpdateExpression="SET n = if_not_exists(n, :zero) + :one",
                    ExpressionAttributeValues={":zero": {"N": "0"}, ":one": {"N": "1"}},
                )

        threads = [threading.Thread(target=add) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.get_item(TableName=table, Key=key())["Item"]["n"] == {"N": "160"}
