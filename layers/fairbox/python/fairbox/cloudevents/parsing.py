"""CloudEvents to events: structured mode, batches, and HTTP binary mode, strictly."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from fairbox.cloudevents.events import OWN, CloudEvent
from fairbox.cloudevents.writing import JSON
from fairbox.errors import InvalidInput
from fairbox.model import event_attributes as attributes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SPACE = re.compile(r"[ \t\n\r]*")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_FIELDS: Final = OWN | {"specversion"}
_MAX_INTEGER: Final = 2**31


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of a JSON object: its value, its text, and its text with the space around."""

    value: Any
    text: str
    spaced: str


def parse_structured(body: bytes, *, exact: bool = False) -> CloudEvent:
    """Return the event of a JSON object in structured mode.

    Args:
        body: JSON in UTF-8.
        exact: keep white space around a JSON value in `data`, as `envelope` writes a body there.

    Raises:
        InvalidInput: it is no event; the field is `ce`, or `ce.NAME`.
    """
    return _event(_members(body), "ce", exact=exact)


def member_texts(body: bytes) -> dict[str, str]:
    """Return the members of a JSON object by name, each as the text that stands there.

    Raises:
        InvalidInput: it is none; the field is `ce`.
    """
    return {name: member.text for name, member in _members(body).items()}


def parse_batch(body: bytes) -> list[CloudEvent]:
    """Return the events of a JSON array; an empty array has none.

    Raises:
        InvalidInput: it is no batch; the field is `events`, `events[N]` or `events[N].NAME`.
    """
    text = _text(body, "events")
    return [
        _event(members, f"events[{number}]", exact=False)
        for number, members in enumerate(_array(text))
    ]


def parse_binary(headers: Mapping[str, str], body: bytes) -> CloudEvent:
    """Return the event of an HTTP message in binary mode; header names in any case.

    Raises:
        InvalidInput: it is no event; the field is `ce.NAME`.
    """
    found: dict[str, str] = {}
    media_type: str | None = None

    for header, value in headers.items():
        lower = header.lower()
        if lower == "content-type":
            media_type = value.strip() or None
        elif lower.startswith("ce-"):
            name = lower[3:]
            # headers that differ in case only are the same one
            if name in found:
                raise InvalidInput(f"ce.{_shown(name)}", "one header")
            if name == "datacontenttype":
                raise InvalidInput("ce.datacontenttype", "the header Content-Type in its place")
            found[name] = _decode_header(name, value)

    return _build(found, "ce", media_type=media_type, data=body)


def _decode_header(name: str, value: str) -> str:
    value = value.strip(" \t")
    # by the HTTP binding quotes are decoded first, then percent signs
    if (quoted := _QUOTED.fullmatch(value)) is not None:
        value = re.sub(r"\\(.)", r"\1", quoted[1])
    try:
        if _BAD_PERCENT.search(value) is None:
            return unquote_to_bytes(value).decode()
    except UnicodeError:
        pass
    raise InvalidInput(f"ce.{_shown(name)}", "percent-encoded UTF-8")


def _text(body: bytes, field: str) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise InvalidInput(field, "JSON in UTF-8") from None


def _members(body: bytes) -> dict[str, _Member]:
    text = _text(body, "ce")
    members, at = _object(text, _skip(text, 0), "ce")
    if _skip(text, at) != len(text):
        raise InvalidInput("ce", "one JSON object")
    return members


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _array(text: str) -> Iterator[dict[str, _Member]]:
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        raise InvalidInput("events", "a JSON array of events")
    at = _skip(text, at + 1)

    number = 0
    # behind a comma another event must follow
    while text[at : at + 1] != "]" or number:
        members, at = _object(text, at, f"events[{number}]")
        yield members
        number += 1
        at = _skip(text, at)
        if text[at : at + 1] == "]":
            break
        if text[at : at + 1] != ",":
            raise InvalidInput("events", f"',' or ']' after event {number - 1}")
        at = _skip(text, at + 1)

    if _skip(text, at + 1) != len(text):
        raise InvalidInput("events", "one JSON array")


def _object(text: str, at: int, field: str) -> tuple[dict[str, _Member], int]:
    """Return the members of the JSON object at `at`, and where it ends."""
    if text[at : at + 1] != "{":
        raise InvalidInput(field, "a JSON object")

    members: dict[str, _Member] = {}
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return members, at + 1

    # behind a comma another member must follow
    while True:
        if text[at : at + 1] != '"':
            raise InvalidInput(field, f"a member's name at character {at}")
        name, at = _value(text, at, field)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise InvalidInput(field, f"':' at character {at}")
        before = at + 1

        start = _skip(text, before)
        inner = f"{field}.{_shown(name)}"
        # parsers keep the first or the last one: two receivers could see two events
        if name in members:
            raise InvalidInput(inner, "one member of this name")
        value, end = _value(text, start, inner)
        at = _skip(text, end)
        members[name] = _Member(value, text[start:end], text[before:at])

        if text[at : at + 1] == "}":
            return members, at + 1
        if text[at : at + 1] != ",":
            raise InvalidInput(field, f"',' or '}}' at character {at}")
        at = _skip(text, at + 1)


def _value(text: str, at: int, field: str) -> tuple[Any, int]:
    try:
        return JSON.raw_decode(text, at)
    except RecursionError:
        raise InvalidInput(field, "JSON that is nested less deeply") from None
    except ValueError:
        raise InvalidInput(field, f"JSON at character {at}") from None


def _event(members: dict[str, _Member], field: str, *, exact: bool) -> CloudEvent:
    values: dict[str, str] = {}
    for name, member in members.items():
        # an attribute that is null is absent
        if name in ("data", "data_base64") or member.value is None:
            continue
        values[name] = _attribute(name, member, field)
    media_type = values.pop("datacontenttype", None)
    if media_type is None and ("data" in members or "data_base64" in members):
        media_type = "application/json"  # which the JSON format implies
    data = _data(members, media_type, field, exact=exact)
    return _build(values, field, media_type=media_type, data=data)


def _attribute(name: str, member: _Member, field: str) -> str:
    value = member.value
    if isinstance(value, bool) and name not in _FIELDS:
        return "true" if value else "false"
    # numbers are read as texts too: only the quotes tell them apart
    if isinstance(value, str) and member.text.startswith('"'):
        return value
    if isinstance(value, str) and name not in _FIELDS and _is_integer(member.text):
        return str(int(member.text))
    words = "text" if name in _FIELDS else "text, true, false, or an integer of 32 bits"
    raise InvalidInput(f"{field}.{_shown(name)}", words)


def _is_integer(text: str) -> bool:
    digits = re.fullmatch(r"-?[0-9]{1,10}", text)
    return digits is not None and -_MAX_INTEGER <= int(text) < _MAX_INTEGER


def _data(members: dict[str, _Member], media_type: str | None, field: str, *, exact: bool) -> bytes:
    data, coded = members.get("data"), members.get("data_base64")
    if coded is not None and coded.value is not None:
        if data is not None:
            raise InvalidInput(f"{field}.data_base64", "data or data_base64, not both")
        try:
            return base64.b64decode(_string(coded, f"{field}.data_base64"), validate=True)
        except (binascii.Error, ValueError):
            raise InvalidInput(f"{field}.data_base64", "base64 text (RFC 4648)") from None

    if data is None:
        return b""
    if attributes.is_json(media_type or ""):
        # as it was written: JSON that is read and written again may have other numbers
        return (data.spaced if exact else data.text).encode()
    # null is a value of JSON, and no data of another type
    if data.value is None:
        return b""
    if attributes.charset(media_type or "") not in ("utf-8", "us-ascii"):
        raise InvalidInput(f"{field}.data", "data_base64, for text that is not UTF-8")

    try:
        return _string(data, f"{field}.data").encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{field}.data", "text without lone surrogates") from None


def _string(member: _Member, field: str) -> str:
    if not isinstance(member.value, str) or not member.text.startswith('"'):
        raise InvalidInput(field, "a JSON string, for data that is not JSON")
    return member.value


def _build(
    values: Mapping[str, str], field: str, *, media_type: str | None, data: bytes
) -> CloudEvent:
    for name in ("specversion", "id", "source", "type"):
        if name not in values:
            raise InvalidInput(f"{field}.{name}", "a value: it is required")

    try:
        return CloudEvent(
            **{name: values[name] for name in _FIELDS if name in values},
            datacontenttype=media_type,
            extensions={k: v for k, v in values.items() if k not in _FIELDS},
            data=data,
        )
    except InvalidInput as error:
        inner = error.field.removeprefix("ce.")
        raise InvalidInput(f"{field}.{inner}", error.expected) from None


def _shown(name: str) -> str:
    return json.dumps(name)[1:-1][:80]
