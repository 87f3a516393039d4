"""The report of a run: how much Spark read, wrote, shuffled and spilled."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


class WorkMeter:
    """A meter of the work since its creation, from Spark's own status store."""

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        self._store = context._jsc.sc().statusStore()  # noqa: SLF001 - Python has no other door to it
        self._nothing = context._jvm.java.util.ArrayList()  # noqa: SLF001 - as above
        self._quantiles = context._gateway.new_array(context._jvm.double, 0)  # noqa: SLF001 - as above
        self._before = next((stage.stageId() for stage in self._stages()), -1)

    def read(self) -> dict[str, int]:
        """Return the work of the stages that have ended since, in columns of table `runs`."""
        stages = takewhile(lambda stage: stage.stageId() > self._before, self._stages())
        ended = [s for s in stages if s.status().toString() == "COMPLETE"]
        return {
            "stages": len(ended),
            "input_rows": sum(stage.inputRecords() for stage in ended),
            "output_rows": sum(stage.outputRecords() for stage in ended),
            "shuffle_bytes": sum(stage.shuffleWriteBytes() for stage in ended),
            "spill_bytes": sum(stage.diskBytesSpilled() for stage in ended),
        }

    def _stages(self) -> Iterator[Any]:
        """Yield the stages that Spark remembers, the newest first."""
        found = self._store.stageList(self._nothing, False, False, self._quantiles, self._nothing)
        remaining = found.iterator()
        while remaining.hasNext():
            yield remaining.next()
