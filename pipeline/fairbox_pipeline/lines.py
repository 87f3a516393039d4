"""Bytes of an archive file to events and malformed lines, in Arrow batches.

Python, not Spark's own reader, for three reasons: Spark knows no line numbers, accepts what follows
a JSON object, and turns wrong types into NULL or into strings: see docs/decisions/0006-pipeline.md.

Lines that are clearly valid events are taken together, column by column: JSON objects of known
fields, each of its type. Beside a line that is not, each is looked at alone, by `parse_event`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from fairbox_pipeline.schemas import DRIFT, EVENTS, OPTIONAL, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EVENT: Final = "event"
MALFORMED: Final = "malformed"
LONGEST: Final = 64 << 20
"""Bytes of a line; an event of a 400 KB item takes 2.5 MB at most."""
DEEPEST: Final = 253
"""Arrays and objects inside one another in a field that is set aside; `orjson` writes no more."""
MOST: Final = 1 << 53
"""Of integers, either way: differences, and sums of a thousand, fit into 64 bits."""
_TOGETHER: Final = 1 << 20
"""Bytes of lines in a batch, and of what is kept of a line that is too long."""
_PYTHON: Final[dict[str, type]] = {"string": str, "bigint": int, "map<string,string>": dict}
_TYPES: Final = {c.name: _PYTHON[c.dataType.simpleString()] for c in (*REQUIRED, *OPTIONAL)}
_REQUIRED: Final = tuple(c.name for c in REQUIRED)
_OF_LINE: Final = ("line", "kind", "fault", "text", "digest")
LINE_SCHEMA: Final = StructType(
    [
        StructField("uri", StringType()),
        *(StructField(n, LongType() if n == "line" else StringType()) for n in _OF_LINE),
        *(StructField(c.name, c.dataType) for c in (*REQUIRED, *OPTIONAL, *DRIFT)),
    ]
)
"""`kind` is `event`, and the event's columns are set, or `malformed`: `fault`, `text`, `digest`."""
_ARROW: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
_ARROW_SCHEMA: Final = pa.schema(
    [(f.name, _ARROW[f.dataType.simpleString()]) for f in LINE_SCHEMA.fields]
)
_ALLOWED: Final = {
    name: {kind} if name in _REQUIRED else {kind, type(None)} for name, kind in _TYPES.items()
}
_INTEGERS: Final = tuple(name for name, kind in _TYPES.items() if kind is int)
_MAPS: Final = tuple(name for name, kind in _TYPES.items() if kind is dict)

Columns = dict[str, list[Any]]


class UnreadableFileError(Exception):
    """A file that is not whole; the message is a sentence that names it."""


class MalformedError(Exception):
    """A line that is not an event; the message gives the reason."""


def batches_of(uri: str, content: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a file, of an address and bytes, in the columns of `LINE_SCHEMA`.

    Raises:
        UnreadableFileError: it is no whole gzip file.
    """
    if not content:
        raise UnreadableFileError(f"{uri} cannot be read, replace or remove it: it is empty")
    first = 1
    with io.BufferedReader(gzip.GzipFile(fileobj=io.BytesIO(content)), _TOGETHER) as file:
        while True:
            try:
                raws = file.readlines(_TOGETHER)
            except (OSError, EOFError, zlib.error) as exc:
                told = f"{uri} cannot be read, replace or remove it: {exc}"
                raise UnreadableFileError(told) from None
            if not raws:
                return
            columns = _together(raws) or _one_by_one(raws)
            columns["uri"] = [uri] * len(raws)
            columns["line"] = list(range(first, first + len(raws)))
            yield _batch(columns)
            first += len(raws)


def _together(raws: list[bytes]) -> Columns | None:
    """Return the columns of lines that are all valid events; None: some may not be."""
    try:
        rows = [orjson.loads(raw) for raw in raws]
    except orjson.JSONDecodeError:
        return None
    if set(map(type, rows)) != {dict} or not all(row.keys() <= _TYPES.keys() for row in rows):
        return None
    columns: Columns = {name: [row.get(name) for row in rows] for name in _TYPES}
    columns["kind"] = [EVENT] * len(rows)
    return columns if _are_events(columns) else None


def _are_events(columns: Columns) -> bool:
    """Whether `parse_event` would find no fault and no unknown field."""
    return (
        all(set(map(type, columns[name])) <= kinds for name, kinds in _ALLOWED.items())
        and set(columns["event"]) <= EVENTS
        and all(max(map(abs, filter(None, columns[name])), default=0) <= MOST for name in _INTEGERS)
        and all(
            type(text) is str
            for name in _MAPS
            for held in columns[name]
            if held
            for text in held.values()
        )
    )


def _one_by_one(raws: list[bytes]) -> Columns:
    rows = [_row(raw.removesuffix(b"\n")) for raw in raws]
    return {name: [row.get(name) for row in rows] for name in LINE_SCHEMA.names}


def _row(raw: bytes) -> dict[str, Any]:
    """Return the columns of one line; the others are null."""
    try:
        return parse_event(raw) | {"kind": EVENT}
    except MalformedError as exc:
        kept = raw if len(raw) <= LONGEST else raw[:_TOGETHER]
        text = kept.decode("utf-8", "backslashreplace")
        digest = hashlib.sha256(kept).hexdigest()
        return {"kind": MALFORMED, "fault": str(exc), "text": text, "digest": digest}


def _batch(columns: Columns) -> pa.RecordBatch:
    nothing = [None] * len(columns["line"])
    for name in _MAPS:
        columns[name] = [None if held is None else list(held.items()) for held in columns[name]]
    arrays = [pa.array(columns.get(f.name, nothing), f.type) for f in _ARROW_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)


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
        kind = _TYPES.get(name)
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
        wanted = f"an integer{beyond}" if _TYPES[name] is int else "a string"
        return f"{name} is not {wanted}"
    return f"{name} is null" if name in found else f"{name} is missing"
