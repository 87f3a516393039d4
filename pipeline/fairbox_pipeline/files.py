"""Single files, wherever Spark can write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_file(spark: SparkSession, uri: str, content: bytes) -> None:
    """Write a file atomically.

    Raises:
        Py4JJavaError: it could not be written.
    """
    context: Any = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001 - Python has no other door to Hadoop's file systems
    paths = jvm.org.apache.hadoop.fs
    path, partial = paths.Path(uri), paths.Path(f"{uri}.new")
    system = path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001 - as above
    stream = system.create(partial, True)
    try:
        stream.write(content)
    finally:
        stream.close()
    system.delete(path, False)
    if not system.rename(partial, path):
        raise OSError(f"{uri} could not be put into its place")
