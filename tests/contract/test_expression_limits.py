"""Limits of expressions and names: the last that is taken and the first that is refused."""

from __future__ import annotations

from typing import Any

import pytest
from fairbox.testing.application import OUTBOX, MemoryApplication

from tests.contract.calls import code_of, key

FILTER, QUERY = "FilterExpression", "KeyConditionExpression"
SHOWN, UPDATE = "ProjectionExpression", "UpdateExpression"
CALLS = {FILTER: "scan", QUERY: "query", SHOWN: "get_item", UPDATE: "update_item"}
KEY = {"pk": {"S": "a"}, "k": {"S": "a"}}
SUMS = [f"a{n}=:n+:n" for n in range(301)]
VALUES: dict[str, Any] = {":v": {"S": "a"}, ":n": {"N": "1"}}


def ors(part: str, count: int) -> str:
    return " OR ".join([part] * count)


def deep(start: str, middle: str, count: int) -> str:
    return start * count + middle + ")" * count


def nested(depth: int) -> Any:
    return {"S": "deep"} if depth == 0 else {"M": {"a": nested(depth - 1)}}


@pytest.mark.parametrize(
    ("parameter", "taken", "refused"),
    [
        (FILTER, "attribute_exists(a)".ljust(4096), "attribute_exists(a)".ljust(4097)),
        (FILTER, ors("a = :v", 150), ors("a = :v", 151)),
        (FILTER, ors("size(a) = :v", 100), ors("size(a) = :v", 101)),
        (FILTER, ors("a BETWEEN :v AND :v", 150), ors("a BETWEEN :v AND :v", 151)),
        (FILTER, f"a IN ({':v,' * 99}:v)", f"a IN ({':v,' * 100}:v)"),
        (FILTER, deep("NOT (", "a = :v", 299), deep("NOT (", "a = :v", 300)),
        (FILTER, deep("(a=:v OR b=:v AND ", "a=:v", 74), deep("(a=:v OR b=:v AND ", "a=:v", 76)),
        (FILTER, "(NOT (a = :v)) AND (b = :v)", "((a = :v)) AND b = :v"),
        (FILTER, f"{'.'.join('a' * 32)} = :v", f"{'.'.join('a' * 33)} = :v"),
        (SHOWN, "a[2147483647]", "a[2147483648]"),
        (QUERY, "(pk = :v)", "((pk = :v))"),
        (QUERY, "pk = :v", "NOT NOT pk = :v"),
        (SHOWN, "a" * 4096, "a" * 4097),
        (UPDATE, "SET " + ",".join(SUMS[:300]), "SET " + ",".join(SUMS)),
        (UPDATE, "SET a = (:v)", "SET a = ((:v))"),
        (UPDATE, "SET a = ((:n) + :n)", "SET a = :n + (:n + :n)"),
        (UPDATE, "SET a = (:n - :n)", "SET a = (:n - :n) - :n"),
        (UPDATE, "SET a = :n + (:n)", "SET a = " + deep("(:n+", ":n", 800)),
        (UPDATE, "SET a = " + deep("if_not_exists(b,", ":v", 200), "SET a = if_not_exists(b, :v"),
        (UPDATE, "SET a = :v", "SET a = if_not_exists(b, list_append(:v, :v))"),
    ],
)
def test_expressions(client: Any, table: str, parameter: str, taken: str, refused: str) -> None:
    def request(text: str) -> dict[str, Any]:
        values = {ref: value for ref, value in VALUES.items() if ref in text}
        more = {"ExpressionAttributeValues": values} if values else {}
        named = {"Key": key()} if parameter in (SHOWN, UPDATE) else {}
        return {"TableName": table, parameter: text, **named, **more}

    call = getattr(client, CALLS[parameter])
    call(**request(taken))
    assert code_of(call, **request(refused)) == "ValidationException"


@pytest.mark.parametrize("start", ["(", "NOT (", "SET a = (", "SET a = if_not_exists(a, ("])
def test_what_is_never_closed_is_refused_however_deep(start: str) -> None:
    """Of DynamoDB Local it is an internal error."""
    client: Any = MemoryApplication().client
    parameter = UPDATE if "SET" in start else FILTER
    text = start + start.removeprefix("SET a = ") * (4000 // len(start))
    request = {"TableName": OUTBOX, parameter: text} | ({} if parameter == FILTER else {"Key": KEY})
    assert code_of(getattr(client, CALLS[parameter]), **request) == "ValidationException"


@pytest.mark.parametrize(
    ("names", "values"),
    [
        ({"#" + "a" * 255: "a"}, {}),
        ({"#a-1": "a"}, {}),
        ({"#a": "a" * 65_536}, {}),
        ({"#a": ""}, {}),
        ({f"#a{n}": f"{n}".zfill(60_000) for n in range(40)}, {}),
        ({"#a": "a"}, {":" + "v" * 255: {"N": "1"}}),
        ({"#a": "a"}, {"v": {"N": "1"}}),
        ({"#a": "a"}, {f":v{n}": {"B": b"x" * 300_000} for n in range(8)}),
    ],
)
def test_placeholders(client: Any, table: str, names: Any, values: Any) -> None:
    tests = [f"attribute_exists({ref})" for ref in names] + [f"#a = {ref}" for ref in values]
    request = {FILTER: " OR ".join(tests), "ExpressionAttributeNames": names}
    more = {"ExpressionAttributeValues": values} if values else {}
    code = code_of(client.scan, TableName=table, **request, **more)
    assert code == "ValidationException"


@pytest.mark.parametrize("name", ["a" * 65_536, ""])
def test_names_of_attributes(client: Any, table: str, name: str) -> None:
    for attribute in ({name: {"N": "1"}}, {"m": {"M": {name: {"N": "1"}}}}):
        item = {**key(), **attribute}
        assert code_of(client.put_item, TableName=table, Item=item) == "ValidationException"


def test_an_update_makes_nothing_too_deep(client: Any, table: str) -> None:
    client.put_item(TableName=table, Item={**key(), "m": nested(20)})
    request = {"TableName": table, "Key": key(), UPDATE: "SET m.a.a.a.a.b = :v"}
    client.update_item(**request, ExpressionAttributeValues={":v": nested(26)})
    deeper = {":v": nested(27)}
    code = code_of(client.update_item, **request, ExpressionAttributeValues=deeper)
    assert code == "ValidationException"


def test_statements(client: Any, table: str) -> None:
    text = f'DELETE FROM "{table}" WHERE pk = ? AND sk = ?'  # noqa: S608 - PartiQL of a test

    def refused(condition: str) -> bool:
        values = [{"S": "a"}] * (condition.count("?") + 2)
        entry = {"Statement": f"{text} AND {condition}", "Parameters": values}
        return "Error" in client.batch_execute_statement(Statements=[entry])["Responses"][0]

    for taken, too_much in (
        (f"({ors('a = ?', 148)})", f"({ors('a = ?', 149)})"),
        (deep("(", "a = ?", 250), "NOT " * 300 + "a = ?"),
    ):
        assert not refused(taken)
        assert refused(too_much)
    long = {"Statement": text.ljust(8193), "Parameters": [{"S": "a"}] * 2}
    assert code_of(client.batch_execute_statement, Statements=[long]) == "ValidationException"


@pytest.mark.parametrize(
    ("name", "by", "index"),
    [("t", "k", "by-k"), ("a b", "k", "by-k"), ("abc", "k" * 256, "by-k"), ("abc", "k", "a:b")],
)
def test_names_of_tables(client: Any, name: str, by: str, index: str) -> None:
    schema = [{"AttributeName": by, "KeyType": "HASH"}]
    request = {"TableName": name, "BillingMode": "PAY_PER_REQUEST", "KeySchema": schema}
    request["AttributeDefinitions"] = [{"AttributeName": by, "AttributeType": "S"}]
    other = {"IndexName": index, "KeySchema": schema, "Projection": {"ProjectionType": "ALL"}}
    code = code_of(client.create_table, GlobalSecondaryIndexes=[other], **request)
    assert code == "ValidationException"
