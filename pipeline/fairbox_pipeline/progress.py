"""Progress of a job on standard error."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_LOOK_SECONDS: Final = 0.3


class Teller:
    """Prints one line per step; on a terminal, with a bar of Spark's tasks."""

    def __init__(self, spark: SparkSession | None = None, console: Console | None = None) -> None:
        self._spark = spark
        self._console = console or Console(file=sys.stderr, soft_wrap=True, highlight=False)

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(f"fairbox: {text}", markup=False)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show a step while it runs: its tasks done of those that Spark knows of."""
        if self._spark is None or not self._console.is_terminal:
            yield
            return
        columns = (
            TextColumn("fairbox: {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("tasks"),
            TimeElapsedColumn(),
        )
        over = threading.Event()
        with Progress(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task(name, total=None)
            watcher = threading.Thread(target=self._watch, args=(bar, task, over), daemon=True)
            watcher.start()
            try:
                yield
            finally:
                over.set()
                watcher.join()

    def _watch(self, bar: Progress, task: object, over: threading.Event) -> None:
        """Follow the tasks of the stages that run."""
        assert self._spark is not None
        tracker = self._spark.sparkContext.statusTracker()
        while not over.wait(_LOOK_SECONDS):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            done = sum(stage.numCompletedTasks for stage in stages if stage)
            total = sum(stage.numTasks for stage in stages if stage)
            bar.update(task, completed=done, total=total or None)  # type: ignore[arg-type]
