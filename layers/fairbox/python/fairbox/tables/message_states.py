"""State of a message where it lies: its failures, and the conditional updates and deletes.

Every update and delete holds for one life of the message only: each redrive begins another, and a
late writer of the life before must not touch it.

Failures are cut so that an attempt costs no write unit more than it must. Decisions need attempts
and due times. The history is for readers: numbers and times always stay, and texts fill the KB that
the item has begun, because that KB is paid for anyway. The archive has each failure as the item had
it, and a dead letter the last error in full.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.tables.item_size import item_size
from fairbox.tables.keys import message_key
from fairbox.tables.stored_messages import (
    GONE,
    HOLDER,
    MAX_HISTORY,
    PENDING,
    REASON,
    REDRIVEN,
    SIZE,
    SKIPPED,
    STATES,
    Failure,
    StoredMessage,
    SubscriptionState,
    number,
    pending_value,
    published_item,
    skipped_value,
    states_value,
    stored_item,
)

if TYPE_CHECKING:
    from collections.abc import Collection


LEAST_TEXT: Final = 12
"""Bytes of errors that a failing subscription keeps in any case, such as `HTTP 500: In`."""
_UNIT: Final = 1024
_MARK: Final = 16  # `gone`, and the count of an operator's edits
_CLAIM: Final = 48


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


def fitted(stored: StoredMessage, *, whole: Collection[str] = ()) -> StoredMessage:
    """Return a message whose failures fit the KB that its item takes without their texts.

    A subscription keeps its ten newest failures, all but the last with whole seconds. The texts of
    all subscriptions have equal shares of the room. In each share the newest come first, and leave
    `LEAST_TEXT` bytes to each of the others, or half of the room left.

    Args:
        stored: a message whose states have changed.
        whole: subscriptions whose last error is not cut.
    """
    if not stored.states:
        return stored

    without = {name: _texts_cut(state, 0) for name, state in stored.states.items()}
    room = -_size(replace(stored, states=without)) % _UNIT
    share = max(LEAST_TEXT, room // len(without))

    states = {
        name: _texts_cut(state, share, whole=name in whole) for name, state in stored.states.items()
    }
    return replace(stored, states=states)


def bare(stored: StoredMessage) -> StoredMessage:
    """Return a message with the last failure of each subscription only, and no text of it."""
    states = {
        name: replace(state, history=tuple(replace(f, error="") for f in state.history[-1:]))
        for name, state in stored.states.items()
    }
    return replace(stored, states=states)


def _texts_cut(state: SubscriptionState, share: int, *, whole: bool = False) -> SubscriptionState:
    """Return a state whose newest failures have texts of `share` bytes together."""
    kept: list[Failure] = []
    newest_first = state.history[: -MAX_HISTORY - 1 : -1]
    for age, failure in enumerate(newest_first):
        last = age == 0
        others = LEAST_TEXT * (len(newest_first) - age - 1)
        most = max(share - others, share // 2, min(share, LEAST_TEXT) if last else 0)
        text = failure.error.encode()[:most].decode(errors="ignore")
        share -= len(text.encode())
        at = failure.at if last else failure.at // 1000 * 1000
        kept.append(Failure(failure.attempt, at, failure.error if last and whole else text))

    return replace(state, due=0 if state.dead else state.due, history=tuple(reversed(kept)))


def _size(stored: StoredMessage) -> int:
    """Return the bytes of a message's item, a little more rather than less."""
    body = stored.packed or (0 if stored.offloaded else stored.size)
    empty = replace(stored, message=replace(stored.message, body=b""))
    item = stored_item(stored, published_item(empty))
    return item_size(item) + body + _MARK + (0 if stored.claim is None else _CLAIM)
