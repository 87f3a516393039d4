"""Signatures of webhook requests, checked by the receiver (Standard Webhooks, version 1)."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from fairbox.errors import InvalidInput
from fairbox.model.ids import parse_id
from fairbox.model.webhook_signatures import signed_headers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_AGE: Final = 300
"""Seconds by which a signature's time may differ from the receiver's."""
SIGNATURE: Final = "webhook-signature"


def check_signature(
    headers: Mapping[str, str], body: bytes, keys: Sequence[bytes], now: float
) -> str:
    """Return the message id of a request that one of the keys signed.

    Args:
        headers: names in lower case.
        body: as it was sent.
        keys: those of `parse_secret`; several while a key is being changed.
        now: seconds since 1970 UTC.

    Raises:
        InvalidInput: the request is not signed with one of the keys, or not within `MAX_AGE`; the
            field is `webhook-signature`. Or the signed id is no message's.
    """
    given = headers.get(SIGNATURE, "").split(" ")
    stamp = headers.get("webhook-timestamp", "")
    # few digits: Python takes long for a long number, or refuses it
    seconds = int(stamp) if stamp.isascii() and stamp.isdigit() and len(stamp) < 16 else 0
    message = headers.get("webhook-id", "")
    expected = signed_headers(message, seconds, body, keys) if message.isascii() else {}
    # all of them, each in constant time: how long it takes tells nothing of a key
    genuine = [
        hmac.compare_digest(mine.encode(), theirs.encode(errors="surrogatepass"))
        for mine in expected.get(SIGNATURE, "").split(" ")
        for theirs in given
        if mine
    ]
    if not any(genuine):
        raise InvalidInput(SIGNATURE, "a signature with a key of the subscription")
    if abs(now - seconds) > MAX_AGE:
        raise InvalidInput(SIGNATURE, f"a time within {MAX_AGE} s of the receiver's")
    return parse_id(headers["webhook-id"], field="webhook-id")
