"""The report of a run: how much Spark read, wrote, shuffled and spilled."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from fairbox_pipeline.frames import frame_of
from fairbox_pipeline.schemas import RUNS_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a run's stages.

    Attributes:
        stages: number of completed stages.
        input_rows, output_rows: read and written by them, sources and tables alike.
        shuffle_bytes: written for other stages.
        spill_bytes: that went to disk because memory was short.
    """

    stages: int = 0
    input_rows: int = 0
    output_rows: int = 0
    shuffle_bytes: int = 0
    spill_bytes: int = 0


class WorkMeter:
    """A meter of the work since its creation, from Spark's own status store."""

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        self._store = context._jsc.sc().statusStore()  # noqa: SLF001 - Python has no other door to it
        self._nothing = context._jvm.java.util.ArrayList()  # noqa: SLF001 - as above
        self._quantiles = context._gateway.new_array(context._jvm.double, 0)  # noqa: SLF001 - as above
        self._before = next((stage.stageId() for stage in self._stages()), -1)

    def read(self) -> Work:
        """Return the work of the stages that have ended since."""
        stages = takewhile(lambda stage: stage.stageId() > self._before, self._stages())
        ended = [s for s in stages if s.status().toString() == "COMPLETE"]
        return Work(
            stages=len(ended),
            input_rows=sum(s.inputRecords() for s in ended),
            output_rows=sum(s.outputRecords() for s in ended),
            shuffle_bytes=sum(s.shuffleWriteBytes() for s in ended),
            spill_bytes=sum(s.diskBytesSpilled() for s in ended),
        )

    def _stages(self) -> Iterator[Any]:
        """Yield the stages that Spark remembers, the newest first."""
        found = self._store.stageList(self._nothing, False, False, self._quantiles, self._nothing)
        remaining = found.iterator()
        while remaining.hasNext():
            yield remaining.next()


def row_of(spark: SparkSession, *, work: Work, **of_run: Any) -> DataFrame:
    """Return the row of table `runs`: `run`, `job`, `began`, `ended`, `files`, `lines` and work."""
    values = {name: getattr(work, name) for name in Work.__slots__} | {"skew": None} | of_run
    return frame_of(spark, [tuple(values[n] for n in RUNS_TABLE.names)], RUNS_TABLE.schema)
