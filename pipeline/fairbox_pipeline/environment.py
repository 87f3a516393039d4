"""Requirements of a job on its machine: Java and the Iceberg runtime.

Only this module reads the environment. On a cluster none of it is used, because
`spark-submit` has started the JVM.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from fairbox_pipeline.errors import PipelineError, UsageError

ICEBERG: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
JAR_VARIABLE: Final = "FAIRBOX_ICEBERG_JAR"
MEMORY_VARIABLE: Final = "FAIRBOX_PIPELINE_MEMORY"
FOLDER_VARIABLE: Final = "FAIRBOX_LOCAL_FOLDER"
JAVA_VERSIONS: Final = (17, 21)


def submitted() -> bool:
    """Whether `spark-submit` started this process: its JVM waits at a gateway."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def prepare() -> None:
    """Point Spark to a supported Java, and its workers to this Python.

    Raises:
        UsageError: there is no Java 17 or 21.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["JAVA_HOME"] = str(_java_home())


def driver_memory() -> str:
    """Return the memory limit of the local JVM, in Spark's notation."""
    return os.environ.get(MEMORY_VARIABLE, "3g")


def iceberg_settings() -> dict[str, str]:
    """Return Spark's settings for Iceberg: the jar of `make engines`, or its coordinates."""
    given = os.environ.get(JAR_VARIABLE)
    jar = Path(given) if given else _installed_jar()
    if given and not Path(given).is_file():
        raise PipelineError(f"{JAR_VARIABLE} names no file: {given}")
    return {"spark.jars": str(jar)} if jar else {"spark.jars.packages": ICEBERG}


def _installed_jar() -> Path | None:
    repository = Path(__file__).resolve().parents[2]
    root = Path(os.environ.get(FOLDER_VARIABLE) or repository / ".local")
    _, artifact, version = ICEBERG.split(":")
    return next(root.glob(f"engines/iceberg-*/{artifact}-{version}.jar"), None)


def _java_home() -> Path:
    for java in _javas():
        home = _home_of(java)
        if home is not None:
            return home
    raise UsageError(
        "Java 17 or 21 is missing (Spark runs on no other): apt-get install "
        "openjdk-17-jre-headless, or set JAVA_HOME"
    )


def _javas() -> list[str]:
    home = os.environ.get("JAVA_HOME")
    candidates = [f"{home}/bin/java"] if home else []
    candidates += ["java", *(str(p) for p in sorted(Path("/usr/lib/jvm").glob("*/bin/java")))]
    return [found for c in candidates if (found := shutil.which(c))]


def _home_of(java: str) -> Path | None:
    """Return the home of a Java, if Spark supports its version."""
    said = subprocess.run(
        [java, "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    version = re.search(r'version "(\d+)', said.stderr)
    home = re.search(r"java\.home = (.+)", said.stderr)
    if not version or not home or int(version[1]) not in JAVA_VERSIONS:
        return None
    return Path(home[1].strip())
