"""Arrows point one way: the import contracts, and who may read the environment or spell names."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from fairbox_cdk.assets import NOT_SHIPPED

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "layers" / "fairbox" / "python" / "fairbox"
MODULES = sorted(LIBRARY.rglob("*.py"))
HANDLERS = sorted((LIBRARY / "functions").glob("[a-z]*.py"))
PIPELINE = sorted((ROOT / "pipeline" / "fairbox_pipeline").rglob("*.py"))
SIMULATION = sorted((ROOT / "simulation" / "fairbox_simulation").rglob("*.py"))
SDK = {"boto3", "botocore"}
ADAPTERS = {"tables", "sdk", "aws", "destinations", "runtime", "testing", "doctor", "smoke"}
"""Packages that may import the AWS SDK."""
# attributes that could stand for nothing else; the engine in memory knows any table's keys
KEYS = {"pk", "sk"}


# what the request of a write is made of; modules that read such requests are named with it
REQUEST = re.compile(r"TransactItems|\w*Expression|ExpressionAttribute(Names|Values)")
REQUESTS = {
    LIBRARY / "tables",
    LIBRARY / "inbox" / "inbox.py",  # for the consumer's own table
    LIBRARY / "testing",
    LIBRARY / "doctor" / "functions.py",
}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


def lint_imports(folder: Path, library: Path) -> subprocess.CompletedProcess[str]:
    linter = Path(sys.executable).with_name("lint-imports")
    path = os.pathsep.join(str(each) for each in (library, ROOT))
    return subprocess.run(
        [linter, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_contracts_see_the_sdk_in_every_package_and_a_module_without_a_layer(
    tmp_path: Path,
) -> None:
    shutil.copytree(LIBRARY, tmp_path / "fairbox")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    packages = {path.parent.name for path in LIBRARY.glob("*/__init__.py")}
    without = {name for name in packages if name not in ADAPTERS}
    assert len(without) >= 10
    for name in without:
        (tmp_path / "fairbox" / name / "planted.py").write_text("import boto3\n")
    (tmp_path / "fairbox/stray.py").write_text("")
    done = lint_imports(tmp_path, tmp_path)
    assert done.returncode == 1
    output = " ".join(done.stdout.split())
    assert {name for name in without if f"fairbox.{name}.planted -> boto3" in output} == without
    assert "fairbox.stray" in output


def place_of(path: Path, node: ast.AST) -> str:
    return f"{name_of(path)}:{getattr(node, 'lineno', 0)}"


def test_only_settings_reads_the_environment() -> None:
    reads = {"environ", "getenv", "environb"}
    found = [
        place_of(path, node)
        for path in MODULES + PIPELINE + SIMULATION
        if path.name != ("environment.py" if path in PIPELINE else "settings.py")
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.Attribute) and node.attr in reads)
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and {alias.name for alias in node.names} & reads
        )
    ]
    assert found == []


def test_nothing_is_closed_by_del() -> None:
    """In a cycle, what an object owns may be finalized before it: `weakref.finalize` does it."""
    closing = (
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef) and node.name == "__del__"
    )
    assert list(closing) == []


def test_only_the_tables_spell_attribute_names() -> None:
    found = [
        place_of(path, node)
        for path in MODULES
        if not {"tables", "testing"} & set(path.relative_to(ROOT).parts)
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.Constant) and node.value in KEYS)
        or (isinstance(node, ast.Dict) and _is_item(node))
    ]
    assert found == []


def test_only_the_tables_write_transactions_and_expressions() -> None:
    found = [
        place_of(path, node)
        for path in MODULES
        if not REQUESTS & {path, *path.parents}
        for node in ast.walk(tree_of(path))
        if isinstance(
            spelled := node.arg if isinstance(node, ast.keyword) else getattr(node, "value", None),
            str,
        )
        and REQUEST.fullmatch(spelled)
    ]
    assert found == []


def test_no_two_modules_of_the_library_bear_the_same_name() -> None:
    shared = {"__init__", "models", "ports"}
    names = Counter(path.stem for path in MODULES)
    assert [name for name, count in names.items() if count > 1 and name not in shared] == []


def test_a_long_function_has_paragraphs() -> None:
    walls = [
        place_of(path, node)
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_wall(path, node)
    ]
    assert walls == [], "a blank line between the steps of a function of over 25 lines"


def _is_wall(path: Path, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function has over 25 lines of several statements, and none of them is blank."""
    steps = function.body[1:] if ast.get_docstring(function) else function.body
    if len(steps) < 2:
        return False
    code = path.read_text(encoding="utf-8").splitlines()[steps[0].lineno - 1 : function.end_lineno]
    return len(code) > 25 and "" not in code


def _is_item(node: ast.Dict) -> bool:
    """Whether a dict literal writes attribute values under names of its own: {"a": {"S": ...}}."""
    types = {"S", "N", "B", "M", "L", "SS", "NS", "BS"}
    for key, value in zip(node.keys, node.values, strict=True):
        own = isinstance(key, ast.Constant) and isinstance(key.value, str)
        if (
            own
            and isinstance(value, ast.Dict)
            and len(value.keys) == 1
            and isinstance(key, ast.Constant)
        ):
            inner = value.keys[0]
            placeholder = str(key.value).startswith(":")
            if isinstance(inner, ast.Constant) and inner.value in types and not placeholder:
                return True
    return False


@pytest.mark.parametrize("path", HANDLERS, ids=name_of)
def test_a_handler_translates_and_is_short(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line]) <= 70
    assert not {name.partition(".")[0] for name in imports_of(path)} & SDK
    absent = {("fairbox", package) for package in NOT_SHIPPED}
    assert not {tuple(name.split(".")[:2]) for name in imports_of(path)} & absent
    applications = ("fairbox.runtime.function_application", "fairbox.runtime.feed_application")
    assert path.stem == "api" or any(n.startswith(applications) for n in imports_of(path))
