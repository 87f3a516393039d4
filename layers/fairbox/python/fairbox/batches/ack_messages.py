"""The ack queue's messages: item ids to ack, packed into JSON objects of at most 64 KB."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from fairbox.errors import InvalidInput, Unreadable
from fairbox.model.versions import VERSION_KEY, check_number

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_BYTES: Final = 64 * 1024
"""Of a message: 1,300 ids, one queue request."""
_KEY: Final = "acks"
_FRAME_BYTES: Final = len(json.dumps({_KEY: []}, separators=(",", ":")))


def pack(ids: Iterable[str]) -> list[str]:
    """Return the bodies of messages that ack these items, each id once, none for no ids.

    Args:
        ids: `batch:group:index`; other texts are carried too, so that the reader counts them.

    Raises:
        InvalidInput: one text alone is larger than a message can be.
    """
    bodies: list[str] = []
    page: list[str] = []
    size = _FRAME_BYTES

    for text in dict.fromkeys(ids):
        took = len(json.dumps(text)) + 1  # escaped to ASCII: characters are bytes
        # the first text has no comma before it
        if _FRAME_BYTES + took - 1 > MAX_BYTES:
            raise InvalidInput("ids", f"texts of at most {MAX_BYTES} bytes")
        if page and size + took - 1 > MAX_BYTES:
            bodies.append(_body(page))
            page, size = [], _FRAME_BYTES
        page.append(text)
        size += took

    return [*bodies, _body(page)] if page else bodies


def _body(ids: list[str]) -> str:
    return json.dumps({_KEY: ids}, separators=(",", ":"))


def parse(body: str) -> list[str]:
    """Return the ids of a message; an entry that is no text becomes its JSON, which is no id.

    Raises:
        Unreadable: the body is no object with a list under `acks`.
        NewerVersion: it asks, under `version`, for a reader of a newer release.
    """
    try:
        message = json.loads(body)
        check_number(int(message.get(VERSION_KEY, 1)), {})
        entries = message[_KEY]
    except AttributeError as error:
        raise Unreadable({}, "no message of acks: no object") from error
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise Unreadable({}, f"no message of acks: {type(error).__name__}") from error

    if not isinstance(entries, list):
        raise Unreadable({}, f"no message of acks: {_KEY!r} holds no list")
    return [entry if isinstance(entry, str) else json.dumps(entry) for entry in entries]
