"""Opaque cursors: where a list of a topic in a state stopped."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Final, Literal, NoReturn, cast

from fairbox.client.message_pages import Place
from fairbox.errors import InvalidInput
from fairbox.model.ids import parse_id

if TYPE_CHECKING:
    from fairbox.api.models import State

Part = Literal["ready", "later", "dead", "ledger"]

PARTS: Final[dict[str, tuple[Part, ...]]] = {
    "outstanding": ("ready", "later"),
    "waiting": ("later",),
    "dead": ("dead",),
    "delivered": ("ledger",),
}
"""The sources that each state is listed from, in order."""

_VERSION: Final = 1
_MAX_TIME: Final = 10**14
_MAX_KEY: Final = 1024


def write_cursor(topic: str, state: State, part: Part, place: Place) -> str:
    """Return the cursor that goes on behind a place."""
    return pack_cursor([_VERSION, topic, state, part, place.time, place.id, place.tail])


def pack_cursor(fields: list[object]) -> str:
    """Return the cursor that holds these."""
    text = json.dumps(fields, separators=(",", ":"))
    # it stands in a query, where `=`, `+` and `/` would need escapes
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def unpack_cursor(cursor: str) -> object:
    """Return what a cursor holds; None when it is none."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        fields: object = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    # callers write cursors as they like: deep nesting ends in RecursionError
    except (binascii.Error, ValueError, RecursionError):
        return None
    return fields


def read_cursor(cursor: str, topic: str, state: State) -> tuple[Part, Place]:
    """Return the part and the place that a cursor of this list names.

    Raises:
        InvalidInput: it is none, or that of another list.
    """
    fields = unpack_cursor(cursor)
    # the version is compared too: a later release may hold other fields
    if not isinstance(fields, list) or len(fields) != 7 or fields[:3] != [_VERSION, topic, state]:
        _refuse()

    part, time, id_, tail = fields[3:]
    texts = isinstance(part, str) and isinstance(id_, str) and isinstance(tail, str)
    if not texts or part not in PARTS[state] or not _is_time(time):
        _refuse()

    if part == "dead":
        # an unreadable dead letter keeps its sort key, which may be no id
        if not 0 < len(id_.encode(errors="replace")) <= _MAX_KEY or not id_.isprintable():
            _refuse()
    else:
        try:
            parse_id(id_)
        except InvalidInput:
            _refuse()

    return cast("Part", part), Place(time, id_, tail)


def _is_time(value: object) -> bool:
    # in Python True is an int, and `true` of JSON becomes True
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_TIME


def _refuse() -> NoReturn:
    raise InvalidInput("cursor", "the cursor of the page before, of the same topic and state")
