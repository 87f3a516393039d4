"""Builds of the package for EMR Serverless: the jobs as one zip, and their dependencies as another.

The same sources give the same bytes on every machine. The jobs' zip holds pure Python: the
pipeline, and the library for `replay`. The environment is for EMR's processor and Python; PySpark
and Iceberg are part of the release and not in it. It is a zip, because the CDK stores
`environment.tar.gz` under `HASH.gz`, which Spark copies instead of unpacking.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairbox_cdk.assets import LIBRARY, PLATFORM, AssetError, find_uv, locked, shipped_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SPARK_PYTHON: Final = "3.11"
"""The oldest platform of the release; the environment contains its extension modules."""
JOBS: Final = Path("pipeline/fairbox_pipeline")
ENTRY: Final = Path("pipeline/submit.py")
REQUIREMENTS: Final = Path("pipeline/requirements.lock")
_ZIP_TIME: Final = (2020, 1, 1, 0, 0, 0)
_FILE_MODE: Final = 0o644
_NOT_IMPORTED: Final = ("tests", "include", "bin", "__pycache__")
"""Folders of packages that no job needs."""


@dataclass(frozen=True)
class PipelinePackage:
    """The package with which a job is started.

    Attributes:
        entry: the script.
        code: zip for `--py-files`.
        environment: zip for `spark.archives`; its root is put on the path.
    """

    entry: Path
    code: Path
    environment: Path

    @classmethod
    def below(cls, root: Path, output: Path) -> PipelinePackage:
        """Return the places of a package: the script in the project, the zips in `output`."""
        return cls(root / ENTRY, output / "fairbox_pipeline.zip", output / "environment.zip")


def build_package(root: Path, output: Path) -> PipelinePackage:
    """Build the package below `output`; skip unchanged parts.

    Raises:
        AssetError: uv is missing, or a package has no wheel for the platform.
    """
    output.mkdir(parents=True, exist_ok=True)
    with locked(output / ".lock"):
        build_code(root, output)
        build_environment(root, output)
    return PipelinePackage.below(root, output)


def build_code(root: Path, output: Path) -> Path:
    """Write `fairbox_pipeline.zip`: the pipeline and what jobs run of the library, sources only."""
    target = PipelinePackage.below(root, output).code
    jobs = root / JOBS
    write_zip(target, {jobs.parent: _sources(jobs), root / LIBRARY: shipped_files(root)})
    return target


def build_environment(root: Path, output: Path) -> Path:
    """Install the locked packages for EMR and write `environment.zip`."""
    requirements = root / REQUIREMENTS
    target = PipelinePackage.below(root, output).environment
    stamp = output / "environment.stamp"
    wanted = sha256(Path(__file__).read_bytes() + requirements.read_bytes()).hexdigest()
    if target.exists() and stamp.exists() and stamp.read_text() == wanted:
        return target
    stamp.unlink(missing_ok=True)
    folder = output / "environment.new"
    shutil.rmtree(folder, ignore_errors=True)
    _install(find_uv(root), requirements, folder)
    write_zip(target, {folder: _sources(folder)})
    shutil.rmtree(folder)
    stamp.write_text(wanted)
    return target


def _install(uv: Path, requirements: Path, folder: Path) -> None:
    command = [
        *(str(uv), "pip", "install", "--quiet", "--no-config", "--no-deps"),
        *("--target", str(folder), "--python-platform", PLATFORM),
        *("--python-version", SPARK_PYTHON, "--only-binary", ":all:", "--link-mode", "copy"),
        *("--require-hashes", "--requirements", str(requirements)),
    ]
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssetError(f"the pipeline's packages cannot be installed: {done.stderr.strip()}")


def write_zip(target: Path, files: Mapping[Path, Iterable[Path]]) -> None:
    """Pack files under their paths below a folder, every entry with one time, mode and owner."""
    partial = target.with_name(f"{target.name}.new")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder, paths in files.items():
            for path in paths:
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _ZIP_TIME)
                entry.external_attr = _FILE_MODE << 16
                entry.create_system = 3  # Unix: else Spark's Hadoop ignores the mode
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, path.read_bytes())
    partial.rename(target)


def _sources(folder: Path) -> Iterable[Path]:
    """Yield every file that is imported or read, in a fixed order."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and path.suffix != ".pyc" and not set(_NOT_IMPORTED) & set(parts):
            yield path
