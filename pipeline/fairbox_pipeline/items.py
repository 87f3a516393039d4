"""Lines of a DynamoDB export to rows: an attribute of another type is a fault, never a NULL."""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
import pyarrow as pa

from fairbox_pipeline import attributes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ITEM: Final = "item"
DELETED: Final = "deleted"
FAULT: Final = "fault"
FILE: Final = "file"
_BATCH_ROWS: Final = 10_000

COMMON: Final = (
    ("kind", pa.string()),  # item, deleted, fault, file
    ("export", pa.int32()),  # which of the exports, in their order
    ("uri", pa.string()),
    ("line", pa.int64()),  # of `file`: how many lines it has
    ("fault", pa.string()),  # of `file`: its MD5, base64
    ("written", pa.int64()),  # microseconds; of incremental exports
    ("pk", pa.string()),
    ("sk", pa.string()),
)
MESSAGES: Final = (
    ("lane", pa.string()),
    ("topic", pa.string()),
    ("epoch", pa.int64()),
    ("shard", pa.int64()),
    ("id", pa.string()),
    ("partition_key", pa.string()),
    ("content_type", pa.string()),
    ("size", pa.int64()),
    ("batch_item", pa.string()),
    ("gone", pa.string()),
    ("due", pa.int64()),
)
TOPICS: Final = (("topic", pa.string()), ("shards", pa.int64()), ("since", pa.int64()))
TRACKERS: Final = (
    ("record", pa.string()),
    ("batch", pa.string()),
    ("number", pa.int64()),  # of the group, or of the node
    ("bits", pa.binary()),
    *((name, pa.int64()) for name in ("count", "size", "failed", "settled")),
    ("state", pa.string()),
    *((name, pa.int64()) for name in ("next_group", "total", "opened")),
    ("user_key", pa.string()),
)

Row = dict[str, Any]


class ItemError(Exception):
    """An item that the codec would not write; the message names the attribute."""


class Content(NamedTuple):
    """One data file: the number of its export, its path, its bytes."""

    export: int
    uri: str
    content: bytes


def read_message(pk: str, sk: str, item: Mapping[str, Any]) -> Row | None:
    """Return the row of a message; None for every other item of the outbox.

    Raises:
        ItemError: it is a message, with an attribute of another type or a key that is none.
    """
    lane, _, rest = pk.partition("#")
    if attributes.MARK not in item or lane not in attributes.LANES:
        return None
    parts = rest.split("#")
    if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
        raise ItemError(f"pk: {pk!r} is no lane of a shard")
    row: Row = {"lane": lane, "topic": parts[0], "epoch": int(parts[1]), "shard": int(parts[2])}
    row["id"] = sk.rpartition("#")[2]
    row |= _values(item, attributes.MESSAGE)
    if lane == "later":
        due = sk.partition("#")[0]
        if not due.isdigit():
            raise ItemError(f"sk: {sk!r} does not begin with a time")
        row["due"] = int(due)
    return row


def read_topic(pk: str, sk: str, item: Mapping[str, Any]) -> Row | None:
    """Return name, shards and first time of a topic; None for every other item of the outbox.

    Raises:
        ItemError: it is a topic, whose epochs are of another form.
    """
    kind, _, name = sk.partition("#")
    if pk != attributes.CONFIG or kind != "topic" or "#" in name:
        return None
    try:
        epochs = [epoch["L"] for epoch in item[attributes.EPOCHS]["L"]]
        shards, since = int(epochs[-1][1]["N"]), int(epochs[0][2]["N"])
    except (LookupError, TypeError, ValueError):
        raise ItemError(f"{attributes.EPOCHS}: is no list of epochs") from None
    return {"topic": name, "shards": shards, "since": since}


def read_tracker(pk: str, sk: str, item: Mapping[str, Any]) -> Row | None:
    """Return the row of a root, node, leaf or failed item of a batch; None for the others.

    Raises:
        ItemError: an attribute is of another type, or the key names no group.
    """
    record = attributes.TRACKER_KINDS.get(sk)
    if record is None:
        return None
    batch, _, number = pk.partition("#")
    digits = number.removeprefix("n")
    if record != "root" and not digits.isdigit():
        raise ItemError(f"pk: {pk!r} names no group or node")
    row = {"record": record, "batch": batch, "number": int(digits) if digits else None}
    return row | _values(item, attributes.TRACKER)


def _values(item: Mapping[str, Any], names: Mapping[str, tuple[str, str]]) -> Row:
    return {
        column: _value(item[name], name, kind)
        for column, (name, kind) in names.items()
        if name in item
    }


def _value(value: Any, name: str, kind: str) -> Any:
    if type(value) is not dict or list(value) != [kind] or type(value[kind]) is not str:
        found = next(iter(value), "nothing") if isinstance(value, dict) else type(value).__name__
        raise ItemError(f"{name}: is {found}, expected {kind}")
    text = value[kind]
    if kind == "S":
        return text
    try:
        return int(text) if kind == "N" else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise ItemError(f"{name}: {text[:40]!r} is no {kind}") from None


def rows_of(file: Content, read: Any) -> Iterator[Row]:
    """Yield a row for each item that `read` takes, each fault, and last for the file itself."""
    number = 0
    fault = None
    try:
        text = gzip.decompress(file.content)
    except (OSError, EOFError, zlib.error) as exc:
        text, fault = b"", f"the file is no gzip: {exc}"
    for number, line in enumerate(text.splitlines(), 1):
        try:
            parsed = orjson.loads(line)
            row = _row(parsed if isinstance(parsed, dict) else {}, read)
        except (orjson.JSONDecodeError, ItemError) as exc:
            row = {"kind": FAULT, "fault": str(exc)}
        if row is not None:
            yield row | {"export": file.export, "uri": file.uri, "line": number}
    if fault is not None:
        yield {"kind": FAULT, "export": file.export, "uri": file.uri, "line": 0, "fault": fault}
    md5 = hashlib.md5(file.content, usedforsecurity=False).digest()
    yield {
        "kind": FILE,
        "export": file.export,
        "uri": file.uri,
        "line": number,
        "fault": base64.b64encode(md5).decode(),
    }


def _row(line: Any, read: Any) -> Row | None:
    """Read a line of a full export (`Item`) or of an incremental one (`Keys`, `NewImage`)."""
    images = {name: line.get(name) for name in ("Item", "NewImage", "Keys", "Metadata")}
    if any(not isinstance(image, dict) for image in images.values() if image is not None):
        raise ItemError("an image is no JSON object")
    item = images["Item"] or images["NewImage"]
    keys = item or images["Keys"]
    if not keys:
        raise ItemError("the line has neither Item nor Keys")
    found: Row = {}
    for name in (attributes.PK, attributes.SK):
        if name not in keys:
            raise ItemError(f"{name}: is missing")
        found[name] = _value(keys[name], name, "S")
    stamp = images["Metadata"]
    if stamp is not None:
        name = "WriteTimestampMicros"
        found["written"] = _value(stamp.get(name), name, "N")
    row: Row | None = None
    if item is not None:
        row = read(found[attributes.PK], found[attributes.SK], item)
    if row is not None:
        return found | row | {"kind": ITEM}
    # what an incremental export says of another item, or of none: one may have been there before
    return found | {"kind": DELETED} if stamp is not None else None


def batches_of(
    batches: Iterator[pa.RecordBatch], columns: tuple[tuple[str, pa.DataType], ...], read: Any
) -> Iterator[pa.RecordBatch]:
    """Turn rows of (export, path, content) into rows of `COMMON` and `columns`."""
    schema = pa.schema([*COMMON, *columns])
    for batch in batches:
        for export, uri, content in zip(
            batch["export"], batch["path"], batch["content"], strict=True
        ):
            rows: list[Row] = []
            for row in rows_of(Content(export.as_py(), uri.as_py(), content.as_py()), read):
                rows.append(row)
                if len(rows) == _BATCH_ROWS:
                    yield pa.RecordBatch.from_pylist(rows, schema)
                    rows = []
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema)
