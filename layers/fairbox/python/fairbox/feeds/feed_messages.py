"""Messages of feeds as clients get them: JSON text, made once, when a message is published."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Final

from fairbox.cloudevents.writing import is_json_text
from fairbox.errors import BodyTooLarge, InvalidInput
from fairbox.model.chunks import chunks
from fairbox.model.event_attributes import is_json, is_media_type
from fairbox.model.feed_types import BUNDLE_MESSAGES, MAX_BODY
from fairbox.model.messages import MAX_KEY_BYTES, check_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BUNDLE_BYTES: Final = 24 * 1024
"""Bytes of a bundle as it is sent."""
MAX_NESTING: Final = 100
"""Of a JSON body: parsers of clients have limits of their own."""
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET: Final = re.compile(r"[][{}]")
_AROUND: Final = 20  # bytes: brackets, commas, and a number of 16 digits


def text_of(message_id: str, body: bytes, content_type: str) -> str:
    """Return the text that a client gets behind a message's number: `"id",body`.

    A body whose content type is not JSON follows in base64, and then `"b64"`.

    Raises:
        InvalidInput: the id is empty or too long, the body is not bytes or not the JSON that its
            content type says, or the content type is none.
        BodyTooLarge: it has over 90 KB.
    """
    if not message_id or check_text("id", message_id) is None:
        raise InvalidInput("id", f"1 to {MAX_KEY_BYTES} bytes of text")
    if not isinstance(body, bytes):
        raise InvalidInput("body", f"bytes, got {type(body).__name__}")
    if len(body) > MAX_BODY:
        raise BodyTooLarge(len(body), MAX_BODY)
    if not isinstance(content_type, str) or not is_media_type(content_type):
        raise InvalidInput("content_type", "a media type of at most 255 ASCII characters")

    named = json.dumps(message_id, ensure_ascii=False)
    if not is_json(content_type):
        return f'{named},"{base64.b64encode(body).decode()}","b64"'
    try:
        text = body.decode()
    except UnicodeDecodeError:
        # no JSON text is empty, so it is refused below
        text = ""
    if not is_json_text(text):
        raise InvalidInput("body", f"JSON in UTF-8, as content_type {content_type!r} says")
    if _nesting(text) > MAX_NESTING:
        raise InvalidInput("body", f"JSON that is nested at most {MAX_NESTING} deep")
    return f"{named},{text}"


def _nesting(text: str) -> int:
    """Return how deep arrays and objects are nested."""
    deepest = depth = 0
    # brackets inside of texts do not nest
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def sent_bytes(text: str) -> int:
    """Return the bytes of a message as it is sent."""
    return len(text.encode()) + _AROUND


def bundles_of(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield texts in order, as many together as a bundle takes; a larger one is alone."""
    return chunks(
        texts,
        sent_bytes,
        items_most=BUNDLE_MESSAGES,
        bytes_most=BUNDLE_BYTES,
    )
