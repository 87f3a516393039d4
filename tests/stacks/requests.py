"""The permissions that requests to DynamoDB need, compared with the templates' policies."""

from __future__ import annotations

import fnmatch
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.stacks.assembly import listed, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stacks.assembly import Assembly

ACTIONS = {
    "get_item": "GetItem",
    "put_item": "PutItem",
    "update_item": "UpdateItem",
    "delete_item": "DeleteItem",
    "query": "Query",
    "scan": "Scan",
}
IN_TRANSACTIONS = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}
_STATEMENT = re.compile(r'(UPDATE|DELETE FROM) "([^"]+)"')


@dataclass(frozen=True)
class Asked:
    """One action on a table or an index, and the partition keys that it names."""

    resource: str
    action: str
    keys: frozenset[str] = frozenset()
    returns: str = "NONE"


class Recorder:
    """Stands before the engine and notes what it is asked, by who asks."""

    def __init__(self, client: Any, names: dict[str, str]) -> None:
        self._client = client
        self._names = names
        self.who = "nobody"
        self.asked: dict[str, set[Asked]] = {}

    def __getattr__(self, operation: str) -> Any:
        def call(**request: Any) -> Any:
            self.asked.setdefault(self.who, set()).update(self._of(operation, request))
            return getattr(self._client, operation)(**request)

        return call

    @contextmanager
    def as_one(self, who: str) -> Iterator[None]:
        """Note what is asked meanwhile as this one's."""
        self.who, before = who, self.who
        yield
        self.who = before

    def _of(self, operation: str, request: dict[str, Any]) -> Iterator[Asked]:
        if operation == "transact_write_items":
            for action in request["TransactItems"]:
                ((verb, given),) = action.items()
                key = given.get("Item") or given["Key"]
                yield self._asked(given["TableName"], IN_TRANSACTIONS[verb], [key])
        elif operation == "batch_execute_statement":
            for one in request["Statements"]:
                yield self._statement(one)
        elif operation == "batch_get_item":
            for table, given in request["RequestItems"].items():
                yield self._asked(table, "BatchGetItem", given["Keys"])
        elif operation == "batch_write_item":
            for table, writes in request["RequestItems"].items():
                keys = [w["PutRequest"]["Item"] if "PutRequest" in w else w["DeleteRequest"]["Key"]
                        for w in writes]  # fmt: skip
                yield self._asked(table, "BatchWriteItem", keys)
        else:
            yield self._plain(operation, request)

    def _plain(self, operation: str, request: dict[str, Any]) -> Asked:
        table, action = request["TableName"], ACTIONS[operation]
        if operation == "query":
            found = request["ExpressionAttributeValues"]
            placeholder = re.search(r"#?\w+ = (:\w+)", request["KeyConditionExpression"])
            assert placeholder is not None
            keys = [{"pk": found[placeholder[1]]}]
        else:
            keys = [request.get("Item") or request.get("Key") or {}]
        asked = self._asked(table, action, keys, request.get("ReturnValues", "NONE"))
        if "IndexName" in request:
            return replace(asked, resource=f"{asked.resource}/index/{request['IndexName']}")
        return asked

    def _statement(self, one: dict[str, Any]) -> Asked:
        found = _STATEMENT.match(one["Statement"])
        assert found is not None
        before = one["Statement"].partition('"pk" = ?')[0].count("?")
        action = "PartiQLUpdate" if found[1] == "UPDATE" else "PartiQLDelete"
        return self._asked(found[2], action, [{"pk": one["Parameters"][before]}])

    def _asked(self, table: str, action: str, keys: Any, returns: str = "NONE") -> Asked:
        named = frozenset(key["pk"]["S"] for key in keys if "pk" in key)
        return Asked(self._names[table], f"dynamodb:{action}", named, returns)


class Policy:
    """A managed policy of the templates."""

    def __init__(self, assembly: Assembly, name: str) -> None:
        found = assembly.of_type("AWS::IAM::ManagedPolicy")[f"FairboxAccess/{name}"]
        self.statements: list[dict[str, Any]] = found["PolicyDocument"]["Statement"]

    @property
    def actions(self) -> set[str]:
        """Every action that it allows."""
        return {action for one in self.statements for action in listed(one["Action"])}

    def allows(self, asked: Asked) -> bool:
        """Whether a statement allows it, by action, resource and conditions."""
        return any(
            one["Effect"] == "Allow"
            and asked.action in listed(one["Action"])
            and asked.resource in map(plain, listed(one["Resource"]))
            and all(_holds(op, each, asked) for op, each in one.get("Condition", {}).items())
            for one in self.statements
        )


def _holds(operator: str, condition: dict[str, Any], asked: Asked) -> bool:
    match operator, condition:
        case "ForAllValues:StringLike", {"dynamodb:LeadingKeys": patterns}:
            return all(any(fnmatch.fnmatch(k, p) for p in listed(patterns)) for k in asked.keys)
        case "Null", {"dynamodb:LeadingKeys": "false"}:
            return bool(asked.keys)
        case "StringEqualsIfExists", {"dynamodb:ReturnValues": value}:
            return asked.returns in listed(value)
    raise AssertionError(f"the test does not know the condition {operator} {condition}")
