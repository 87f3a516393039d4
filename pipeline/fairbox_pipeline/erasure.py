"""The messages of a partition key erased from an archive, file by file.

A file without them is not touched. A file with them is written anew in a folder of the run, then
copied over the old one: on S3 that is one object, which readers see whole before or after. A run
that ends in between may be repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from fairbox_pipeline.progress import say
from fairbox_pipeline.reading import PATTERN, escaped
from fairbox_pipeline.schemas import KEY, OPTIONAL, REQUIRED

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

_FIELDS: Final = ", ".join(
    f"{field.name} {field.dataType.simpleString()}"
    for field in (*REQUIRED, *OPTIONAL)
    if field.name in (*KEY, "partition_key")
)


def erase_lines(
    spark: SparkSession, archive: str, folder: str, keys: DataFrame, named: SparkColumn
) -> int:
    """Delete the lines of messages from an archive's files; return how many files had some.

    It reads the whole archive: a line may come into the folder of a later day than its message's.

    Args:
        spark: the session; it may write to the archive.
        archive: its folder.
        folder: one of this run alone, in which a file lies while it is copied.
        keys: the messages, by the columns of `KEY`, each once.
        named: condition on topic and partition key, for lines of messages that are not in `keys`:
            a run over a part of the archive has made the tables forget them.
    """
    keys = F.broadcast(keys.withColumn("erased", F.lit(True)))
    goes = F.coalesce(F.col("erased"), named, F.lit(False))

    def lines(place: str) -> DataFrame:
        return _lines(spark, escaped(place)).join(keys, list(KEY), "left")

    found = lines(archive).where(goes).select("_metadata.file_path").distinct().collect()
    files = sorted(row["file_path"] for row in found)
    for file in files:
        say(f"erasing lines of {file}")
        _replace(spark, lines(file).where(~goes).select("value"), file, folder)
    return len(files)


def _lines(spark: SparkSession, place: str) -> DataFrame:
    """Read lines as they are, with what names their messages; null where a line is no event."""
    reader = spark.read.option("pathGlobFilter", PATTERN).option("recursiveFileLookup", "true")
    lines = reader.option("lineSep", "\n").text(place)
    return lines.select("*", "_metadata", F.from_json("value", _FIELDS).alias("of")).select(
        "value", "_metadata", "of.*"
    )


def _replace(spark: SparkSession, lines: DataFrame, file: str, folder: str) -> None:
    """Write lines, in their order, in place of a file.

    Raises:
        OSError: the copy failed.
    """
    writer = lines.coalesce(1).write.mode("overwrite")
    writer.option("lineSep", "\n").option("compression", "gzip").text(folder)
    context: Any = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs  # noqa: SLF001 - Python has no other door to it
    settings = context._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
    place, to = hadoop.Path(folder), hadoop.Path(file)
    source, target = place.getFileSystem(settings), to.getFileSystem(settings)
    target.setWriteChecksum(False)  # of a folder on this machine: files beside the archive's own
    (written,) = [s.getPath() for s in source.listStatus(place) if s.getPath().getName()[0] == "p"]
    if not hadoop.FileUtil.copy(source, written, target, to, False, True, settings):
        raise OSError(f"{file} could not be replaced")
    source.delete(place, True)
