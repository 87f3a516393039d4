"""The CI workflow and the pre-commit hooks: they run targets, versions and tools that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]
from packaging.specifiers import SpecifierSet

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))


def steps(job: dict[str, Any], action: str = "") -> Iterator[dict[str, Any]]:
    """Yield the steps of a job that use an action, or those that run a command."""
    for step in job["steps"]:
        if (step.get("uses", "").partition("@")[0] == action) if action else "run" in step:
            yield step


def test_the_workflow_calls_targets_of_the_makefile_and_nothing_else() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [step["run"] for job in WORKFLOW["jobs"].values() for step in steps(job)]
    assert all(re.fullmatch(r"make [a-z-]+", command) for command in commands)
    called = {command.removeprefix("make ") for command in commands}
    assert called == {"lint", "test-unit", "test-all"}
    assert called <= targets


def test_every_version_that_the_project_allows_is_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    allowed = SpecifierSet(project["requires-python"])
    versions = [f"3.{minor}" for minor in range(100) if f"3.{minor}" in allowed]
    assert WORKFLOW["jobs"]["unit"]["strategy"]["matrix"]["python"] == versions
    [python] = steps(WORKFLOW["jobs"]["all"], "actions/setup-python")
    assert python["with"]["python-version"] in versions


def test_jobs_read_the_repository_only_and_end() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    for job in WORKFLOW["jobs"].values():
        assert "permissions" not in job
        assert 0 < job["timeout-minutes"] <= 60
        assert all(re.search(r"@v\d+$", step["uses"]) for step in job["steps"] if "uses" in step)


def test_every_hook_is_a_tool_of_the_locked_environment() -> None:
    locked = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    packages = {"lint-imports": "import-linter"}
    for repository in HOOKS["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            command, *arguments = hook["entry"].split()
            folder, _, tool = command.rpartition("/")
            assert folder == ".venv/bin"
            if tool == "python":
                assert (ROOT / arguments[0]).is_file()
            else:
                assert re.search(rf"^{packages.get(tool, tool)}==", locked, re.MULTILINE)
