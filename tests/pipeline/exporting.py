"""Writes exports as DynamoDB lays them out: full and incremental, into a folder for the bucket."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "arn:aws:dynamodb:us-east-1:111122223333:table/Outbox"


def checksum(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def wire(item: dict[str, Any]) -> dict[str, Any]:
    """An item as a line of an export has it: binaries in base64."""
    return {
        name: {"B": base64.b64encode(value["B"]).decode()} if "B" in value else value
        for name, value in item.items()
    }


@dataclass
class Bucket:
    """A folder that stands for a bucket."""

    root: Path
    prefix: str = "exports"
    suffix: str = ".md5"
    _made: int = field(default=0)

    def full(self, items: list[dict[str, Any]], at: str = "2026-11-19T05:00:00Z") -> Path:
        """Write a full export of two files; return the folder of its manifests."""
        lines = [{"Item": wire(item)} for item in items]
        return self._write(
            [lines[::2], lines[1::2]], {"exportType": "FULL_EXPORT", "exportTime": at}
        )

    def incremental(self, changes: list[dict[str, Any]], begin: str, end: str) -> Path:
        """Write an incremental export: `put` and `delete` of items, each with its time."""
        lines = []
        for number, change in enumerate(changes):
            item = wire(change.get("put") or change["delete"])
            keys = {name: item[name] for name in ("pk", "sk")}
            stamp = {"WriteTimestampMicros": {"N": str(1_800_000_000_000_000 + number)}}
            line: dict[str, Any] = {"Metadata": stamp, "Keys": keys}
            line |= {"NewImage": item} if "put" in change else {"OldImage": item}
            lines.append(line)
        about = {
            "exportType": "INCREMENTAL_EXPORT",
            "exportFromTime": begin,
            "exportToTime": end,
            "outputView": "NEW_AND_OLD_IMAGES",
        }
        return self._write([lines], about, shared=True)

    def _write(
        self, files: list[list[dict[str, Any]]], about: dict[str, Any], *, shared: bool = False
    ) -> Path:
        self._made += 1
        base = f"{self.prefix}/AWSDynamoDB"
        key = f"{base}/{self._made:014d}-cafe"
        data = f"{base}/data" if shared else f"{key}/data"
        (self.root / data).mkdir(parents=True, exist_ok=True)
        (self.root / key).mkdir(parents=True, exist_ok=True)
        listed = []
        for number, lines in enumerate(files):
            name = f"{data}/{self._made}x{number}.json.gz"
            text = "".join(json.dumps(line) + "\n" for line in lines)
            content = gzip.compress(text.encode(), mtime=0)
            (self.root / name).write_bytes(content)
            listed.append(
                {
                    "itemCount": len(lines),
                    "md5Checksum": checksum(content),
                    "etag": "e-1",
                    "dataFileS3Key": name,
                }
            )
        summary = {
            "version": "2020-06-30",
            "tableArn": TABLE,
            "s3Bucket": "b",
            "s3Prefix": self.prefix,
            "manifestFilesS3Key": f"{key}/manifest-files.json",
            "itemCount": sum(map(len, files)),
            "outputFormat": "DYNAMODB_JSON",
            **about,
        }
        self._put(f"{key}/manifest-files", "".join(json.dumps(one) + "\n" for one in listed))
        self._put(f"{key}/manifest-summary", json.dumps(summary))
        return self.root / key

    def _put(self, key: str, text: str) -> None:
        (self.root / f"{key}.json").write_text(text)
        (self.root / f"{key}{self.suffix}").write_text(checksum(text.encode()))

    def resign(self, folder: Path) -> None:
        """Make the checksums of changed manifests agree again."""
        for name in ("manifest-files", "manifest-summary"):
            self._put(
                str((folder / name).relative_to(self.root)), (folder / f"{name}.json").read_text()
            )
