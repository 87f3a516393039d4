"""Lines of a file to Arrow batches; valid lines are checked column by column.

Only `lines` decides about a line and its faults. Here only clearly valid slices are taken as a
whole: JSON objects of known fields, each of its type. Any other slice goes line by line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from fairbox_pipeline.lines import FIELDS, MOST, TYPES, Chunk, chunks_of, digest, lines_of, readable
from fairbox_pipeline.schemas import EVENTS, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox_pipeline.lines import Line

EVENT: Final = "event"
MALFORMED: Final = "malformed"
DAMAGED: Final = "damaged"
LINE_SCHEMA: Final = StructType(
    [
        StructField("uri", StringType()),
        StructField("line", LongType()),
        StructField("kind", StringType()),
        StructField("fault", StringType()),
        StructField("text", StringType()),
        StructField("digest", StringType()),
        StructField("cut", BooleanType()),
        *(StructField(c.name, c.type) for c in FIELDS),
    ]
)
_ARROW: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
_ARROW_SCHEMA: Final = pa.schema(
    [(f.name, _ARROW[f.dataType.simpleString()]) for f in LINE_SCHEMA.fields]
)
_NAMES: Final = tuple(name for name in LINE_SCHEMA.names if name != "uri")
_SLICE: Final = 256
_NOTHING: Final = type(None)
_REQUIRED: Final = frozenset(c.name for c in REQUIRED)
_ALLOWED: Final = {
    name: {kind} if name in _REQUIRED else {kind, _NOTHING} for name, kind in TYPES.items()
}
_KNOWN: Final = frozenset(TYPES)
_INTEGERS: Final = tuple(name for name, kind in TYPES.items() if kind is int)
_MAPS: Final = tuple(name for name, kind in TYPES.items() if kind is dict)

Columns = dict[str, list[Any]]


def batches_of(uri: str, content: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a file, of an address and bytes, in the columns of `LINE_SCHEMA`."""
    for chunk in chunks_of(content):
        yield _batch(uri, _columns_of(chunk))


def _columns_of(chunk: Chunk) -> Columns:
    if chunk.cut or chunk.damage is not None:
        return _line_by_line(chunk)
    whole: Columns = {name: [] for name in _NAMES}
    for start in range(0, len(chunk.raws), _SLICE):
        part = Chunk(chunk.first + start, chunk.raws[start : start + _SLICE])
        for name, values in (_all_at_once(part) or _line_by_line(part)).items():
            whole[name] += values
    return whole


def _all_at_once(part: Chunk) -> Columns | None:
    """Return the columns of lines that are all valid events; None: some is not."""
    try:
        rows = [orjson.loads(raw) for raw in part.raws]
    except orjson.JSONDecodeError:
        return None
    if set(map(type, rows)) != {dict} or not all(row.keys() <= _KNOWN for row in rows):
        return None
    columns: Columns = {name: [row.get(name) for row in rows] for name in TYPES}
    if not _as_they_should_be(columns):
        return None
    count = len(rows)
    columns |= {name: [None] * count for name in _NAMES if name not in _KNOWN}
    columns["line"] = list(range(part.first, part.first + count))
    columns["kind"] = [EVENT] * count
    return columns


def _as_they_should_be(columns: Columns) -> bool:
    """Whether `lines.parse_event` would find no fault and no unknown field."""
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


def _line_by_line(part: Chunk) -> Columns:
    rows = [_row(line) for line in lines_of(part)]
    return {name: [row.get(name) for row in rows] for name in _NAMES}


def _row(line: Line) -> dict[str, Any]:
    """Return the columns of one line; the others are null."""
    if line.event is not None:
        return line.event | {"line": line.number, "kind": EVENT}
    row = {"line": line.number, "fault": line.reason, "cut": line.cut}
    if line.raw is None:
        return row | {"kind": DAMAGED}
    return row | {"kind": MALFORMED, "text": readable(line.raw), "digest": digest(line.raw)}


def _batch(uri: str, columns: Columns) -> pa.RecordBatch:
    for name in _MAPS:
        columns[name] = [None if held is None else list(held.items()) for held in columns[name]]
    columns["uri"] = [uri] * len(columns["line"])
    arrays = [pa.array(columns[field.name], field.type) for field in _ARROW_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)
