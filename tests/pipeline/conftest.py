"""One Spark for all tests of the jobs, and the jobs run as a caller would."""

from __future__ import annotations

import gc
import json
import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from fairbox_pipeline import session
from fairbox_pipeline.cli import run_job

from local.engines import iceberg
from local.workspace import REPOSITORY, Workspace
from tests.support.small_spark import SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the first test start a JVM, and others leave its sockets behind."""
    for item in items:
        if "tests/pipeline" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.timeout(900))  # the first test starts a JVM


@pytest.fixture(scope="session")
def _shared() -> Iterator[SparkSession]:
    iceberg.install(Workspace())
    with pytest.MonkeyPatch.context() as patch:
        # Python workers have the environment that the JVM starts with
        patch.setenv("PYTHONPATH", str(REPOSITORY), prepend=os.pathsep)
        patch.setenv("AWS_ACCESS_KEY_ID", "local")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "local")
        first = session.start(SMALL)
    yield first
    first.stop()


@pytest.fixture
def spark(_shared: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """A session with an empty warehouse of its own."""
    yield session.open_session(str(tmp_path / "warehouse"))
    # the sockets that PySpark leaves, before another test hears of them
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@dataclass
class Pipeline:
    """Runs jobs over one archive into one warehouse, and reads the tables."""

    spark: SparkSession
    archive: Path
    warehouse: Path
    capsys: pytest.CaptureFixture[str]
    said: str = ""

    def code(self, job: str, *arguments: str, archive: Path | None = None) -> int:
        self.capsys.readouterr()
        places = ["--archive", str(archive or self.archive), "--warehouse", str(self.warehouse)]
        return run_job(job, [*places, *arguments])

    def run(self, job: str, *arguments: str, archive: Path | None = None) -> dict[str, Any]:
        """Run a job with `--json`; return its one object."""
        code = self.code(job, "--json", *arguments, archive=archive)
        told = self.capsys.readouterr()
        self.said = told.err
        assert code == 0, told.err
        figures = json.loads(told.out)
        assert isinstance(figures, dict)
        return figures

    def rows(self, table: str, *columns: str) -> list[dict[str, Any]]:
        self.spark.sql(f"REFRESH TABLE fairbox.{table}")
        frame = self.spark.read.table(f"fairbox.{table}")
        return [r.asDict(recursive=True) for r in frame.select(*(columns or ["*"])).collect()]

    def contents(self, *tables: str) -> dict[str, list[str]]:
        """Return tables as sorted text, to be compared whole."""
        return {t: sorted(json.dumps(r, sort_keys=True) for r in self.rows(t)) for t in tables}


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pipeline:
    return Pipeline(spark, tmp_path / "archive", tmp_path / "warehouse", capsys)
