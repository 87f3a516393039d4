"""Builds of the two layers: the same sources give the same bytes on every machine.

Both contain bytecode for the functions' Python if an interpreter of that version is found: imports
are nearly three times as fast. Bytecode is of the unchecked-hash kind, which contains no file time,
and its paths are those of Lambda.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

RUNTIME_PYTHON: Final = "3.13"
PLATFORM: Final = "aarch64-manylinux_2_28"
LAYER_PATH: Final = "/opt/python"
FIXED_TIME: Final = 1_577_836_800
"""Time of every file: 2020-01-01, later than the earliest time of a zip archive."""
REQUIREMENTS: Final = Path("layers/dependencies/requirements.lock")
LIBRARY: Final = Path("layers/fairbox/python")
NOT_SHIPPED: Final = ("cli", "doctor", "testing")
"""Packages of the library that no function and no job runs, neither here nor of a user."""


class AssetError(RuntimeError):
    """A layer cannot be built; the message says what is missing."""


def source_root() -> Path:
    """The folder of functions, layers and pipeline: the clone, or the copy in an installation."""
    packaged = Path(__file__).parent / "sources"
    return packaged if packaged.is_dir() else Path(__file__).parents[2]


def build_folder(root: Path) -> Path:
    """The folder of what is built: the clone's, or the user's cache of this version."""
    if root.parent != Path(__file__).parent:
        return root / "build"
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "fairbox-cdk" / library_version(root)


def library_version(root: Path) -> str:
    """The version of the library in `root`, as its project file has it."""
    project = tomllib.loads((root / LIBRARY.parent / "pyproject.toml").read_text())
    return str(project["project"]["version"])


def build_layers(root: Path, output: Path) -> tuple[Path, Path]:
    """Bring both layers up to date below `output`: (dependencies, library).

    Each is the folder of a layer asset, with `python/` in it. What has not changed is not
    built again.

    Raises:
        AssetError: uv is missing, or a package has no wheel for the platform.
    """
    output.mkdir(parents=True, exist_ok=True)
    with locked(output / ".lock"):
        compiler = find_python()
        return build_dependencies(root, output, compiler), build_library(root, output, compiler)


def build_dependencies(root: Path, output: Path, compiler: Path | None) -> Path:
    """Install the locked third-party packages for Lambda into `output/dependencies`."""
    requirements = root / REQUIREMENTS

    def fill(folder: Path) -> None:
        command = [
            *(str(find_uv(root)), "pip", "install", "--quiet", "--no-config", "--no-deps"),
            *("--target", str(folder), "--python-platform", PLATFORM),
            *("--python-version", RUNTIME_PYTHON, "--only-binary", ":all:"),
            # hard links would let the settling below change the files of uv's cache
            *("--link-mode", "copy", "--require-hashes", "--requirements", str(requirements)),
        ]
        environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssetError(f"the dependency layer cannot be installed: {done.stderr.strip()}")

    return _build(output / "dependencies", fill, compiler, [requirements])


def build_library(root: Path, output: Path, compiler: Path | None) -> Path:
    """Copy what functions run of the library into `output/fairbox`."""
    source = root / LIBRARY
    files = shipped_files(root)

    def fill(folder: Path) -> None:
        for path in files:
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)

    return _build(output / "fairbox", fill, compiler, files, relative_to=source)


def shipped_files(root: Path) -> list[Path]:
    """Sources of the library that functions and jobs run, sorted: all but `NOT_SHIPPED`."""
    package = root / LIBRARY / "fairbox"
    return [
        path
        for path in sorted(package.rglob("*"))
        if path.is_file()
        and "__pycache__" not in path.parts
        and path.relative_to(package).parts[0] not in NOT_SHIPPED
    ]


def find_uv(root: Path) -> Path:
    """Return the clone's own uv, or that of this Python's packages, or the one on the path."""
    own = root / ".local/uv/bin/uv"
    if own.exists():
        return own
    with suppress(ImportError, FileNotFoundError):
        return Path(import_module("uv").find_uv_bin())
    if found := shutil.which("uv"):
        return Path(found)
    raise AssetError("uv is missing: run `make env` in a clone, or `pip install uv`")


def find_python() -> Path | None:
    """Return an interpreter of the functions' Python version, or None."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == RUNTIME_PYTHON:
        return Path(sys.executable)
    name = f"python{RUNTIME_PYTHON}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = shutil.which(name)
    candidates = [
        *([Path(on_path)] if on_path else []),
        *sorted(pyenv.glob(f"versions/{RUNTIME_PYTHON}.*/bin/{name}"), reverse=True),
    ]
    return next((path for path in candidates if _runs(path)), None)


def _runs(python: Path) -> bool:
    """Whether an interpreter has the version in its name; a version manager's shim may not."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run(
        [str(python), "-I", "-c", ask], capture_output=True, text=True, check=False
    )
    return done.returncode == 0 and done.stdout.strip() == RUNTIME_PYTHON


def _build(
    target: Path,
    fill: Callable[[Path], None],
    compiler: Path | None,
    sources: Iterable[Path],
    *,
    relative_to: Path | None = None,
) -> Path:
    """Fill, compile and normalise `target` unless its stamp shows that it is current."""
    stamp = target.with_suffix(".stamp")
    wanted = _fingerprint(compiler, sources, relative_to)
    if target.is_dir() and stamp.exists() and stamp.read_text() == wanted:
        return target
    stamp.unlink(missing_ok=True)
    fresh = target.with_suffix(".new")
    for folder in (fresh, target):
        shutil.rmtree(folder, ignore_errors=True)
    python = fresh / "python"
    python.mkdir(parents=True)
    fill(python)
    for name in ("bin", ".lock"):
        _remove(python / name)
    if compiler is not None:
        _compile(python, compiler)
    _settle(fresh)
    fresh.rename(target)
    stamp.write_text(wanted)
    return target


def _fingerprint(compiler: Path | None, sources: Iterable[Path], relative_to: Path | None) -> str:
    """Return the fingerprint of a layer: this builder, the presence of a compiler, every source."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    digest.update(b"bytecode" if compiler else b"sources only")
    for path in sorted(sources):
        name = path.relative_to(relative_to) if relative_to else path.name
        content = path.read_bytes()
        digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _compile(python: Path, compiler: Path) -> None:
    """Write the bytecode of every module, independently of the caller's Python settings."""
    command = [
        *(str(compiler), "-s", "-P", "-m", "compileall", "-q", "-f", "-j", "1"),
        *("-s", str(python), "-p", LAYER_PATH, "--invalidation-mode", "unchecked-hash"),
        str(python),
    ]
    environment = {"PATH": os.environ.get("PATH", "")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssetError(f"a layer does not compile: {done.stdout.strip()}{done.stderr.strip()}")


def _settle(folder: Path) -> None:
    """Give every entry one time and one mode."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (FIXED_TIME, FIXED_TIME))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Allow one build at a time among all processes that synthesise."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
