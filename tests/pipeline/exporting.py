"""Writes full exports as DynamoDB lays them out, into a folder for the bucket."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairbox_pipeline import exports
from fairbox_pipeline.frames import frame_of
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

TABLE = "arn:aws:dynamodb:us-east-1:111122223333:table/Outbox"


def checksum(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


def wire(item: dict[str, Any]) -> dict[str, Any]:
    """An item as a line of an export has it: binaries in base64."""
    return {
        name: {"B": base64.b64encode(value["B"]).decode()} if "B" in value else value
        for name, value in item.items()
    }


def lines_of(spark: SparkSession, written: Sequence[dict[str, Any]]) -> DataFrame:
    """Items as `exports` reads their lines."""
    texts = [(json.dumps({"Item": wire(item)}),) for item in written]
    parsed = frame_of(spark, texts, "text string").select(F.from_json("text", exports.LINE))
    return parsed.toDF("line").select("line.*")


@dataclass
class Bucket:
    """A folder that stands for a bucket."""

    root: Path
    prefix: str = "exports"
    _made: int = field(default=0)

    def full(
        self, written: list[dict[str, Any]], at: str = "2026-11-19T05:00:00Z", **about: Any
    ) -> Path:
        """Write a full export of two files; return the folder of its manifests."""
        texts = [{"Item": wire(item)} for item in written]
        files = [texts[::2], texts[1::2]]
        self._made += 1
        key = f"{self.prefix}/AWSDynamoDB/{self._made:014d}-cafe"
        data = f"{key}/data"
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
            "exportType": "FULL_EXPORT",
            "exportTime": at,
            **about,
        }
        self._put(f"{key}/manifest-files", "".join(json.dumps(one) + "\n" for one in listed))
        self._put(f"{key}/manifest-summary", json.dumps(summary))
        return self.root / key

    def _put(self, key: str, text: str) -> None:
        (self.root / f"{key}.json").write_text(text)
        (self.root / f"{key}.md5").write_text(checksum(text.encode()))
