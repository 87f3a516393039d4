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
    published_item,
    state_values,
    stored_item,
)
from fairbox.tables.write_expressions import WriteExpressions

if TYPE_CHECKING:
    from collections.abc import Collection


LEAST_TEXT: Final = 12
"""Bytes of errors that a failing subscription keeps in any case, such as `HTTP 500: In`."""
_UNIT: Final = 1024
_MARK: Final = 16  # `gone`, and the count of an operator's edits
_CLAIM: Final = 48
_PLACES: Final = {PENDING: "p", STATES: "s", REDRIVEN: "n", SKIPPED: "k"}


def marked(table: str, stored: StoredMessage) -> dict[str, Any]:
    """Return the delete of a message that carries `gone`."""
    write = WriteExpressions()
    write.same("g", GONE, {"S": stored.gone})
    write.same("n", REDRIVEN, number(stored.redriven) if stored.redriven else None)
    return _delete(table, stored, write)


def unchanged(table: str, before: StoredMessage, *, same_holder: bool = False) -> dict[str, Any]:
    """Return the delete of a message whose state, and holder if asked, is as it was read."""
    write = _as_read(before)
    if same_holder:
        write.same("h", HOLDER, {"B": before.holder})
    return _delete(table, before, write)


def update(table: str, stored: StoredMessage, before: StoredMessage) -> dict[str, Any]:
    """Return the update that writes the state where it is as in `before`: pending, states, gone.

    And skips, the reason, and how often the message was redriven.
    """
    write = _as_read(before)
    old = state_values(before)
    for name, value in state_values(stored).items():
        if value != old[name]:
            write.put(_PLACES[name], name, value)

    if stored.gone:
        write.put("g", GONE, {"S": stored.gone})
    if stored.reason != before.reason:
        write.put("r", REASON, {"S": stored.reason})

    return {
        "TableName": table,
        "Key": message_key(stored.ref, stored.lane),
        **write.expressions,
        **write.bound,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def _as_read(before: StoredMessage) -> WriteExpressions:
    write = WriteExpressions()
    # nothing but a message has a size, and one that is gone is left to whoever marked it
    write.present("z", SIZE)
    write.same("g", GONE, None)
    for name, value in state_values(before).items():
        write.same(_PLACES[name], name, value, f"old_{_PLACES[name]}")
    return write


def _delete(table: str, stored: StoredMessage, write: WriteExpressions) -> dict[str, Any]:
    return {
        "TableName": table,
        "Key": message_key(stored.ref, stored.lane),
        **write.expressions,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        **write.bound,
    }


def fitted(stored: StoredMessage, *, whole: Collection[str] = ()) -> StoredMessage:
    """Return a message whose failures fit the KB that its item takes without their texts.

    A subscription keeps its ten newest failures, all but the last with whole seconds. The texts of
    all subscriptions have equal shares of the room. In each share the newest come first, and leave
    `LEAST_TEXT` bytes to each of the others, or half of the room left. The last error of
    subscriptions in `whole` is not cut.
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
