"""Builds what a release consists of, and rehearses the release: `release.py dist | dry-run`."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairbox_cdk.assets import find_uv, source_root
from fairbox_cdk.packages import write_zip

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PACKAGES: Final = {
    "fairbox": "layers/fairbox",
    "fairbox-cdk": "stacks",
    "fairbox-pipeline": "pipeline",
}
"""Distributions, and their folders."""
FIXTURES: Final = "tests/fixtures/releases"
CHECKSUMS: Final = "SHA256SUMS"
_HEADING: Final = re.compile(r"^## \[(.+?)\] - (.+)$", re.MULTILINE)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if something is missing, having said what."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("dist", "dry-run"))
    parser.add_argument("--root", type=Path, default=source_root(), help="the clone")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    version = _version(root, PACKAGES["fairbox"])
    if options.action == "dry-run":
        missing = [*_versions(root, version), *_history(root, version)]
        for problem in missing:
            print(f"fairbox: {problem}", file=sys.stderr)
        if missing:
            return 1

    try:
        for line in _built(root, root / "build/dist"):
            print(line)
    except subprocess.CalledProcessError as error:
        print(f"fairbox: a package cannot be built: {error.stderr.strip()}", file=sys.stderr)
        return 1
    if options.action == "dry-run":
        print(f"fairbox: {version} is ready. Its tag releases it (.github/workflows/release.yml):")
        print(f'  git tag --sign v{version} -m "Fairbox {version}"\n  git push origin v{version}')
    return 0


def _built(root: Path, output: Path) -> Iterator[str]:
    """Build every file below `output`, with their checksums; yield a line for each."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    for folder in PACKAGES.values():
        # the wheel is made of the source distribution: so that one is whole as well
        subprocess.run(
            [find_uv(root), "build", "--quiet", "--out-dir", output, root / folder],
            env={**os.environ, "UV_PYTHON_DOWNLOADS": "never"},
            capture_output=True,
            text=True,
            check=True,
        )
    (output / ".gitignore").unlink(missing_ok=True)
    _write_layer(root, output)

    files = sorted(output.iterdir())
    digests = {path.name: sha256(path.read_bytes()).hexdigest() for path in files}
    lines = [f"{digest}  {name}\n" for name, digest in digests.items()]
    (output / CHECKSUMS).write_text("".join(lines), "utf-8")
    for name, digest in digests.items():
        yield f"{(output / name).stat().st_size:>9}  {digest[:16]}  {output.name}/{name}"


def _write_layer(root: Path, output: Path) -> None:
    """Write a layer of the wheel's modules; boto3 is that of Lambda's runtime."""
    (wheel,) = output.glob("fairbox-*.whl")
    layer = output / "layer"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(layer / "python")
    target = output / f"fairbox-layer-{_version(root, PACKAGES['fairbox'])}.zip"
    write_zip(target, {layer: sorted(path for path in layer.rglob("*") if path.is_file())})
    shutil.rmtree(layer)


def _version(root: Path, folder: str) -> str:
    return str(_project(root, folder)["version"])


def _project(root: Path, folder: str) -> dict[str, object]:
    project = tomllib.loads((root / folder / "pyproject.toml").read_text("utf-8"))["project"]
    return dict(project)


def _versions(root: Path, version: str) -> Iterator[str]:
    """Yield each file that names another version than the library's."""
    for folder in (".", *PACKAGES.values(), "simulation"):
        own = _version(root, folder)
        if own != version:
            yield f"{folder}/pyproject.toml has version {own}, expected {version}"
    script = json.loads((root / "clients/js/package.json").read_text("utf-8"))["version"]
    if script != version:
        yield f"clients/js/package.json has version {script}, expected {version}"
    # a release goes with itself: other versions of the library lack what the stacks ask of it
    for folder in ("stacks", "pipeline", "simulation"):
        if f'"fairbox=={version}"' not in (root / folder / "pyproject.toml").read_text("utf-8"):
            yield f"{folder}/pyproject.toml asks for another fairbox than {version}"


def _history(root: Path, version: str) -> Iterator[str]:
    """Yield what changelog, fixtures and git lack."""
    heading = _HEADING.search((root / "CHANGELOG.md").read_text("utf-8"))
    newest, date = heading.groups() if heading else ("nothing", "")
    if newest != version:
        yield f"CHANGELOG.md begins with {newest}, expected {version}"
    elif not _DATE.fullmatch(date):
        yield f"CHANGELOG.md says that {version} is {date}: give it its date"
    if not (root / FIXTURES / version).is_dir():
        yield f"{FIXTURES} lacks {version}: run scripts/write_release_fixtures.py"
    if _git(root, "tag", "--list", f"v{version}"):
        yield f"tag v{version} exists: raise the version"
    if _git(root, "status", "--porcelain", "--untracked-files=no"):
        yield "the work tree has changes: commit them"


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
