"""The pipeline's package: the same bytes from every build, complete, and for EMR's processor."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest
from fairbox_cdk import packages
from fairbox_cdk.assets import LIBRARY, AssetError

from tests.stacks.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the package is made of, with one package that has an extension module."""
    root = tmp_path / "project"
    for folder in (packages.JOBS, LIBRARY):
        shutil.copytree(ROOT / folder, root / folder)
    lock = (ROOT / "requirements.lock").read_text()
    one = re.search(r"^markupsafe==(?:.*\\\n)*.*\n", lock, re.MULTILINE)
    assert one is not None
    (root / packages.REQUIREMENTS).write_text(one[0])
    uv = root / ".local/uv/bin/uv"
    uv.parent.mkdir(parents=True)
    uv.symlink_to(ROOT / ".local/uv/bin/uv")
    return root


def test_two_builds_of_the_code_are_the_same_to_the_byte(project: Path, tmp_path: Path) -> None:
    first = packages.build_code(ROOT, _folder(tmp_path / "a"))
    for path in sorted(project.rglob("*.py"), reverse=True):
        path.touch()
    second = packages.build_code(project, _folder(tmp_path / "b"))
    assert first.read_bytes() == second.read_bytes()


def test_the_code_runs_from_the_zip_alone(tmp_path: Path) -> None:
    code = packages.build_code(ROOT, tmp_path)
    names = zipfile.ZipFile(code).namelist()
    assert "fairbox_pipeline/cli.py" in names
    assert "fairbox/client/outbox.py" in names
    assert not [
        n for n in names if n.split("/")[1] in {"cli", "doctor", "testing"} and n[:8] == "fairbox/"
    ]
    assert not [n for n in names if n.endswith(".pyc") or "__pycache__" in n]
    ask = "import fairbox, fairbox_pipeline; print(fairbox.__file__, fairbox_pipeline.__file__)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(code)!r}); {ask}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count(str(code)) == 2


def test_the_environment_is_the_same_twice_and_for_the_release_s_processor_and_python(
    project: Path, tmp_path: Path
) -> None:
    first = packages.build_environment(project, _folder(tmp_path / "a"))
    second = packages.build_environment(project, _folder(tmp_path / "b"))
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        names = archive.namelist()
        kinds = {(e.date_time, e.external_attr >> 16, e.create_system) for e in archive.infolist()}
    assert kinds == {((2020, 1, 1, 0, 0, 0), 0o644, 3)}
    modules = [name for name in names if name.endswith(".so")]
    assert modules
    assert all("cpython-311-aarch64" in name for name in modules)


def test_what_has_not_changed_is_not_installed_again(project: Path, tmp_path: Path) -> None:
    output = _folder(tmp_path / "a")
    target = packages.build_environment(project, output)
    target.write_text("as it was")
    assert packages.build_environment(project, output).read_text() == "as it was"
    lock = project / packages.REQUIREMENTS
    lock.write_text(lock.read_text() + "\n")
    assert packages.build_environment(project, output).read_bytes()[:2] == b"PK"


def test_a_package_that_cannot_be_had_is_named(project: Path, tmp_path: Path) -> None:
    lock = project / packages.REQUIREMENTS
    lock.write_text(re.sub(r"sha256:\w+", "sha256:" + "0" * 64, lock.read_text()))
    with pytest.raises(AssetError, match="markupsafe"):
        packages.build_environment(project, _folder(tmp_path / "a"))
    assert not (tmp_path / "a" / "environment.zip").exists()


def test_the_environment_s_lock_is_part_of_the_project_s_and_has_no_spark() -> None:
    def pins(text: str) -> set[str]:
        return set(re.findall(r"^[\w.-]+==\S+|sha256:\w{64}", text, re.MULTILINE))

    own = pins((ROOT / packages.REQUIREMENTS).read_text())
    assert own
    assert own <= pins((ROOT / "requirements.lock").read_text())
    assert not [pin for pin in own if pin.startswith(("pyspark==", "py4j=="))]


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_the_entry_script_finds_its_jobs_in_the_zip_and_the_packages_beside_it(
    tmp_path: Path,
) -> None:
    done = _started(tmp_path, "report", "--help")
    assert done.returncode == 0, done.stderr
    assert "--page URI" in done.stdout
    (tmp_path / "environment" / "pyspark").mkdir(parents=True)
    (tmp_path / "environment" / "pyspark" / "__init__.py").write_text("raise SystemExit('mine')")
    done = _started(tmp_path, "report", "--help")
    assert done.stderr == "mine\n"


def test_packages_that_spark_copied_instead_of_unpacking_are_named(tmp_path: Path) -> None:
    (tmp_path / "environment").write_text("a zip under another name")
    done = _started(tmp_path, "report", "--help")
    assert done.returncode == 1
    assert done.stderr == (
        f"fairbox: {tmp_path}/environment is a file: spark.archives must name a .zip to unpack\n"
    )


def _started(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the entry script in a folder, with the zip of the jobs on its path."""
    code = packages.build_code(ROOT, folder)
    run = "runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    return subprocess.run(
        [
            *(sys.executable, "-I", "-c"),
            f"import runpy, sys; sys.path.insert(0, {str(code)!r}); {run}",
            *(str(ROOT / packages.ENTRY), *arguments),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
