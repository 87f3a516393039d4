"""A request as the API reads it, from an event of payload format 2.0; JSON and fields strictly."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from fairbox.problems import FieldError, Refusal, invalid, malformed

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BODY_BYTES: Final = 4_500_000  # in base64 it fits the 6 MB of a Lambda event
JSON_TYPE: Final = "application/json"
_SPACE = re.compile(r"[ \t\n\r]*")
_CHARSET = re.compile(r';\s*charset="?([^";\s]+)', re.IGNORECASE)

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request.

    Attributes:
        method, path: as routed; the path is decoded.
        query: parameters by name, decoded; repeated ones joined by commas.
        headers: by lower-case name.
        body: the bytes.
        id: the gateway's name for it.
        params: the path's parameters, by the names in the route.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    id: str
    params: Mapping[str, str]

    @classmethod
    def from_event(cls, event: Mapping[str, Any], params: Mapping[str, str]) -> Request:
        """Read the event of an HTTP API; a body counts where the method gives it a meaning.

        Raises:
            Refusal: 400, the body is no UTF-8; 413, it is too large.
        """
        context = event["requestContext"]
        method = context["http"]["method"]
        return cls(
            method=method,
            path=event["rawPath"],
            # API Gateway leaves both out where there are none
            query=event.get("queryStringParameters") or {},
            headers={k.lower(): v for k, v in (event.get("headers") or {}).items()},
            body=_body(event) if method in ("POST", "PUT", "PATCH") else b"",
            id=context["requestId"],
            params=params,
        )

    @property
    def media_type(self) -> str:
        """The body's media type in lower case, without parameters; empty: not said."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def check_encoding(self) -> None:
        """Refuse what is compressed, or text that is not UTF-8.

        Raises:
            Refusal: 415.
        """
        coding = self.headers.get("content-encoding", "identity").strip().lower()
        # nothing is unpacked here: a small compressed body may have gigabytes
        if coding != "identity":
            raise unsupported("content-encoding", "none: the body as it is")
        charset = _CHARSET.search(self.headers.get("content-type", ""))
        if charset is not None and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
            raise unsupported("content-type", "charset utf-8")

    def model(self, kind: type[M], *, required: bool = True) -> M:
        """Return the JSON body as a model; one that is not required and not there as `{}`.

        Raises:
            Refusal: 400, it is not JSON; 415, it says that it is something else; 422, a field.
        """
        if not required and not self.body:
            return checked(kind, {})
        if self.media_type != JSON_TYPE:
            raise unsupported("content-type", JSON_TYPE)
        self.check_encoding()
        return checked(kind, parse_json(self.body))

    def parameters(self, kind: type[M]) -> M:
        """Return the query's parameters as a model.

        Raises:
            Refusal: 422, a parameter is unknown or not what it takes.
        """
        return checked(kind, dict(self.query))


def unsupported(header: str, expected: str) -> Refusal:
    """Return the refusal of a body of another kind (415)."""
    return Refusal(
        "unsupported-media-type", f"{header}: expected {expected}", [FieldError(header, expected)]
    )


def checked(kind: type[M], value: object) -> M:
    """Return the value as a model.

    Raises:
        Refusal: 422, with every field that is not what it takes.
    """
    # checked apart: pydantic's message would name the model
    if not isinstance(value, dict):
        raise invalid([FieldError("$", "a JSON object")])
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise invalid([_field_error(e) for e in error.errors(include_url=False)]) from None


def _field_error(error: Any) -> FieldError:
    # pydantic marks a wrong key of a dictionary by `[key]`, behind its name
    field = ".".join(str(part) for part in error["loc"] if part != "[key]") or "$"
    if error["type"] == "missing":
        return FieldError(field, "a value: it is required")
    if error["type"] == "extra_forbidden":
        return FieldError(field, "no field of this name")
    return FieldError(field, error["msg"].removeprefix("Input should be "))


def parse_json(body: bytes) -> object:
    """Return the value of a JSON text in UTF-8, each member's name once.

    Raises:
        Refusal: 400, it is none.
    """
    try:
        return json.loads(
            body.decode(), object_pairs_hook=_members, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError:
        raise malformed("$", "JSON in UTF-8") from None
    # nesting of some thousand levels ends Python's parser, and is the caller's mistake
    except RecursionError:
        raise malformed("$", "JSON that is nested less deeply") from None
    except json.JSONDecodeError as error:
        raise malformed("$", f"JSON: {error.msg} at character {error.pos}") from None
    # behind its subclasses: Python refuses to convert longer integers, whose time is quadratic
    except ValueError:
        raise malformed("$", "JSON with numbers of at most 4,300 digits") from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # of two members with a name, Python would take the last and other parsers the first
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise malformed(name, "one member of this name")
            seen.add(name)
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise malformed("$", f"JSON, which has no {name}")


def member_text(body: bytes, name: str) -> bytes:
    """Return a member of a JSON object as it is written; of a text that `parse_json` took."""
    text = body.decode()
    decoder = json.JSONDecoder()
    at = _skip(text, _skip(text, 0) + 1)

    while text[at] != "}":
        found, at = decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)  # behind the colon
        _, end = decoder.raw_decode(text, start)
        if found == name:
            return text[start:end].encode()
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)

    raise KeyError(name)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _body(event: Mapping[str, Any]) -> bytes:
    text = event.get("body") or ""
    try:
        body = (
            base64.b64decode(text, validate=True) if event.get("isBase64Encoded") else text.encode()
        )
    except (binascii.Error, UnicodeEncodeError, ValueError):
        raise malformed("$", "a body of bytes, or of text in UTF-8") from None

    if len(body) > MAX_BODY_BYTES:
        expected = f"at most {MAX_BODY_BYTES} bytes"
        raise Refusal(
            "too-large",
            f"body: expected {expected}, got {len(body)}",
            [FieldError("body", expected)],
        )

    return body
