"""The package as Spark gets it: from the assets' own keys, with the template's own parameters."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import venv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from local.engines import iceberg
from local.workspace import Workspace
from tests.pipeline.exporting import Bucket
from tests.pipeline.writing import added, write
from tests.stacks.assembly import plain
from tests.stacks.conftest import ROOT
from tests.support.pipeline_package import build_host_package, locked_names

if TYPE_CHECKING:
    from tests.stacks.assembly import Assembly

UNPACKED = (".jar", ".zip", ".tar.gz", ".tgz", ".tar")
"""The ends of names that Spark 4.0 unpacks (`Utils.unpack`); it copies a file of another name."""
DRIVER_ENVIRONMENT = "spark.emr-serverless.driverEnv."
OF_EMR = ("spark.jars", "spark.sql.")
"""Begins of the parameters whose values exist on EMR alone: Iceberg's jar and the Glue catalog."""
MASTER = "local-cluster[1,2,8192]"
"""One executor in a process of its own, with a working directory of its own."""

# The driver of a cluster unpacks `spark.archives` into its working directory. Spark does the same
# here when it takes itself for a driver within Kubernetes; this script then chooses the master.
CLUSTER = """
import runpy, sys
from pyspark.sql import SparkSession
SparkSession.builder.master(sys.argv.pop(1)).getOrCreate()
runpy.run_path(sys.argv.pop(1).removeprefix("file://"), run_name="__main__")
"""
PROBE = """
import json, os, sys
import orjson
from fairbox_pipeline.errors import __file__ as jobs
from pyspark.sql import SparkSession

def found(_):
    import orjson
    from fairbox_pipeline.errors import __file__ as jobs
    return [(orjson.loads("1"), orjson.__file__, jobs, os.getcwd())]

context = SparkSession.builder.getOrCreate().sparkContext
executor = context.parallelize([0], 1).mapPartitions(found).first()
print("found", json.dumps([(1, orjson.__file__, jobs, os.getcwd()), executor]))
"""


@dataclass(frozen=True)
class Submission:
    """A job as the template starts it.

    Attributes:
        entry: URI of the script.
        arguments: its arguments; a path into the state machine's input begins with `$.`.
        settings: the `--conf` pairs of `SparkSubmitParameters`.
        keys: the object key of each asset, by its URI.
        assets: the file of each asset, by its URI.
    """

    entry: str
    arguments: list[str]
    settings: dict[str, str]
    keys: dict[str, str]
    assets: dict[str, Path]

    def placed(self, folder: Path) -> dict[str, str]:
        """Put each asset below `folder` under its own key; return the new URI by the old."""
        for uri, key in self.keys.items():
            shutil.copyfile(self.assets[uri], folder / key)
        return {uri: (folder / key).as_uri() for uri, key in self.keys.items()}


@pytest.fixture(scope="module")
def submission(assembly: Assembly) -> Submission:
    (machine,) = assembly.of_type("AWS::StepFunctions::StateMachine").values()
    states = json.loads(plain(machine["DefinitionString"]))["States"].values()
    submit = next(
        state["Parameters"]["JobDriver"]["SparkSubmit"]
        for state in states
        if "emr-serverless" in state.get("Resource", "")
    )
    settings = dict(
        pair.strip().split("=", 1) for pair in submit["SparkSubmitParameters"].split("--conf ")[1:]
    )
    files = json.loads((assembly.folder / "FairboxPipeline.assets.json").read_text())["files"]
    keys, assets = {}, {}
    for file in files.values():
        for place in file["destinations"].values():
            uri = f"s3://{place['bucketName']}/{place['objectKey']}"
            keys[uri] = place["objectKey"]
            assets[uri] = assembly.folder / file["source"]["path"]
    listed = submit["EntryPointArguments.$"].removeprefix("States.Array(").removesuffix(")")
    arguments = [part.strip("'") for part in listed.split(", ")]
    return Submission(submit["EntryPoint"], arguments, settings, keys, assets)


def test_each_asset_has_a_key_that_spark_takes_for_what_it_is(submission: Submission) -> None:
    archives = [uri.partition("#")[0] for uri in submission.settings["spark.archives"].split(",")]
    modules = submission.settings["spark.submit.pyFiles"].split(",")
    for uris, ends in (
        (archives, UNPACKED),
        (modules, (".zip", ".egg", ".py")),
        ([submission.entry], (".py",)),
    ):
        assert [
            submission.keys[uri] for uri in uris if not submission.keys[uri].endswith(ends)
        ] == []


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spark's own folder, whose executors work in a folder of this test; no Python packages."""
    folder = tmp_path_factory.mktemp("spark")
    for part in ("bin", "jars", "python"):
        (folder / part).symlink_to(Path(pyspark.__file__).parent / part)
    return folder


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an interpreter without any package, under the name that the template has."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    return folder / "bin"


def test_driver_and_executor_import_the_unpacked_packages(
    submission: Submission, home: Path, bare_python: Path, tmp_path: Path
) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    kept = {k: v for k, v in submission.settings.items() if not k.startswith(OF_EMR)}

    done = run(submission, kept, home, bare_python, tmp_path, str(tmp_path / "probe.py"))

    assert done.returncode == 0, _words(done)
    told = re.search(r"^found (.*)$", done.stdout, re.MULTILINE)
    assert told is not None
    driver, executor = json.loads(told[1])
    for number, package, jobs, folder in (driver, executor):
        assert number == 1
        assert package == f"{folder}/environment/orjson/__init__.py"
        assert ".zip/fairbox_pipeline/" in jobs
    assert driver[3] != executor[3]


@pytest.mark.extended  # a cluster that runs every job; above is one that imports
def test_the_daily_run_s_jobs_run_as_the_template_starts_them(
    submission: Submission, home: Path, bare_python: Path, tmp_path: Path
) -> None:
    iceberg.install(Workspace())
    catalog = "spark.sql.catalog.glue"
    own = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.jars": str(iceberg.jar(Workspace())),
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": str(tmp_path / "warehouse"),
    }
    kept = submission.settings | own
    del kept[f"{catalog}.catalog-impl"], kept[f"{catalog}.io-impl"]
    environment = build_host_package(ROOT, tmp_path, locked_names(ROOT)).environment
    zipped = kept["spark.archives"].partition("#")[0]
    whole = replace(submission, assets={**submission.assets, zipped: environment})
    write(tmp_path / "archive", [added(n) for n in range(3)])
    here = {
        "--archive": str(tmp_path / "archive"),
        "--warehouse": str(tmp_path / "warehouse"),
        "--until": "2025-11-13T05:00:00Z",
        "--outstanding": str(Bucket(tmp_path / "outbox").full([])),
        "--trackers": str(Bucket(tmp_path / "batches").full([])),
    }
    arguments = list(submission.arguments)
    for name, value in here.items():
        arguments[arguments.index(name) + 1] = value

    done = run(whole, kept, home, bare_python, tmp_path, submission.entry, *arguments)

    assert done.returncode == 0, _words(done)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["history"]["messages"] == found["reconcile"]["lost"] == 3
    assert (tmp_path / "warehouse" / "report.html").exists()


def run(
    submission: Submission,
    settings: dict[str, str],
    home: Path,
    python: Path,
    folder: Path,
    *command: str,
) -> subprocess.CompletedProcess[str]:
    """Run a script on a small cluster, with the given settings and the assets at their keys."""
    store = folder / "s3"
    store.mkdir()
    placed = submission.placed(store)
    (folder / "cluster.py").write_text(CLUSTER)
    work = folder / "driver"
    work.mkdir()
    environment = {
        k.removeprefix(DRIVER_ENVIRONMENT): v
        for k, v in settings.items()
        if k.startswith(DRIVER_ENVIRONMENT)
    }
    name = environment["PYSPARK_DRIVER_PYTHON"]
    if not (python / name).exists():  # the tests run on another Python than the release
        (python / name).symlink_to(python / "python")
    local = {
        "spark.kubernetes.submitInDriver": "true",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    pairs = [f"{key}={_moved(value, placed)}" for key, value in {**settings, **local}.items()]
    return subprocess.run(
        [
            *(str(home / "bin" / "spark-submit"), "--master", "k8s://https://127.0.0.1:1"),
            *(part for pair in pairs for part in ("--conf", pair)),
            *(str(folder / "cluster.py"), MASTER, *(_moved(part, placed) for part in command)),
        ],
        cwd=work,
        env={
            "PATH": os.pathsep.join((str(python), os.environ["PATH"])),
            "HOME": str(folder),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def _words(done: subprocess.CompletedProcess[str]) -> str:
    """Return what was said but for Spark's progress; Spark prints the driver's words to stdout."""
    lines = (done.stdout + done.stderr).splitlines()
    return "\n".join(line for line in lines if " INFO " not in line)


def _moved(text: str, placed: dict[str, str]) -> str:
    for uri, here in placed.items():
        text = text.replace(uri, here)
    return text
