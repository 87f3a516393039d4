"""The table of another outbox: the rows that wait in it, and how they leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox.tables.row_layouts import attribute_of, value_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.tables.calls import Calls
    from fairbox.tables.keys import Item
    from fairbox.tables.row_layouts import RowLayout

_NULL: Final = ":null"


class OtherOutbox:
    """A table whose rows move into this outbox.

    Raises:
        UnknownTable: there is no such table.
    """

    def __init__(self, calls: Calls, table: str, layout: RowLayout) -> None:
        self._calls = calls
        self._table = table
        self._layout = layout

        schema = calls.call("describe_table", TableName=table)["Table"]["KeySchema"]
        parts = sorted(schema, key=lambda part: part["KeyType"])  # the hash key first
        self._keys: list[str] = [part["AttributeName"] for part in parts]

    def waiting(self, topic: str | None) -> Iterator[tuple[Item, Item]]:
        """Yield the key of each row that waits, and its attributes from the scan: key and time.

        Args:
            topic: the topic's name in the rows; None: all rows.
        """
        condition, names, values = self._waits()
        if topic is not None:
            condition += " AND #t = :t"
            names["#t"], values[":t"] = self._layout.topic, {"S": topic}

        # each once: the time may be the table's sort key
        wanted = dict.fromkeys(filter(None, (*self._keys, self._layout.created)))
        shown = {f"#k{n}": name for n, name in enumerate(wanted)}

        pages = self._calls.pages(
            "scan",
            TableName=self._table,
            ConsistentRead=True,
            FilterExpression=condition,
            ProjectionExpression=", ".join(shown),
            ExpressionAttributeNames=names | shown,
            ExpressionAttributeValues=values,
        )
        for page in pages:
            for row in page["Items"]:
                yield {name: row[name] for name in self._keys}, row

    def get(self, key: Item) -> Item | None:
        """Return a row (consistent); None: it is gone."""
        answer = self._calls.call("get_item", TableName=self._table, Key=key, ConsistentRead=True)
        row: Item | None = answer.get("Item")
        return row

    def leaving(self, key: Item, now: int) -> dict[str, Any]:
        """Return the action that makes a row leave at a time (ms), if it still waits."""
        condition, names, values = self._waits()
        names["#k"] = self._keys[0]

        sets: list[str] = []
        removes: list[str] = []
        for n, (attribute, value) in enumerate(self._layout.moved.items()):
            names[f"#m{n}"] = attribute
            if value is None:
                removes.append(f"#m{n}")
            else:
                sets.append(f"#m{n} = :m{n}")
                values[f":m{n}"] = attribute_of(value_at(value, now))

        clauses = [f"SET {', '.join(sets)}"] * bool(sets)
        clauses += [f"REMOVE {', '.join(removes)}"] * bool(removes)
        action: dict[str, Any] = {
            "TableName": self._table,
            "Key": key,
            "UpdateExpression": " ".join(clauses),
            # rows may wait by lacking an attribute, and one that is gone lacks all of them
            "ConditionExpression": f"attribute_exists(#k) AND {condition}",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }

        if not clauses:
            del action["UpdateExpression"]
            return {"Delete": action}
        return {"Update": action}

    def _waits(self) -> tuple[str, dict[str, str], dict[str, Any]]:
        """Return the condition that a row waits: expression, names and values."""
        clauses: list[str] = []
        names: dict[str, str] = {}
        values: dict[str, Any] = {}
        for n, (attribute, value) in enumerate(self._layout.waiting.items()):
            names[f"#w{n}"] = attribute
            # some mappers, boto3's among them, write NULL where a value is missing
            if value is None:
                clauses.append(f"(attribute_not_exists(#w{n}) OR attribute_type(#w{n}, {_NULL}))")
                values[_NULL] = {"S": "NULL"}
            else:
                clauses.append(f"#w{n} = :w{n}")
                values[f":w{n}"] = attribute_of(value)

        return " AND ".join(clauses), names, values
