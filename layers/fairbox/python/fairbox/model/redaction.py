"""Redaction: secrets taken out of addresses and of receivers' answers that are kept or shown."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

MASK: Final = "***"
MAX_SEARCHED: Final = 1024 * 1024
"""Bytes of a message in which words of an answer are looked up; beside a larger one none stays."""
_MIN_SECRET: Final = 4  # shorter ones would blank half of every sentence
_MIN_WORD: Final = 6
_LONG_WORD: Final = 16
_URL: Final = re.compile(r"(https?:)(//)?([^/?#]*@)?([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
_PARAMETER: Final = re.compile(r"([?&;])([^=&;]*)(=?)([^&;]*)")
_WORD: Final = re.compile(r"[^\s\"'<>(){}\[\],;=&\\]+")
_CREDENTIAL: Final = re.compile(
    r"whsec_[A-Za-z0-9+/=_-]+"
    r"|\bv1a?,[A-Za-z0-9+/=]{16,}"
    r"|(?i:\b(?:bearer|basic)(?:\s|%20)+[A-Za-z0-9._~+/=-]{6,})"
    r"|(?i:\bauthorization\b[\"']?\s*[:=]\s*[\"']?[^\s\"',}]+)"
)


@lru_cache(maxsize=1024)  # each line of the archive has one, of the same few subscriptions
def redacted_address(address: str) -> str:
    """Return an address without secrets: an `https` one without user and query values."""
    found = _URL.fullmatch(address)
    if found is None:
        return address
    scheme, slashes, user, path, query, fragment = (part or "" for part in found.groups())
    return f"{scheme}{slashes}{MASK + '@' if user else ''}{path}{_masked(query)}{fragment}"


def has_user(address: str) -> bool:
    """Whether an `http` or `https` address carries a user or a password."""
    found = _URL.fullmatch(address)
    return found is not None and bool(found[3])


def is_redacted(address: str) -> bool:
    """Whether the address has been redacted: it is no longer the original."""
    found = _URL.fullmatch(address)
    return found is not None and MASK in f"{found[3] or ''}{found[5] or ''}"


def secrets_of(target: str) -> list[str]:
    """Return the values of the query of a request's target (`/path?a=b`), longest first."""
    query = target.partition("?")[2]
    values = [value or name for _, name, _, value in _PARAMETER.findall(f"?{query}")]
    return sorted((value for value in values if len(value) >= _MIN_SECRET), key=len, reverse=True)


def redacted_text(text: str, secrets: Iterable[str], sent: bytes) -> str:
    """Return a receiver's answer without secrets, and without repeated parts of the message.

    It removes `secrets`, text that looks like a credential or a signature, and words of `sent` (the
    body, and the headers of its producer): words of at least six characters with a digit or an `@`
    among them, and words of at least sixteen.
    """
    if len(sent) > MAX_SEARCHED:
        # too much to search in: the whole answer goes
        return MASK if text.strip() else text

    # longest first, as given: one may be part of another
    for secret in secrets:
        text = text.replace(secret, MASK)
    text = _CREDENTIAL.sub(MASK, text)

    def word(found: re.Match[str]) -> str:
        text = found[0].strip(".:!?")
        # short words without digits are mostly those of any error, and say nothing of the message
        telling = len(text) >= _LONG_WORD or (
            len(text) >= _MIN_WORD and any(c.isdigit() or c == "@" for c in text)
        )
        return MASK if telling and text.encode(errors="replace") in sent else found[0]

    return _WORD.sub(word, text)


def _masked(query: str) -> str:
    def one(found: re.Match[str]) -> str:
        mark, name, equals, value = found.groups()
        if not equals and name:
            return f"{mark}{MASK}"  # a token alone
        return f"{mark}{name}{equals}{MASK if value else ''}"

    return _PARAMETER.sub(one, query)
