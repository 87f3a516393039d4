"""Builds of the package for EMR Serverless: the jobs as one zip, and their dependencies.

The same sources give the same bytes on every machine. The zip holds pure Python: the pipeline, and
the library for `replay`. The environment is for EMR's processor and Python; PySpark and Iceberg are
part of the release and not in it.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import tarfile
import zipfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stacks.assets import FIXED_TIME, LIBRARY, PLATFORM, AssetError, find_uv, locked, shipped_files

if TYPE_CHECKING:
    from collections.abc import Iterable

SPARK_PYTHON: Final = "3.11"
"""The oldest platform of the release; the environment contains its extension modules."""
JOBS: Final = Path("pipeline/fairbox_pipeline")
ENTRY: Final = Path("pipeline/submit.py")
REQUIREMENTS: Final = Path("pipeline/requirements.lock")
_ZIP_TIME: Final = (2020, 1, 1, 0, 0, 0)
_NOT_IMPORTED: Final = ("tests", "include", "bin", "__pycache__")
"""Folders of packages that no job needs."""


@dataclass(frozen=True)
class PipelinePackage:
    """The package with which a job is started.

    Attributes:
        entry: the script.
        code: zip for `--py-files`.
        environment: tar for `spark.archives`; its root is put on the path.
    """

    entry: Path
    code: Path
    environment: Path


def build_package(root: Path, output: Path) -> PipelinePackage:
    """Build the package below `output`; skip unchanged parts.

    Raises:
        AssetError: uv is missing, or a package has no wheel for the platform.
    """
    output.mkdir(parents=True, exist_ok=True)
    with locked(output / ".lock"):
        return PipelinePackage(
            root / ENTRY, build_code(root, output), build_environment(root, output)
        )


def build_code(root: Path, output: Path) -> Path:
    """Write `fairbox_pipeline.zip`: the pipeline and what jobs run of the library, sources only."""
    target = output / "fairbox_pipeline.zip"
    partial = target.with_suffix(".new")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        jobs = root / JOBS
        for base, paths in (
            (jobs.parent, _sources(jobs)),
            (root / LIBRARY, shipped_files(root)),
        ):
            for path in paths:
                name = path.relative_to(base).as_posix()
                entry = zipfile.ZipInfo(name, _ZIP_TIME)
                entry.external_attr = 0o644 << 16
                entry.create_system = 3
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, path.read_bytes())
    partial.rename(target)
    return target


def build_environment(root: Path, output: Path) -> Path:
    """Install the locked packages for EMR and write `environment.tar.gz`."""
    requirements = root / REQUIREMENTS
    target = output / "environment.tar.gz"
    stamp = output / "environment.stamp"
    wanted = sha256(Path(__file__).read_bytes() + requirements.read_bytes()).hexdigest()
    if target.exists() and stamp.exists() and stamp.read_text() == wanted:
        return target
    stamp.unlink(missing_ok=True)
    folder = output / "environment.new"
    shutil.rmtree(folder, ignore_errors=True)
    _install(find_uv(root), requirements, folder)
    write_tar(folder, target)
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


def write_tar(folder: Path, target: Path) -> None:
    """Pack the imported files of `folder`, every entry with one time, mode and owner."""
    partial = target.with_suffix(".new")
    with (
        partial.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in _sources(folder):
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size = path.stat().st_size
            entry.mtime = FIXED_TIME
            entry.mode = 0o644
            with path.open("rb") as content:
                archive.addfile(entry, content)
    partial.rename(target)


def _sources(folder: Path) -> Iterable[Path]:
    """Yield every file that is imported or read, in a fixed order."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and path.suffix != ".pyc" and not set(_NOT_IMPORTED) & set(parts):
            yield path
