"""A release, rehearsed in a clone; and its packages, in an environment that has nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from fairbox_cdk import packages
from fairbox_cdk.assets import find_uv

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/test-your-service.md"
"""Its first example publishes against the doubles, and asserts what arrived."""
SYNTHESIS = """
import sys
from pathlib import Path
import fairbox_cdk
from fairbox_cdk.node import use_bundled_node
assert Path(fairbox_cdk.__file__).is_relative_to(sys.argv[1]), fairbox_cdk.__file__
use_bundled_node()
from aws_cdk import App
app = App(outdir=sys.argv[2])
fairbox_cdk.Fairbox(app, "Outbox", settings={"removal_policy": "destroy", "pipeline": False})
app.synth()
"""


def run(*command: Any, cwd: Path | None = None, **environment: str) -> str:
    """Return the output of a program that does not find this clone."""
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=own | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources in a repository of their own, whose changelog has a date."""
    folder = tmp_path_factory.mktemp("release") / "fairbox"
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    changelog = folder / "CHANGELOG.md"
    dated = re.sub(r"(## \[[\d.]+\] - ).+", r"\g<1>2026-12-01", changelog.read_text(), count=1)
    changelog.write_text(dated)
    for arguments in (
        ["init", "--quiet"],
        ["add", "."],
        ["-c", "user.name=R", "-c", "user.email=r@example.com", "commit", "--quiet", "-m", "R"],
    ):
        run("git", *arguments, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def dist(clone: Path) -> Path:
    """The files of the rehearsed release."""
    printed = rehearse(clone)
    assert printed.returncode == 0, printed.stderr
    assert "git push origin v0.2.0" in printed.stdout
    return clone / "build/dist"


def rehearse(clone: Path) -> subprocess.CompletedProcess[str]:
    script = ROOT / "scripts/release.py"
    command = [sys.executable, str(script), "dry-run", "--root", str(clone)]
    (clone / ".local/uv/bin").mkdir(parents=True, exist_ok=True)
    uv = clone / ".local/uv/bin/uv"
    if not uv.exists():
        uv.symlink_to(find_uv(ROOT).resolve())
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_files_of_a_release_have_their_checksums_and_their_licence(dist: Path) -> None:
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert sums == {
        path.name: sha256(path.read_bytes()).hexdigest()
        for path in dist.iterdir()
        if path.name != "SHA256SUMS"
    }
    assert len(sums) == 7
    for wheel in dist.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            (metadata,) = (archive.read(n).decode() for n in names if n.endswith("/METADATA"))
        assert any(name.endswith("licenses/LICENSE") for name in names)
        assert {"License-Expression: Apache-2.0", "Requires-Python: >=3.11"} <= set(
            metadata.splitlines()
        )


def test_the_library_works_alone_in_an_empty_environment(dist: Path, tmp_path: Path) -> None:
    uv, environment = find_uv(ROOT), tmp_path / "venv"
    (wheel,) = dist.glob("fairbox-*.whl")
    run(uv, "venv", "--quiet", "--python", sys.executable, environment)
    lock = ["--constraint", ROOT / "requirements.lock"]
    python = environment / "bin/python"
    run(uv, "pip", "install", "--quiet", "--python", python, *lock, f"{wheel}[cli]")
    service = tmp_path / "service.py"
    example = PAGE.read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    service.write_text(f"{example}print(taken.message.body.decode())\n")

    assert run(python, service) == '{"order": "7"}\n'
    assert "fairbox" in run(environment / "bin/fairbox", "--help")
    run(
        *(sys.executable, "-m", "mypy", "--strict", "--python-executable", python, service),
        *("--config-file", os.devnull, "--cache-dir", tmp_path / "types"),
    )


def test_the_layer_has_the_library_where_lambda_looks(dist: Path, tmp_path: Path) -> None:
    (layer,) = dist.glob("fairbox-layer-*.zip")
    with zipfile.ZipFile(layer) as archive:
        archive.extractall(tmp_path)
    found = run(
        sys.executable, "-c", "import fairbox; print(fairbox.__file__)",
        PYTHONPATH=str(tmp_path / "python"),
    )  # fmt: skip
    assert found.strip() == str(tmp_path / "python/fairbox/__init__.py")


def test_the_stacks_of_the_package_are_those_of_the_clone(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("fairbox_cdk-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "package")
    # the setting `pipeline` would install its environment
    for part in (packages.ENTRY, packages.REQUIREMENTS, packages.JOBS / "cli.py"):
        assert (tmp_path / "package/fairbox_cdk/sources" / part).is_file()
    program = tmp_path / "app.py"
    program.write_text(SYNTHESIS)
    templates = []
    for place in (tmp_path / "package", ROOT / "stacks"):
        folder = tmp_path / f"{place.name}.out"
        run(
            *(sys.executable, program, place, folder),
            PYTHONPATH=str(place),
            XDG_CACHE_HOME=str(tmp_path / "cache"),
            CDK_VALIDATION="false",
            PATH=f"{find_uv(ROOT).parent}:{os.environ['PATH']}",
        )
        templates.append({path.name: path.read_text() for path in folder.glob("*.template.json")})

    # assets are named by what they contain: layers and functions are the same as well
    assert templates[0] == templates[1]
    assert len(templates[0]) == 6
    assert (tmp_path / "cache/fairbox-cdk/0.2.0/layers").is_dir()


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("CHANGELOG.md", "2026-12-01", "unreleased", "0.2.0 is unreleased: give it its date"),
        ("CHANGELOG.md", "## [0.2.0]", "## [0.1.9]", "begins with 0.1.9, expected 0.2.0"),
        ("stacks/pyproject.toml", "fairbox==0.2.0", "fairbox>=0.2", "asks for another fairbox"),
        ("clients/js/package.json", '"0.2.0"', '"0.1.0"', "has version 0.1.0, expected 0.2.0"),
        ("README.md", "# Fairbox", "# Fair", "the work tree has changes"),
    ],
)
def test_what_a_release_lacks_is_said(
    clone: Path, name: str, old: str, new: str, problem: str
) -> None:
    path = clone / name
    before = path.read_text()
    path.write_text(before.replace(old, new, 1))
    try:
        done = rehearse(clone)
    finally:
        path.write_text(before)
    assert done.returncode == 1
    assert problem in done.stderr
    assert "git push" not in done.stdout
