"""Failures in the item of a message, cut so that an attempt costs no write unit more than it must.

Decisions need attempts and due times. The history is for readers: numbers and times always stay,
and texts fill the KB that the item has begun, because that KB is paid for anyway. The archive has
each failure as the item had it, and a dead letter the last error in full.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fairbox.tables.dead_letters import published_item
from fairbox.tables.item_size import item_size
from fairbox.tables.stored_messages import (
    MAX_HISTORY,
    Failure,
    StoredMessage,
    SubscriptionState,
    stored_item,
)

if TYPE_CHECKING:
    from collections.abc import Collection

LEAST_TEXT: Final = 12
"""Bytes of errors that a failing subscription keeps in any case, such as `HTTP 500: In`."""
_UNIT: Final = 1024
_MARK: Final = 16  # `gone`, and the count of an operator's edits
_CLAIM: Final = 48


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
