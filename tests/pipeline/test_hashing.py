"""The hashes in Spark are the library's, on golden vectors and random keys."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

from fairbox.model.epochs import shard_number
from fairbox.model.sharding import partition_number
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
        *(hashing.partition_number(key, F.lit(n)) for n in (4, 1000)),
        hashing.partition_hash(key),
    ]
    frame = frame_of(spark, [(key,) for key, _ in golden], "key string")
    computed = [[int(n) for n in row] for row in frame.select(*columns).collect()]
    assert computed == [numbers for _, numbers in golden]
    plan = frame.select(*columns)._jdf.queryExecution().toString()
    assert "PythonUDF" not in plan
    assert "ArrowEval" not in plan


def test_random_keys_hash_as_the_library_hashes_them(spark: SparkSession) -> None:
    rng = random.Random(4)
    alphabet = "az09 -_/#.äß日本🦊\u0000\u200b"
    keys = ["".join(rng.choices(alphabet, k=rng.randrange(40))) for _ in range(3000)]
    widths = [rng.randrange(1, 1001) for _ in keys]
    frame = frame_of(spark, list(zip(keys, widths, strict=True)), "key string, width int")
    rows = frame.select(
        "key",
        "width",
        hashing.shard_number(F.col("key"), F.col("width")),
        hashing.partition_number(F.col("key"), F.col("width")),
    ).collect()
    assert len(rows) == 3000
    for key, width, shard, partition in rows:
        assert shard == shard_number(key, width)
        assert partition == partition_number(key, width)


def test_no_key_has_no_shard(spark: SparkSession) -> None:
    (row,) = spark.range(1).select(hashing.shard_number(F.lit(None), F.lit(8))).collect()
    assert row[0] is None
