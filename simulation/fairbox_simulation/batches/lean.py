"""A database of dicts that answers the calls which batches make, and refuses all others.

It takes a tenth of the time of `MemoryDynamoDB`, which checks, copies, bills and indexes. The
tests run the same seeds on both and compare every answer's consequence.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from fairbox.codec.attributes import PK, SK
from fairbox.testing.refusals import client_error

Item = dict[str, Any]
_ABSENT = re.compile(r"attribute_not_exists\((\S+)\)")
_EXISTS = re.compile(r"attribute_exists\((\S+)\)")
_EQUAL = re.compile(r"(\S+) = (\S+)")
_KEYS = re.compile(
    r"#pk = :pk AND (?:begins_with\(#sk, (\S+)\)|#sk BETWEEN (\S+) AND (\S+)|#sk = (\S+))"
)
_LAST = "\U0010ffff"


class LeanDynamoDB:
    """Tables with the keys of the outbox and no index; items are shared, not copied.

    Attributes:
        rows: table -> (partition key, sort key) -> item.
    """

    def __init__(self) -> None:
        self.rows: defaultdict[str, dict[tuple[str, str], Item]] = defaultdict(dict)
        self._tokens: set[str] = set()

    def forget_tokens(self) -> None:
        """Let every request token be new."""
        self._tokens.clear()

    def get_item(self, *, TableName: str, Key: Item, ConsistentRead: bool) -> Item:  # noqa: N803 - the SDK's
        """Answer as the service does."""
        item = self.rows[TableName].get(_key(Key))
        return {} if item is None else {"Item": item}

    def batch_get_item(self, *, RequestItems: dict[str, Item]) -> Item:  # noqa: N803 - the SDK's
        """Answer as the service does; projections are not applied."""
        found = {
            table: [item for key in part["Keys"] if (item := self.rows[table].get(_key(key)))]
            for table, part in RequestItems.items()
        }
        return {"Responses": found, "UnprocessedKeys": {}}

    def query(self, **request: Any) -> Item:
        """Answer queries of one partition by sort key, prefix, or between two sort keys."""
        values = {ref: next(iter(v.values())) for ref, v in
                  request["ExpressionAttributeValues"].items()}  # fmt: skip
        found = _KEYS.fullmatch(request["KeyConditionExpression"])
        if found is None or "IndexName" in request:
            raise NotImplementedError(request)
        prefix, low, high, only = found.groups()
        if prefix:
            low, high = values[prefix], values[prefix] + _LAST
        else:
            low, high = values[low or only], values[high or only]
        rows = self.rows[request["TableName"]]
        keys = sorted(k for k in rows if k[0] == values[":pk"] and low <= k[1] <= high)
        return {"Items": [rows[key] for key in keys]}

    def put_item(self, **request: Any) -> Item:
        """Put where the condition holds."""
        old, refused = self._decide(request)
        if refused:
            shown = {"Item": old} if old is not None else {}
            raise client_error("ConditionalCheckFailedException", "", "PutItem", **shown)
        self._put(request)
        return {}

    def transact_write_items(self, *, TransactItems: list[Item], ClientRequestToken: str) -> Item:  # noqa: N803 - the SDK's
        """Put all where all conditions hold; once a token."""
        if ClientRequestToken in self._tokens:
            return {}
        actions = [next(iter(action.items())) for action in TransactItems]
        reasons = [self._reason(request) for _, request in actions]
        if any(reason["Code"] != "None" for reason in reasons):
            code = "TransactionCanceledException"
            raise client_error(code, "", "TransactWriteItems", CancellationReasons=reasons)
        self._tokens.add(ClientRequestToken)
        for kind, request in actions:
            if kind == "Put":
                self._put(request)
            elif kind != "ConditionCheck":
                raise NotImplementedError(kind)
        return {}

    def batch_write_item(self, *, RequestItems: dict[str, list[Item]]) -> Item:  # noqa: N803 - the SDK's
        """Delete."""
        for table, requests in RequestItems.items():
            for request in requests:
                self.rows[table].pop(_key(request["DeleteRequest"]["Key"]), None)
        return {"UnprocessedItems": {}}

    def _put(self, request: Item) -> None:
        self.rows[request["TableName"]][_key(request["Item"])] = request["Item"]

    def _decide(self, request: Item) -> tuple[Item | None, bool]:
        key = _key(request["Key"] if "Key" in request else request["Item"])
        old = self.rows[request["TableName"]].get(key)
        condition = request.get("ConditionExpression")
        return old, condition is not None and not _holds(condition, request, old or {})

    def _reason(self, request: Item) -> Item:
        old, refused = self._decide(request)
        if not refused:
            return {"Code": "None"}
        shown = {"Item": old} if old and "ReturnValuesOnConditionCheckFailure" in request else {}
        return {"Code": "ConditionalCheckFailed", **shown}


def _key(item: Item) -> tuple[str, str]:
    return item[PK]["S"], item[SK]["S"]


def _holds(condition: str, request: Item, old: Item) -> bool:
    names = request["ExpressionAttributeNames"]
    if found := _EQUAL.fullmatch(condition):
        wanted = request["ExpressionAttributeValues"][found[2]]
        return bool(old.get(names[found[1]]) == wanted)
    if found := _ABSENT.fullmatch(condition):
        return names[found[1]] not in old
    if found := _EXISTS.fullmatch(condition):
        return names[found[1]] in old
    raise NotImplementedError(condition)
