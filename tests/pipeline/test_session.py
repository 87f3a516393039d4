"""The session where `spark-submit` set a default catalog, as it does on AWS."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from fairbox_pipeline import session
from fairbox_pipeline.schemas import TABLES
from fairbox_pipeline.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession


def test_the_catalog_of_a_cluster_is_used_and_not_cached(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = spark.newSession()
    for name, value in {
        "spark.sql.defaultCatalog": "given",
        "spark.sql.catalog.given": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.given.type": "hadoop",
        "spark.sql.catalog.given.warehouse": str(tmp_path / "given"),
    }.items():
        given.conf.set(name, value)
    monkeypatch.setattr(session, "start", lambda: SimpleNamespace(newSession=lambda: given))

    Warehouse(session.open_session(str(tmp_path / "other"))).prepare()

    made = {path.name for path in (tmp_path / "given" / "fairbox").iterdir()}
    assert made == {table.name for table in TABLES}
    assert not (tmp_path / "other").exists()
