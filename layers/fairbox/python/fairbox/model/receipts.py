"""Receipts, by which consumers show that messages are their own, and messages as they get them."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Final, Literal

from fairbox.errors import InvalidInput
from fairbox.model.messages import Message, MessageRef

ClaimPlace = Literal["ready", "later", "held", "dead"]
TOKEN_BYTES: Final = 12
MAX_CONSUMER_CHARACTERS: Final = 64
_PLACES: Final[dict[str, ClaimPlace]] = {"r": "ready", "l": "later", "h": "held", "d": "dead"}
_LETTERS: Final[dict[ClaimPlace, str]] = {place: letter for letter, place in _PLACES.items()}
_CHECK_BYTES: Final = 6
_MAX_LENGTH: Final = 512
_EXPECTED: Final = "a receipt that receive gave, as it was"


@dataclass(frozen=True, slots=True)
class Receipt:
    """Names a message and one holding of it.

    Attributes:
        ref: the message.
        place: where the claim is written: on the message in lane `ready`, `later` or `dead`, or,
            on ordered topics, among those `held` by the shard's row.
        token: the fencing token; it is no other holder's, of this message or another.
        until: when the message could be received by others as it was claimed, in milliseconds
            since 1970 UTC.
    """

    ref: MessageRef
    place: ClaimPlace
    token: bytes
    until: int

    def __str__(self) -> str:
        payload = b"\0".join(
            text.encode()
            for text in (_LETTERS[self.place], str(self.ref), self.token.hex(), str(self.until))
        )
        # the letter first: a text that began with "-" would be an option on a command line
        text = base64.urlsafe_b64encode(payload + _check(payload))
        return text.decode().rstrip("=")

    @classmethod
    def parse(cls, text: str, *, field: str = "receipt") -> Receipt:
        """Return the receipt that `str` wrote.

        Raises:
            InvalidInput: the text is cut short, changed, or never was a receipt; it names `field`.
        """
        try:
            receipt = cls._read(text)
        except (ValueError, KeyError, binascii.Error):
            receipt = None
        # written again it is the same: the check fits, and no other text means these bytes
        if receipt is None or str(receipt) != text or len(receipt.token) != TOKEN_BYTES:
            raise InvalidInput(field, _EXPECTED)
        return receipt

    def check_alive(self, field: str = "receipt") -> None:
        """Refuse the receipt of a dead letter with `InvalidInput`, which names `field`."""
        if self.place == "dead":
            raise InvalidInput(field, "the receipt of a message that is not a dead letter")

    @classmethod
    def _read(cls, text: str) -> Receipt | None:
        if not isinstance(text, str) or len(text) > _MAX_LENGTH:
            return None
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        letter, ref, token, until = raw[:-_CHECK_BYTES].decode("ascii").split("\0")
        return cls(MessageRef.parse(ref), _PLACES[letter], bytes.fromhex(token), int(until))


def _check(payload: bytes) -> bytes:
    # finds texts that were cut or mistyped; it is no signature, and the token is what proves
    return hashlib.sha256(b"fairbox/receipt\0" + payload).digest()[:_CHECK_BYTES]


def check_consumer(value: str, field: str = "consumer") -> str:
    """Return the name of a consumer if it is valid.

    Raises:
        InvalidInput: it is not ASCII text of at most 64 printable characters; it names `field`.
    """
    if not (isinstance(value, str) and value.isascii() and value.isprintable()) or (
        len(value) > MAX_CONSUMER_CHARACTERS
    ):
        expected = f"at most {MAX_CONSUMER_CHARACTERS} printable characters of ASCII"
        raise InvalidInput(field, expected)
    return value


@dataclass(frozen=True, slots=True)
class Received:
    """A message that a consumer holds.

    Attributes:
        message: the message, with its body.
        receipt: proof of the claim, for `ack`, `nack` and `extend`.
        receive_count: number of receives, including this one; from 1.
        visible_at: the time from which others may receive it, in milliseconds since 1970 UTC.
        reason, subscriptions: of a dead letter: the last failure, and those for which it died.
    """

    message: Message
    receipt: str
    receive_count: int
    visible_at: int
    reason: str = ""
    subscriptions: frozenset[str] = frozenset()
