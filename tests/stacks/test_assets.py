"""Layers: the same bytes from every build, for Lambda's platform, and not built twice."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fairbox_cdk import assets
from fairbox_cdk.packages import JOBS, build_code

from tests.stacks.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def digests(folder: Path) -> dict[str, str]:
    """Content, mode and time of every entry."""
    found = {}
    for path in sorted(folder.rglob("*")):
        stat = path.stat()
        content = b"" if path.is_dir() else path.read_bytes()
        parts = (stat.st_mode, int(stat.st_mtime), hashlib.sha256(content).hexdigest())
        found[str(path.relative_to(folder))] = " ".join(map(str, parts))
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return assets.build_layers(ROOT, tmp_path_factory.mktemp("layers"))


@pytest.mark.extended  # builds of their own
def test_two_builds_in_two_folders_are_the_same_to_the_byte(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    again = assets.build_layers(ROOT, tmp_path / "elsewhere" / "deeper")
    for first, second in zip(built, again, strict=True):
        assert digests(first)
        assert digests(first) == digests(second)


def test_the_dependencies_are_those_of_the_lock(
    built: tuple[Path, Path],
) -> None:
    lock = (ROOT / assets.REQUIREMENTS).read_text()
    locked = {
        name.replace("-", "_").lower() for name in re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)
    }
    python = built[0] / "python"
    installed = {path.name.split("-")[0].lower() for path in python.glob("*.dist-info")}
    assert installed == locked
    assert not (python / "bin").exists()
    assert not (python / ".lock").exists()


WALK = """
import importlib, json, pkgutil, sys
sys.path += sys.argv[1:]
import fairbox
absent = set()
for module in pkgutil.walk_packages(fairbox.__path__, "fairbox."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        absent.add(error.name)
print(json.dumps(sorted(absent)))
"""


def test_functions_import_nothing_that_the_layers_do_not_have(built: tuple[Path, Path]) -> None:
    folders = [str(layer / "python") for layer in built]
    alone = [sys.executable, "-I", "-S", "-c", WALK, *folders]  # with the standard library
    done = subprocess.run(alone, capture_output=True, text=True, check=True)
    # compiled for the functions' processor: it is there, and cannot be loaded here
    assert json.loads(done.stdout) == ["pydantic_core._pydantic_core"]


def test_compiled_extensions_are_built_for_the_functions_processor_and_python(
    built: tuple[Path, Path],
) -> None:
    names = [path.name for path in built[0].rglob("*.so")]
    assert names
    assert all("cpython-313-aarch64" in name for name in names)


def test_the_layer_s_lock_is_part_of_the_project_s_lock() -> None:
    def pins(text: str) -> set[str]:
        return set(re.findall(r"^[\w.-]+==\S+|sha256:\w{64}", text, re.MULTILINE))

    layer = pins((ROOT / assets.REQUIREMENTS).read_text())
    assert layer
    assert layer <= pins((ROOT / "requirements.lock").read_text())


def test_bytecode_names_no_time_and_the_path_that_lambda_has(built: tuple[Path, Path]) -> None:
    if assets.find_python() is None:
        pytest.skip("no Python 3.13 here, so the layers hold sources only")
    for layer in built:
        files = list(layer.rglob("*.cpython-313.pyc"))
        assert files
        unchecked_hash = (1).to_bytes(4, "little")
        assert all(path.read_bytes()[4:8] == unchecked_hash for path in files)
    outbox = built[1] / "python/fairbox/client/__pycache__/outbox.cpython-313.pyc"
    assert b"/opt/python/fairbox/client/outbox.py" in outbox.read_bytes()


def test_the_layer_holds_what_functions_run_and_nothing_else(built: tuple[Path, Path]) -> None:
    python = built[1] / "python"
    shipped = {path.relative_to(python) for path in python.rglob("*") if path.suffix != ".pyc"}
    files = {path for path in shipped if (python / path).is_file()}
    wanted = {path.relative_to(ROOT / assets.LIBRARY) for path in assets.shipped_files(ROOT)}
    assert files == wanted
    packages = {path.parts[1] for path in files if len(path.parts) > 2}
    assert packages >= {"api", "client", "dispatch", "runtime", "tables"}
    assert not packages & {"cli", "doctor", "testing", "simulation"}
    assert {path.parts[0] for path in files} == {"fairbox"}


@pytest.mark.extended  # builds of their own
@pytest.mark.parametrize("package", assets.NOT_SHIPPED)
def test_a_comment_in_what_is_not_shipped_changes_no_layer_and_no_job(
    package: str, tmp_path: Path
) -> None:
    root = tmp_path / "project"
    for folder in (assets.LIBRARY, JOBS):
        shutil.copytree(ROOT / folder, root / folder)
    (tmp_path / "out").mkdir()

    def shipped() -> tuple[dict[str, str], str, bytes]:
        layer = assets.build_library(root, tmp_path / "out", None)
        stamp = (tmp_path / "out/fairbox.stamp").read_text()
        return digests(layer), stamp, build_code(root, tmp_path / "out").read_bytes()

    before = shipped()
    with (root / assets.LIBRARY / "fairbox" / package / "__init__.py").open("a") as file:
        file.write("# a comment\n")
    assert shipped() == before
    with (root / assets.LIBRARY / "fairbox/model/__init__.py").open("a") as file:
        file.write("# a comment\n")
    layer, stamp, code = shipped()
    assert layer != before[0]
    assert stamp != before[1]
    assert code != before[2]


def project(folder: Path) -> Path:
    """A project with a small library."""
    package = folder / assets.LIBRARY / "fairbox"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""A library."""\n')
    return folder


def test_a_layer_is_built_again_only_when_its_sources_change(tmp_path: Path) -> None:
    root = project(tmp_path / "project")
    output = tmp_path / "out"
    output.mkdir()
    first = assets.build_library(root, output, None)
    inode = first.stat().st_ino
    assert assets.build_library(root, output, None).stat().st_ino == inode
    (root / assets.LIBRARY / "fairbox/more.py").write_text("MORE = 1\n")
    assets.build_library(root, output, None)
    assert (first / "python/fairbox/more.py").exists()


def test_what_python_leaves_beside_the_sources_is_not_shipped(tmp_path: Path) -> None:
    root = project(tmp_path / "project")
    cache = root / assets.LIBRARY / "fairbox/__pycache__"
    cache.mkdir()
    (cache / "old.cpython-311.pyc").write_bytes(b"old")
    (tmp_path / "out").mkdir()
    layer = assets.build_library(root, tmp_path / "out", None)
    assert [path.name for path in layer.rglob("*") if path.is_file()] == ["__init__.py"]


def test_a_library_that_does_not_compile_is_refused(tmp_path: Path) -> None:
    compiler = assets.find_python()
    if compiler is None:
        pytest.skip("no Python 3.13 here to compile with")
    root = project(tmp_path / "project")
    (root / assets.LIBRARY / "fairbox/broken.py").write_text("def\n")
    (tmp_path / "out").mkdir()
    with pytest.raises(assets.AssetError, match=r"broken\.py"):
        assets.build_library(root, tmp_path / "out", compiler)


def test_a_missing_uv_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "uv", None)  # as where the package is not installed
    with pytest.raises(assets.AssetError, match="make env"):
        assets.find_uv(tmp_path)


def test_a_package_whose_hash_is_not_the_locked_one_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "project"
    lock = root / assets.REQUIREMENTS
    lock.parent.mkdir(parents=True)
    lock.write_text(f"typing-extensions==4.16.0 --hash=sha256:{'0' * 64}\n")
    (root / ".local/uv/bin").mkdir(parents=True)
    (root / ".local/uv/bin/uv").symlink_to(shutil.which(assets.find_uv(ROOT)) or "")
    (tmp_path / "out").mkdir()
    with pytest.raises(assets.AssetError, match="ash"):
        assets.build_dependencies(root, tmp_path / "out", None)
