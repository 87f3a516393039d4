"""Spark for small tests: settings of a JVM that starts quickly and never grows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fairbox_pipeline import session

from local.workspace import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

# of queries over a few rows, most of the time goes into compiling them
SMALL = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.python.daemon.module": "tests.support.spark_daemon",
    # what is remembered of the past is sorted again and again
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "2000",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.sql.ui.explainMode": "simple",
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
        f" {session.logging_option()}"
    ),
}


def small_jvm(folder: Path) -> dict[str, str]:
    """Return the environment of a process that starts a JVM of its own with these settings."""
    conf = folder / "conf"
    conf.mkdir()
    lines = [f"{name} {value}\n" for name, value in SMALL.items() if "JavaOptions" not in name]
    (conf / "spark-defaults.conf").write_text("".join(lines))
    return {
        **os.environ,
        "SPARK_CONF_DIR": str(conf),
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
        "PYTHONPATH": os.pathsep.join((str(REPOSITORY), os.environ.get("PYTHONPATH", ""))),
    }
