"""Installation of DynamoDB Local, or of another lock: Maven files, verified by hash."""

from __future__ import annotations

import hashlib
import shutil
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from local.workspace import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jgo.maven import MavenContext

    from local.workspace import Workspace

COORDINATE = "software.amazon.dynamodb:DynamoDBLocal:3.1.0"
NAME = "dynamodb-local"
LOCK_FILE = Path(__file__).with_name(f"{NAME}.lock")
DOWNLOADS_AT_ONCE = 8


@dataclass(frozen=True, order=True)
class LockedFile:
    """One line of the lock: `sha256 group:artifact:version:packaging`."""

    group: str
    artifact: str
    version: str
    packaging: str
    sha256: str

    @property
    def name(self) -> str:
        """File name as repositories write it."""
        return f"{self.artifact}-{self.version}.{self.packaging}"

    @property
    def line(self) -> str:
        """The line in the lock file."""
        return f"{self.sha256} {self.group}:{self.artifact}:{self.version}:{self.packaging}"

    @classmethod
    def parse(cls, line: str) -> LockedFile:
        """Read one line.

        Raises:
            LocalError: the line is not of that form.
        """
        try:
            sha256, coordinate = line.split()
            group, artifact, version, packaging = coordinate.split(":")
        except ValueError:
            raise LocalError(f"{LOCK_FILE.name}: not a locked file: {line!r}") from None
        return cls(group, artifact, version, packaging, sha256)


def locked_files(lock_file: Path = LOCK_FILE) -> list[LockedFile]:
    """Read the lock, without comments."""
    lines = lock_file.read_text(encoding="utf-8").splitlines()
    return [LockedFile.parse(line) for line in lines if line and not line.startswith("#")]


def maven(repository: Path) -> MavenContext:
    """Return a resolver in pure Python with its cache in the given folder."""
    from jgo.maven import (  # noqa: PLC0415 - only an installation needs it
        MavenContext,
        PythonResolver,
    )

    return MavenContext(resolver=PythonResolver(), repo_cache=repository.resolve(), timeout=60)


def installed(workspace: Workspace) -> Path:
    """Return the folder of the installed files.

    Raises:
        LocalError: the locked version is not installed.
    """
    folder = folder_of(workspace)
    if not (folder / ".complete").is_file():
        raise LocalError("DynamoDB Local is not installed: make engines")
    return folder


def install(
    workspace: Workspace,
    *,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
    lock_file: Path = LOCK_FILE,
    name: str = NAME,
) -> bool:
    """Fetch the locked files unless they are installed; return whether anything was done.

    `progress` is called with the numbers of fetched and of all files. A file whose hash differs
    from the lock is removed. `name` is that of the installation; older ones are removed.

    Raises:
        LocalError: a file cannot be fetched, or is not the locked one.
    """
    folder = folder_of(workspace, lock_file, name)
    if (folder / ".complete").is_file():
        return False
    files = locked_files(lock_file)
    workspace.folder(folder)
    context = maven(workspace.engines / "repository")
    progress(0, len(files))
    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
        fetches = [pool.submit(_fetch, context, file, folder) for file in files]
        try:
            for done, fetch in enumerate(as_completed(fetches), start=1):
                fetch.result()
                progress(done, len(files))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    (folder / ".complete").touch()
    _remove_others(folder, name)
    return True


def folder_of(workspace: Workspace, lock_file: Path = LOCK_FILE, name: str = NAME) -> Path:
    """Return the folder of a lock; each content of the lock has a folder of its own."""
    fingerprint = hashlib.sha256(lock_file.read_bytes()).hexdigest()[:12]
    return workspace.engines / f"{name}-{fingerprint}"


def _fetch(context: MavenContext, file: LockedFile, folder: Path) -> None:
    target = folder / file.name
    if target.is_file() and sha256_of(target) == file.sha256:
        return
    component = context.project(file.group, file.artifact).at_version(file.version)
    artifact = component.artifact(packaging=file.packaging)
    source = _with_retries(artifact.resolve, file.name)
    if sha256_of(source) != file.sha256:  # possibly left by an interrupted download
        source.unlink()
        source = _with_retries(artifact.resolve, file.name)
    found = sha256_of(source)
    if found != file.sha256:
        source.unlink()
        raise LocalError(f"{file.name} has sha256 {found}, but the lock names {file.sha256}")
    shutil.copyfile(source, target)


def _with_retries(fetch: Callable[[], Path], name: str) -> Path:
    """Fetch; retry after 1, 2 and 4 s."""
    for pause in (1, 2, 4, None):
        try:
            return fetch()
        except (OSError, RuntimeError) as exc:
            if pause is None:
                raise LocalError(f"cannot fetch {name}: {exc}") from exc
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _remove_others(folder: Path, name: str) -> None:
    for other in folder.parent.glob(f"{name}-*"):
        if other != folder:
            shutil.rmtree(other)


def resolve(context: MavenContext, coordinate: str = COORDINATE) -> Sequence[LockedFile]:
    """Resolve the engine and its dependencies and hash each file; return the new lock."""
    inputs, transitive = context.resolver.resolve([context.create_dependency(coordinate)])
    files = []
    for dependency in [*inputs, *transitive]:
        path = _with_retries(dependency.artifact.resolve, dependency.artifactId)
        files.append(
            LockedFile(
                dependency.groupId,
                dependency.artifactId,
                dependency.version,
                dependency.type,
                sha256_of(path),
            )
        )
    return sorted(files)
