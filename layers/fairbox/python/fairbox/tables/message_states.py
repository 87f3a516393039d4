"""Conditions and updates of a message's state where it lies.

Every one of them holds for one life of the message only: each redrive begins another, and a late
writer of the life before must not touch it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.tables.keys import message_key
from fairbox.tables.stored_messages import (
    GONE,
    HOLDER,
    PENDING,
    REASON,
    REDRIVEN,
    SIZE,
    SKIPPED,
    STATES,
    number,
    pending_value,
    skipped_value,
    states_value,
)

if TYPE_CHECKING:
    from fairbox.tables.stored_messages import StoredMessage


def marked(table: str, stored: StoredMessage) -> dict[str, Any]:
    """Return the delete of a message that carries `gone`."""
    conditions = ["#g = :g"]
    fields, values = {"#g": GONE}, {":g": {"S": stored.gone}}
    _same_life(stored, conditions, fields, values)
    return _delete(table, stored, conditions, fields, values)


def unchanged(table: str, before: StoredMessage, *, same_holder: bool = False) -> dict[str, Any]:
    """Return the delete of a message whose state, and holder if asked, is as it was read."""
    conditions, fields, values = _as_read(before)
    if same_holder:
        conditions.append("#h = :h")
        fields["#h"], values[":h"] = HOLDER, {"B": before.holder}
    return _delete(table, before, conditions, fields, values)


def update(table: str, stored: StoredMessage, before: StoredMessage) -> dict[str, Any]:
    """Return the update that writes the state where it is as in `before`: pending, states, gone.

    And skips, the reason, and how often the message was redriven.
    """
    conditions, fields, values = _as_read(before)

    sets: list[str] = []
    removes: list[str] = []
    new = _state(stored)
    for place, old in _state(before).items():
        value = new[place]
        if value is None and old is not None:
            removes.append(f"#{place}")
        elif value is not None and value != old:
            sets.append(f"#{place} = :{place}")
            values[f":{place}"] = value

    if stored.gone:
        sets.append("#g = :g")
        values[":g"] = {"S": stored.gone}
    if stored.reason != before.reason:
        sets.append("#r = :r")
        fields["#r"] = REASON
        values[":r"] = {"S": stored.reason}

    parts = [f"SET {', '.join(sets)}"] if sets else []
    parts += [f"REMOVE {', '.join(removes)}"] if removes else []

    return {
        "TableName": table,
        "Key": message_key(stored.ref, stored.lane),
        "UpdateExpression": " ".join(parts),
        "ConditionExpression": " AND ".join(conditions),
        "ExpressionAttributeNames": fields,
        "ExpressionAttributeValues": values,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def _state(stored: StoredMessage) -> dict[str, Any]:
    return {
        "p": None if stored.pending is None else pending_value(stored.pending),
        "s": states_value(stored.states) if stored.states else None,
        "n": number(stored.redriven) if stored.redriven else None,
        "k": skipped_value(stored.skipped) if stored.skipped else None,
    }


_FIELDS = {"p": PENDING, "s": STATES, "n": REDRIVEN, "k": SKIPPED}


def _as_read(before: StoredMessage) -> tuple[list[str], dict[str, str], dict[str, Any]]:
    # nothing but a message has a size, and one that is gone is left to whoever marked it
    conditions = ["attribute_exists(#z)", "attribute_not_exists(#g)"]
    fields = {"#z": SIZE, "#g": GONE}
    values: dict[str, Any] = {}
    for place, old in _state(before).items():
        fields[f"#{place}"] = _FIELDS[place]
        if old is None:
            conditions.append(f"attribute_not_exists(#{place})")
        else:
            conditions.append(f"#{place} = :old_{place}")
            values[f":old_{place}"] = old
    return conditions, fields, values


def _same_life(
    stored: StoredMessage, conditions: list[str], fields: dict[str, str], values: dict[str, Any]
) -> None:
    fields["#n"] = REDRIVEN
    if stored.redriven:
        conditions.append("#n = :n")
        values[":n"] = number(stored.redriven)
    else:
        conditions.append("attribute_not_exists(#n)")


def _delete(
    table: str,
    stored: StoredMessage,
    conditions: list[str],
    fields: dict[str, str],
    values: dict[str, Any],
) -> dict[str, Any]:
    return {
        "TableName": table,
        "Key": message_key(stored.ref, stored.lane),
        "ConditionExpression": " AND ".join(conditions),
        "ExpressionAttributeNames": fields,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        **({"ExpressionAttributeValues": values} if values else {}),
    }
