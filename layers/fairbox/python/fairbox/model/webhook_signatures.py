"""Signatures of Standard Webhooks, version 1.

The package `standardwebhooks` of PyPI signs text only, and bodies here are bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

_PREFIX: Final = "whsec_"
_MIN_BYTES: Final = 24
_MAX_BYTES: Final = 64


def parse_secret(text: str) -> bytes:
    """Return the key that a secret `whsec_BASE64` holds.

    Raises:
        InvalidInput: it holds none of 24 to 64 bytes; the error does not show the text.
    """
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not _MIN_BYTES <= len(key) <= _MAX_BYTES:
        raise InvalidInput("secret", "whsec_ and the base64 of 24 to 64 bytes")
    return key


def signed_headers(
    message_id: str, seconds: int, body: bytes, keys: Sequence[bytes]
) -> dict[str, str]:
    """Return `webhook-id`, `webhook-timestamp`, and with keys `webhook-signature`.

    Args:
        message_id: the same for every attempt.
        seconds: of this attempt, since 1970 UTC.
        body: as it is sent; headers are not signed.
        keys: one signature each, so that receivers change theirs without a gap.
    """
    headers = {"webhook-id": message_id, "webhook-timestamp": str(seconds)}
    signatures = ["v1," + _signature(f"{message_id}.{seconds}.", body, key) for key in keys]
    return headers | ({"webhook-signature": " ".join(signatures)} if signatures else {})


def _signature(before: str, body: bytes, key: bytes) -> str:
    """Return the base64 of the HMAC over a text and a body, without a copy of the body."""
    code = hmac.new(key, before.encode(), hashlib.sha256)
    code.update(body)
    return base64.b64encode(code.digest()).decode()
