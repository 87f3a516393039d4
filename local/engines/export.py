"""Export of the local engine's tables, in the layout of DynamoDB's export to S3, for the pipeline.

A full export in DynamoDB JSON: `AWSDynamoDB/<export id>/` with the two manifests, their checksums,
and `data/*.json.gz`. The engine has no point-in-time recovery, so the tables should
not change meanwhile.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from local.workspace import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

VARIABLES = {
    "outbox": "FAIRBOX_OUTBOX_TABLE",
    "deliveries": "FAIRBOX_DELIVERIES_TABLE",
    "batches": "FAIRBOX_BATCHES_TABLE",
}
FILES = 4
ROOT = "AWSDynamoDB"
VERSION = "2020-06-30"


@dataclass(frozen=True, kw_only=True)
class Export:
    """One finished export.

    Attributes:
        table: the table's name.
        folder: holds the manifests; the pipeline's input.
        items: number of items.
    """

    table: str
    folder: Path
    items: int


def export_tables(
    dynamodb: Any,
    variables: Mapping[str, str],
    folder: Path,
    *,
    now: Callable[[], datetime],
    new_id: Callable[[], str],
) -> dict[str, Export]:
    """Export every existing table of the application, each into its own part of `folder`.

    Args:
        dynamodb: boto3's client.
        variables: the names of the tables, as in `.local/env`.
        folder: in place of the bucket.
        now: the time, UTC.
        new_id: returns ids of exports and files.

    Returns:
        The exports by `outbox`, `deliveries`, `batches`.

    Raises:
        LocalError: the variables name no table.
    """
    named = {name: variables[key] for name, key in VARIABLES.items() if variables.get(key)}
    if not named:
        raise LocalError("no table is known: make up, then export again")
    return {
        name: export_table(dynamodb, table, folder, prefix=name, now=now, new_id=new_id)
        for name, table in named.items()
    }


def export_table(
    dynamodb: Any,
    table: str,
    folder: Path,
    *,
    prefix: str,
    now: Callable[[], datetime],
    new_id: Callable[[], str],
) -> Export:
    """Export one table under `prefix` of the folder."""
    started = now()
    export_id = f"{round(started.timestamp() * 1000):014d}-{new_id()[:8]}"
    key = f"{prefix}/{ROOT}/{export_id}"
    place = folder / key
    (place / "data").mkdir(parents=True)
    (place / "_started").touch()
    files: list[dict[str, Any]] = []
    for segment in range(FILES):
        name = f"{key}/data/{new_id().replace('-', '')[:26]}.json.gz"
        lines = [_line(item) for item in _scan(dynamodb, table, segment)]
        content = gzip.compress(b"".join(lines), mtime=0)
        (folder / name).write_bytes(content)
        files.append(
            {
                "itemCount": len(lines),
                "md5Checksum": _checksum(content),
                "etag": hashlib.md5(content, usedforsecurity=False).hexdigest() + "-1",
                "dataFileS3Key": name,
            }
        )
    items = sum(file["itemCount"] for file in files)
    described = dynamodb.describe_table(TableName=table)["Table"]
    summary = _summary(described, (started, now()), key, items)
    _write(place, "manifest-files", "".join(json.dumps(file) + "\n" for file in files))
    _write(place, "manifest-summary", json.dumps(summary))
    return Export(table=table, folder=place, items=items)


def _summary(
    described: Mapping[str, Any], times: tuple[datetime, datetime], key: str, items: int
) -> dict[str, Any]:
    started, ended = map(_text, times)
    return {
        "version": VERSION,
        "exportArn": f"{described['TableArn']}/export/{key.rpartition('/')[2]}",
        "startTime": started,
        "endTime": ended,
        "tableArn": described["TableArn"],
        "tableId": described.get("TableId"),
        "exportTime": started,
        "s3Bucket": "local",
        "s3Prefix": key.partition("/")[0],
        "s3SseAlgorithm": "AES256",
        "s3SseKmsKeyId": None,
        "manifestFilesS3Key": f"{key}/manifest-files.json",
        "billedSizeBytes": described.get("TableSizeBytes", 0),
        "itemCount": items,
        "outputFormat": "DYNAMODB_JSON",
        "outputView": None,
        "exportType": "FULL_EXPORT",
    }


def _scan(dynamodb: Any, table: str, segment: int) -> Iterator[dict[str, Any]]:
    pages = dynamodb.get_paginator("scan").paginate(
        TableName=table, ConsistentRead=True, Segment=segment, TotalSegments=FILES
    )
    for page in pages:
        yield from page["Items"]


def _line(item: Mapping[str, Any]) -> bytes:
    text = json.dumps({"Item": item}, default=_binary, ensure_ascii=False, separators=(",", ":"))
    return text.encode() + b"\n"


def _binary(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} is no attribute value")


def _write(place: Path, name: str, text: str) -> None:
    content = text.encode()
    (place / f"{name}.json").write_bytes(content)
    (place / f"{name}.md5").write_text(_checksum(content), encoding="ascii")


def _checksum(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
