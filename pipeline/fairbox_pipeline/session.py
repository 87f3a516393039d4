"""The Spark session of a job: on this machine, or the one that a cluster gives."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from fairbox_pipeline import environment

if TYPE_CHECKING:
    from collections.abc import Mapping

CATALOG: Final = "warehouse"
EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_CATALOG: Final = f"spark.sql.catalog.{CATALOG}"
_DEFAULT_CATALOG: Final = "spark.sql.defaultCatalog"
_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
}


def open_session(warehouse: str) -> SparkSession:
    """Return a session whose namespace `fairbox` lies in the warehouse.

    On this machine: `local[*]` and an Iceberg Hadoop catalog in the folder. Where `spark-submit`
    set a default catalog (Glue, S3 Tables), that one is used. Sessions of one process share their
    JVM, each with its own warehouse.

    Raises:
        UsageError: Java is missing.
    """
    spark = start().newSession()
    for name, value in _ALWAYS.items():
        spark.conf.set(name, value)
    if spark.conf.get(_DEFAULT_CATALOG, "spark_catalog") in ("spark_catalog", CATALOG):
        spark.conf.set(_CATALOG, "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set(f"{_CATALOG}.type", "hadoop")
        spark.conf.set(f"{_CATALOG}.warehouse", warehouse)
        spark.conf.set(_DEFAULT_CATALOG, CATALOG)
    # a cache would hide the commits of other runs, and the catalog's namespaces
    spark.conf.set(f"spark.sql.catalog.{spark.conf.get(_DEFAULT_CATALOG)}.cache-enabled", "false")
    return spark


def start(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return this process's first session, started if need be with the given settings as well."""
    builder = SparkSession.builder.appName("fairbox-pipeline")
    builder = builder.config("spark.sql.extensions", EXTENSIONS)
    # for each column that is named, Spark would ask for conf, call site and Jupyter: 2 ms
    builder = builder.config("spark.python.sql.dataFrameDebugging.enabled", "false")
    if not environment.submitted() and SparkSession.getActiveSession() is None:
        environment.prepare()
        for name, value in {**_local_settings(), **(settings or {})}.items():
            builder = builder.config(name, value)
    return builder.getOrCreate()


def logging_option() -> str:
    """Return the option that keeps a local JVM quiet."""
    log = Path(__file__).with_name("log4j2.properties")
    return f"-Dlog4j2.configurationFile={log.as_uri()}"


def _local_settings() -> dict[str, str]:
    return {
        "spark.master": "local[*]",
        "spark.driver.memory": environment.driver_memory(),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC {logging_option()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        "spark.sql.shuffle.partitions": "16",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **environment.iceberg_settings(),
    }


def location(given: str) -> str:
    """Return a URI or path for Spark: local paths absolute, URIs unchanged.

    `file:` URIs become paths; a slash at the end is dropped.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", given) and not given.startswith("file:"):
        return given.rstrip("/")
    return str(Path(re.sub(r"^file:(//)?(?=/)", "", given)).resolve())
