"""Expressions of conditional writes, from the attributes that they compare and change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fairbox.tables.keys import PK, Item


@dataclass(frozen=True, slots=True)
class WriteExpressions:
    """The conditions and changes of one write, with their names and values.

    An attribute has a place, which is `#place` in the expressions, and so has its value: `:place`.
    """

    conditions: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    sets: list[str] = field(default_factory=list)
    removes: list[str] = field(default_factory=list)

    def present(self, place: str, name: str) -> None:
        """Ask that the item has an attribute."""
        self.names[f"#{place}"] = name
        self.conditions.append(f"attribute_exists(#{place})")

    def same(self, place: str, name: str, value: Any, value_place: str = "") -> None:
        """Ask that an attribute has a value; None: that the item does not have the attribute."""
        self.names[f"#{place}"] = name
        if value is None:
            self.conditions.append(f"attribute_not_exists(#{place})")
        else:
            self.conditions.append(f"#{place} = {self._value(value_place or place, value)}")

    def put(self, place: str, name: str, value: Any, value_place: str = "") -> None:
        """Set an attribute to a value; None: remove the attribute."""
        self.names[f"#{place}"] = name
        if value is None:
            self.removes.append(f"#{place}")
        else:
            self.sets.append(f"#{place} = {self._value(value_place or place, value)}")

    def _value(self, place: str, value: Any) -> str:
        self.values[f":{place}"] = value
        return f":{place}"

    @property
    def condition(self) -> str:
        """All conditions as one."""
        return " AND ".join(self.conditions)

    @property
    def expressions(self) -> dict[str, Any]:
        """The arguments with the expressions, as far as there are any, and their names."""
        clauses = (("SET", self.sets), ("REMOVE", self.removes))
        update = " ".join(f"{verb} {', '.join(parts)}" for verb, parts in clauses if parts)
        texts = {"UpdateExpression": update, "ConditionExpression": self.condition}
        there = {name: text for name, text in texts.items() if text}
        return there | {"ExpressionAttributeNames": self.names}

    @property
    def bound(self) -> dict[str, Any]:
        """The argument with the values, which DynamoDB refuses where there are none."""
        return {"ExpressionAttributeValues": self.values} if self.values else {}


def condition(place: str, name: str, value: Any) -> dict[str, Any]:
    """Return the arguments of a write that asks for one value; None: for a missing attribute."""
    write = WriteExpressions()
    write.same(place, name, value)
    return write.expressions | write.bound


def put_new(table: str, item: Item) -> dict[str, Any]:
    """Return the arguments of a put that fails where an item lies under the key already."""
    return {"TableName": table, "Item": item, **condition("pk", PK, None)}
