"""The hashes in Spark are the library's, on golden vectors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from fairbox_pipeline import hashing
from fairbox_pipeline.frames import frame_of
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/hashing.md"
_VECTOR = re.compile(r'^\| `("[^`]*")(?: \* (\d+))?` \|(.*)\|$', re.MULTILINE)


def vectors() -> list[tuple[str, list[int]]]:
    return [
        (json.loads(text) * int(times or 1), [int(cell) for cell in cells.split("|")])
        for text, times, cells in _VECTOR.findall(PAGE.read_text(encoding="utf-8"))
    ]


def test_the_golden_vectors_are_computed_natively(spark: SparkSession) -> None:
    golden = vectors()
    assert len(golden) >= 12
    key = F.col("key")
    columns = [
        *(hashing.shard_number(key, F.lit(n)) for n in (8, 1000, 2**32)),
    ]
    frame = frame_of(spark, [(key,) for key, _ in golden], "key string")
    computed = [[int(n) for n in row] for row in frame.select(*columns).collect()]
    assert computed == [numbers[:3] for _, numbers in golden]
    plan = frame.select(*columns)._jdf.queryExecution().toString()
    assert "PythonUDF" not in plan
    assert "ArrowEval" not in plan


def test_no_key_has_no_shard(spark: SparkSession) -> None:
    (row,) = spark.range(1).select(hashing.shard_number(F.lit(None), F.lit(8))).collect()
    assert row[0] is None
