"""The table of another outbox: the rows that wait in it, and how they leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.tables.calls import Rows
from fairbox.tables.row_layouts import attribute_of, value_at
from fairbox.tables.write_expressions import WriteExpressions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.tables.calls import Calls
    from fairbox.tables.keys import Item
    from fairbox.tables.row_layouts import RowLayout


class OtherOutbox(Rows):
    """A table whose rows move into this outbox.

    Raises:
        UnknownTable: there is no such table.
    """

    def __init__(self, calls: Calls, table: str, layout: RowLayout) -> None:
        super().__init__(calls, table)
        self._layout = layout

        schema = calls.call("describe_table", TableName=table)["Table"]["KeySchema"]
        parts = sorted(schema, key=lambda part: part["KeyType"])  # the hash key first
        self._keys: list[str] = [part["AttributeName"] for part in parts]

    def waiting(self, topic: str | None) -> Iterator[tuple[Item, Item]]:
        """Yield the key of each row that waits, and its attributes from the scan: key and time.

        Args:
            topic: the topic's name in the rows; None: all rows.
        """
        waits = self._waits()
        if topic is not None:
            waits.same("t", self._layout.topic, {"S": topic})

        # each once: the time may be the table's sort key
        wanted = dict.fromkeys(filter(None, (*self._keys, self._layout.created)))
        shown = {f"#k{n}": name for n, name in enumerate(wanted)}

        pages = self._calls.pages(
            "scan",
            TableName=self._table,
            ConsistentRead=True,
            FilterExpression=waits.condition,
            ProjectionExpression=", ".join(shown),
            ExpressionAttributeNames=waits.names | shown,
            **waits.bound,
        )
        for page in pages:
            for row in page["Items"]:
                yield {name: row[name] for name in self._keys}, row

    def get(self, key: Item) -> Item | None:
        """Return a row (consistent); None: it is gone."""
        return self._calls.get(self._table, key)

    def leaving(self, key: Item, now: int) -> dict[str, Any]:
        """Return the action that makes a row leave at a time (ms), if it still waits."""
        write = self._waits()
        # rows may wait by lacking an attribute, and one that is gone lacks all of them
        write.conditions.insert(0, "attribute_exists(#k)")
        write.names["#k"] = self._keys[0]

        for n, (attribute, value) in enumerate(self._layout.moved.items()):
            set_to = None if value is None else attribute_of(value_at(value, now))
            write.put(f"m{n}", attribute, set_to)

        action = {"TableName": self._table, "Key": key, **write.expressions, **write.bound}
        return {"Update" if self._layout.moved else "Delete": action}

    def _waits(self) -> WriteExpressions:
        """Return the condition that a row waits."""
        waits = WriteExpressions()
        for n, (attribute, value) in enumerate(self._layout.waiting.items()):
            # some mappers, boto3's among them, write NULL where a value is missing
            if value is None:
                waits.names[f"#w{n}"] = attribute
                waits.values[":null"] = {"S": "NULL"}
                waits.conditions.append(
                    f"(attribute_not_exists(#w{n}) OR attribute_type(#w{n}, :null))"
                )
            else:
                waits.same(f"w{n}", attribute, attribute_of(value))

        return waits
