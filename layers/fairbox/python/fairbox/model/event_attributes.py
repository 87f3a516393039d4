"""Values that attributes of CloudEvents 1.0 take: names, texts, times, URIs, media types."""

from __future__ import annotations

import re
from datetime import date
from typing import Final

SPECVERSION: Final = "1.0"
REF: Final = "fairboxref"
HEADERS: Final = "fairboxheaders"
BATCH_ITEM: Final = "batchitem"
FAIRNESS_KEY: Final = "fairnesskey"
OURS: Final = frozenset({REF, HEADERS, BATCH_ITEM, FAIRNESS_KEY})
"""Extensions for which the message has a field of its own; no header gives them."""
TRACING: Final = ("traceparent", "tracestate")
MEMBERS: Final = frozenset({"data", "data_base64", "specversion", "datacontenttype"})
_MAX_NAME: Final = 64  # the specification's 20 is a recommendation

_NAME = re.compile(rf"[a-z0-9]{{1,{_MAX_NAME}}}")
_PLANES = "".join(f"{chr(p << 16 | 0xFFFE)}-{chr(p << 16 | 0xFFFF)}" for p in range(17))
_ILLEGAL = re.compile(rf"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_PLANES}]")
_URI = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE = re.compile(rf"({_WORD})/({_WORD})([ \t]*;[\x20-\x7e\t]*)?")
_CHARSET = re.compile(r';\s*charset="?([^";\s]+)', re.IGNORECASE)
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?"
    r"(?:[Zz]|[+-]([0-9]{2}):([0-9]{2}))"
)
_MAX_MEDIA_TYPE: Final = 255


def is_name(name: str) -> bool:
    """Whether an attribute may have this name."""
    return _NAME.fullmatch(name) is not None


def is_text(value: str) -> bool:
    """Whether it is a non-empty String of the specification's type system."""
    return bool(value) and _ILLEGAL.search(value) is None


def is_uri_reference(value: str) -> bool:
    """Whether it is written in the characters of RFC 3986."""
    return _URI.fullmatch(value) is not None


def is_uri(value: str) -> bool:
    """Whether it is an absolute URI."""
    return is_uri_reference(value) and _SCHEME.match(value) is not None


def is_time(value: str) -> bool:
    """Whether it is a date and time of RFC 3339 (a leap second included)."""
    match = _TIME.fullmatch(value)
    if match is None:
        return False
    year, month, day, hour, minute, second, *offset = (int(g or 0) for g in match.groups())
    try:
        # days of a month, and leap years
        date(year, month, day)
    except ValueError:
        return False
    # second 60 is a leap second
    return hour <= 23 and minute <= 59 and second <= 60 and offset[0] <= 23 and offset[1] <= 59


def is_media_type(value: str) -> bool:
    """Whether it is a media type, with or without parameters."""
    return len(value) <= _MAX_MEDIA_TYPE and _MEDIA_TYPE.fullmatch(value) is not None


def is_json(media_type: str) -> bool:
    """Whether the media type declares JSON: the subtype is `json` or ends in `+json`."""
    match = _MEDIA_TYPE.fullmatch(media_type)
    subtype = match[2].lower() if match else ""
    return subtype == "json" or subtype.endswith("+json")


def is_utf8_text(media_type: str) -> bool:
    """Whether the media type declares text in UTF-8, which a `text/` without charset is."""
    return media_type.lower().startswith("text/") and charset(media_type) in ("utf-8", "us-ascii")


def charset(media_type: str) -> str:
    """Return the media type's charset in lower case; `utf-8` where it names none."""
    match = _CHARSET.search(media_type)
    name = match[1].lower() if match else "utf-8"
    return "utf-8" if name == "utf8" else name


_KINDS: Final = {
    "source": (is_uri_reference, "a non-empty URI-reference (RFC 3986)"),
    "dataschema": (is_uri, "an absolute URI (RFC 3986)"),
    "dataref": (is_uri_reference, "a non-empty URI-reference (RFC 3986)"),
    "time": (is_time, "a date and time of RFC 3339, such as 2026-11-19T05:00:00Z"),
    "datacontenttype": (is_media_type, "a media type of at most 255 ASCII characters"),
}
_TEXT: Final = (is_text, "non-empty text without control characters")


def expected(name: str, value: str) -> str | None:
    """Return the values that the attribute takes when this is not one of them; else None."""
    test, words = _KINDS.get(name, _TEXT)
    return None if test(value) else words
