"""Small frames from rows at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession


def frame_of(
    spark: SparkSession, rows: Sequence[Sequence[Any]], schema: StructType | str
) -> DataFrame:
    """Return rows as a frame that the JVM holds.

    The frame that Spark makes of a list is read through Python workers, each time that a query
    reads it: over a few rows this takes longer than the query.
    """
    struct = (
        schema if isinstance(schema, StructType) else cast("StructType", StructType.fromDDL(schema))
    )
    arrow = to_arrow_schema(struct)
    columns = [
        pa.array([row[place] for row in rows], field.type) for place, field in enumerate(arrow)
    ]
    table: Any = pa.Table.from_arrays(columns, schema=arrow)
    frame: DataFrame = spark.createDataFrame(table, struct)
    return frame
