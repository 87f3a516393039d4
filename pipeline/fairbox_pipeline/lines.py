"""Bytes of an archive file to lines, and lines to events or faults.

Python, not Spark's own reader, for four reasons: Spark drops a damaged file whole or hides where it
broke, knows no line numbers, accepts what follows a JSON object, and turns wrong types into NULL or
into strings: see docs/decisions/0006-pipeline.md.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from fairbox_pipeline.schemas import DRIFT, EVENTS, OPTIONAL, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PIECE: Final = 1 << 20
_GZIP: Final = 31  # zlib's window bits with a gzip header
LONGEST: Final = 64 << 20
"""Bytes of a line; an event of a 400 KB item takes 2.5 MB at most."""
DEEPEST: Final = 253
"""Arrays and objects inside one another in a field that is set aside; `orjson` writes no more."""
MOST: Final = 1 << 53
"""Of integers, either way: differences, and sums of a thousand, fit into 64 bits."""
_PYTHON: Final[dict[str, type]] = {"string": str, "bigint": int, "map<string,string>": dict}
TYPES: Final = {c.name: _PYTHON[c.type.simpleString()] for c in (*REQUIRED, *OPTIONAL)}
_REQUIRED: Final = tuple(c.name for c in REQUIRED)
FIELDS: Final = (*REQUIRED, *OPTIONAL, *DRIFT)


class DamagedError(Exception):
    """A gzip stream that is cut or damaged; the part before is read."""


class MalformedError(Exception):
    """A line that is not an event; the message gives the reason."""


class Line(NamedTuple):
    """One line of a file, with its event or its fault.

    Attributes:
        number: from 1.
        event: the fields of the event; None where the line is malformed, or marks damage.
        reason: why it is malformed, or why the file is damaged.
        raw: the bytes of a malformed line; None where the line marks damage.
        cut: the file ended inside this line.
    """

    number: int
    event: dict[str, Any] | None = None
    reason: str | None = None
    raw: bytes | None = None
    cut: bool = False


class Chunk(NamedTuple):
    """Consecutive lines of a file.

    Attributes:
        first: number of the first of them, from 1.
        raws: the bytes of each, without its break.
        cut: the file ended inside the last of them.
        damage: why the file could not be read further; then there is no line.
    """

    first: int
    raws: list[bytes]
    cut: bool = False
    damage: str | None = None


def chunks_of(content: bytes) -> Iterator[Chunk]:
    """Yield the lines of a gzip file in chunks of 1 MiB; a damaged file ends with the reason."""
    number, length = 1, 0
    damage: str | None = None
    pieces = _gunzip(content)
    rest: list[bytes] = []
    while True:
        try:
            piece = next(pieces, None)
        except DamagedError as exc:
            damage = str(exc)
            break
        if piece is None:
            break
        first, *others = piece.split(b"\n")
        if length <= LONGEST:  # of a longer line, no more is kept than shows that it is
            rest.append(first)
            length += len(first)
        if others:
            others.insert(0, b"".join(rest))
            rest = [others.pop()]
            length = len(rest[0])
            yield Chunk(number, others)
            number += len(others)
    last = b"".join(rest)
    if last:
        yield Chunk(number, [last], cut=damage is not None)
        number += 1
    if damage is not None:
        yield Chunk(number - 1, [], damage=damage)


def read_lines(content: bytes) -> Iterator[Line]:
    """Yield every line of a gzip file; a damaged file ends with a line for the damage."""
    for chunk in chunks_of(content):
        yield from lines_of(chunk)


def lines_of(chunk: Chunk) -> Iterator[Line]:
    """Yield the lines of a chunk, or the line for the damage."""
    if chunk.damage is not None:
        yield Line(chunk.first, reason=chunk.damage)
    last = len(chunk.raws) - 1
    for place, raw in enumerate(chunk.raws):
        yield _line(chunk.first + place, raw, cut=chunk.cut and place == last)


def _line(number: int, raw: bytes, *, cut: bool = False) -> Line:
    try:
        return Line(number, event=parse_event(raw))
    except MalformedError as exc:
        reason = f"the file ends inside this line; {exc}" if cut else str(exc)
        kept = raw if len(raw) <= LONGEST else raw[:_PIECE]
        return Line(number, reason=reason, raw=kept, cut=cut)


def _gunzip(content: bytes) -> Iterator[bytes]:
    """Yield the content of a gzip file of any number of members.

    Raises:
        DamagedError: after all that could be read.
    """
    if not content:
        raise DamagedError("the file is empty: it has no gzip header")
    while content:
        stream = zlib.decompressobj(_GZIP)
        while not stream.eof:
            if not content:
                raise DamagedError("the gzip stream ends before its end")
            before = stream.copy()
            try:
                piece = stream.decompress(content, _PIECE)
            except zlib.error as exc:
                yield from _salvaged(before, content)
                raise DamagedError(f"the gzip stream is broken: {exc}") from exc
            content = stream.unconsumed_tail
            if piece:
                yield piece
        content = stream.unused_data.lstrip(b"\0")  # padding after the last member


def _salvaged(stream: Any, content: bytes) -> Iterator[bytes]:
    """Yield the content before the damage of a stream, in ever smaller steps."""
    step = _PIECE
    while step:
        before = stream.copy()
        try:
            piece = stream.decompress(content, step)
        except zlib.error:
            stream = before
            step //= 16
            continue
        content = stream.unconsumed_tail
        if not piece:
            return
        yield piece


def parse_event(raw: bytes) -> dict[str, Any]:
    """Return the fields of an event by name.

    A field that is not known goes to `extra`, a known one of another type to `changed`, both JSON
    objects with numbers as the line has them; a field that is null counts as absent.

    Raises:
        MalformedError: not one JSON object, or a field named on all events is absent, null or of
            another type, or the event is none of the eight; longer than `LONGEST`, or a field that
            is set aside is deeper than `DEEPEST`.
    """
    if len(raw) > LONGEST:
        raise MalformedError(f"longer than {LONGEST >> 20} MiB")
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise MalformedError(f"not one JSON object: {exc}") from None
    if type(found) is not dict:
        raise MalformedError(f"not one JSON object: a {type(found).__name__}")
    event, extra, changed = _sorted_by_type(found)
    for name in _REQUIRED:
        if name not in event:
            raise MalformedError(_what_is_wrong(name, found, changed))
    if event["event"] not in EVENTS:
        raise MalformedError("event is none of the eight")
    if extra or changed:
        event |= _aside(raw, {"extra": extra, "changed": changed})
    return event


def _aside(raw: bytes, aside: dict[str, Iterable[str]]) -> dict[str, str]:
    """Return fields of a line as JSON objects, with each number as the line has it.

    `orjson` makes floats of integers past 64 bits, so these few lines are read again.
    """
    try:
        found = json.loads(raw, parse_int=orjson.Fragment, parse_float=orjson.Fragment)
        objects = {column: {name: found[name] for name in names} for column, names in aside.items()}
        return {
            column: orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()
            for column, fields in objects.items()
            if fields
        }
    except (orjson.JSONEncodeError, RecursionError):
        raise MalformedError(f"a field is nested more than {DEEPEST} deep") from None


def _sorted_by_type(
    found: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the valid fields, the unknown ones, and those of another type."""
    event: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    changed: dict[str, Any] = {}
    for name, value in found.items():
        kind = TYPES.get(name)
        if kind is None:
            extra[name] = value
        elif value is None:
            continue
        elif type(value) is kind and (kind is str or _fits(value, kind)):
            event[name] = value
        else:
            changed[name] = value
    return event, extra, changed


def _fits(value: Any, kind: type) -> bool:
    """Whether an integer is at most `MOST`, and headers are strings."""
    if kind is int:
        return bool(-MOST <= value <= MOST)
    return all(type(v) is str for v in value.values())


def _what_is_wrong(name: str, found: dict[str, Any], changed: dict[str, Any]) -> str:
    if name in changed:
        beyond = " of 53 bits" if type(found[name]) is int else ""
        wanted = f"an integer{beyond}" if TYPES[name] is int else "a string"
        return f"{name} is not {wanted}"
    return f"{name} is null" if name in found else f"{name} is missing"


def readable(raw: bytes) -> str:
    r"""Return a line as text, with bytes that are not UTF-8 as `\xNN`."""
    return raw.decode("utf-8", "backslashreplace")


def digest(raw: bytes) -> str:
    """SHA-256 of a line, in hex."""
    return hashlib.sha256(raw).hexdigest()
