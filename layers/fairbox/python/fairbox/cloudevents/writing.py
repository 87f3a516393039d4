"""Messages to CloudEvents: the structured envelope in JSON, and the headers of HTTP binary mode."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from fairbox.model import event_attributes as attributes
from fairbox.model.ids import LAST_MS, time_of

if TYPE_CHECKING:
    from fairbox.model.messages import Message
    from fairbox.tables.stored_messages import StoredMessage

STRUCTURED_TYPE: Final = "application/cloudevents+json"
BATCH_TYPE: Final = "application/cloudevents-batch+json"
DEFAULT_TYPE: Final = "fairbox.message"
_OCTETS: Final = "application/octet-stream"
_KEPT: Final = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) not in '"%')
_NOT_IN_XML = re.compile("[\ufffe\uffff]")  # which SQS and SNS refuse
_ORDER: Final = ("id", "source", "type", "time", "subject", "dataschema")


def _no_constant(name: str) -> None:
    raise ValueError(name)


# Numbers stay text: of any length, and no time is spent on them.
JSON = json.JSONDecoder(parse_constant=_no_constant, parse_int=str, parse_float=str)


def default_source(topic: str) -> str:
    """Return the source of messages whose producer named none."""
    return f"/fairbox/topics/{topic}"


def content_type(message: Message) -> str:
    """Return the message's media type; that of octets where it has none."""
    declared = message.content_type
    return declared if attributes.is_media_type(declared) else _OCTETS


def split_headers(message: Message) -> tuple[dict[str, str], dict[str, str]]:
    """Return the attributes that headers give, and the headers that give none."""
    given: dict[str, str] = {}
    weak: dict[str, str] = {}
    rest: dict[str, str] = {}

    for header, value in message.headers.items():
        lower = header.lower()
        name = lower.removeprefix("ce-")
        legal = attributes.is_name(name) and attributes.expected(name, value) is None
        ours = name in attributes.MEMBERS or name in attributes.OURS
        if legal and not ours and (name != lower or name in attributes.TRACING):
            given[name] = value
        else:
            rest[header] = value
            # `ce-type` counts more, in whichever order they come
            if legal and lower == "type":
                weak["type"] = value

    return weak | given, rest


def attributes_of(stored: StoredMessage, *, uri: str | None = None) -> dict[str, str]:
    """Return every attribute of the envelope but `fairboxheaders`, in the order of writing."""
    message = stored.message
    given, _ = split_headers(message)
    given.setdefault("id", message.id)
    given.setdefault("source", default_source(message.topic))
    given.setdefault("type", DEFAULT_TYPE)
    if "time" not in given and (time := _id_time(message)) is not None:
        given["time"] = time

    result = {"specversion": attributes.SPECVERSION}
    result |= {name: given.pop(name) for name in _ORDER if name in given}
    result["datacontenttype"] = content_type(message)
    if message.partition_key is not None and attributes.is_text(message.partition_key):
        given["partitionkey"] = message.partition_key
    result |= given

    if message.batch_item is not None:
        result[attributes.BATCH_ITEM] = message.batch_item
    if message.fairness_key is not None and attributes.is_text(message.fairness_key):
        result[attributes.FAIRNESS_KEY] = message.fairness_key
    result[attributes.REF] = str(stored.ref)

    uri = uri or claim_check(stored)
    if uri is not None:
        result["dataref"] = uri
    return result


def claim_check(stored: StoredMessage) -> str | None:
    """Return where the body lies when it is not in place."""
    away = stored.offloaded is not None and not stored.message.body
    return stored.offloaded.uri if stored.offloaded is not None and away else None


def _id_time(message: Message) -> str | None:
    if time_of(message.id) > LAST_MS:
        return None  # a year beyond 9999 has no text
    return message.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def envelope(stored: StoredMessage, *, uri: str | None = None) -> bytes:
    """Return the message in structured mode: one JSON object in UTF-8.

    A JSON body is embedded byte for byte as `data`, which is the last member and has nothing
    around it; text in UTF-8 as a JSON string; everything else as `data_base64`.

    Args:
        stored: the message, with its ref.
        uri: goes out as `dataref`, in place of the data; of itself where the body is offloaded
            and not in place.
    """
    members = attributes_of(stored, uri=uri)
    _, rest = split_headers(stored.message)
    if rest:
        members[attributes.HEADERS] = json.dumps(rest, separators=(",", ":"))
    head = json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()
    away = uri is not None or claim_check(stored) is not None
    data = b"" if away else _data_member(stored.message)
    # joined by hand: a body that is parsed and written again would have other bytes
    return head[:-1] + data + b"}"


def _data_member(message: Message) -> bytes:
    body = message.body
    if not body:
        return b""
    media_type = content_type(message)
    text = _clean_text(body)
    if text is not None and attributes.is_json(media_type) and is_json_text(text):
        return b',"data":' + body
    if text is not None and attributes.is_utf8_text(media_type):
        return b',"data":' + json.dumps(text, ensure_ascii=False).encode()
    return b',"data_base64":"' + base64.b64encode(body) + b'"'


def _clean_text(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if _NOT_IN_XML.search(text) else text


def is_json_text(text: str) -> bool:
    """Whether the text is one JSON value (RFC 8259)."""
    try:
        JSON.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def encode_header(value: str) -> str:
    """Return the text as an HTTP header carries it: percent-encoded by the HTTP binding's rules."""
    return quote(value, safe=_KEPT)


def binary_headers(stored: StoredMessage, *, uri: str | None = None) -> dict[str, str]:
    """Return the headers of HTTP binary mode, whose body is the message's: names in lower case."""
    headers = {
        f"ce-{name}": encode_header(value)
        for name, value in attributes_of(stored, uri=uri).items()
        # header `content-type` has it
        if name != "datacontenttype"
    }
    return {"content-type": content_type(stored.message)} | headers
