"""Arrows point one way: the import contracts, and who may read the environment or spell names."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "layers" / "fairbox" / "python" / "fairbox"
FUNCTIONS = ROOT / "functions"
MODULES = sorted(LIBRARY.rglob("*.py"))
HANDLERS = sorted(FUNCTIONS.rglob("*.py"))
PIPELINE = sorted((ROOT / "pipeline" / "fairbox_pipeline").rglob("*.py"))
SDK = {"boto3", "botocore"}
# attributes that could stand for nothing else; the engine in memory knows any table's keys
KEYS = {"pk", "sk"}


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


def test_the_import_contracts_are_kept() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    environment = {**os.environ, "PYTHONPATH": str(LIBRARY.parent)}
    done = subprocess.run(
        [linter, "--no-cache"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("path", MODULES + HANDLERS + PIPELINE, ids=name_of)
def test_only_settings_reads_the_environment(path: Path) -> None:
    if path.name == ("environment.py" if path in PIPELINE else "settings.py"):
        return
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"environ", "getenv", "environb"}, f"line {node.lineno}"
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            assert not {a.name for a in node.names} & {"environ", "getenv"}, f"line {node.lineno}"


@pytest.mark.parametrize("path", MODULES + HANDLERS, ids=name_of)
def test_only_the_codec_spells_attribute_names(path: Path) -> None:
    # simulations judge what is in the tables without trusting the codec
    if {"codec", "testing", "simulation"} & set(path.relative_to(ROOT).parts):
        return
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Constant):
            assert node.value not in KEYS, f"line {node.lineno} spells {node.value!r}"
        if isinstance(node, ast.Dict) and _is_item(node):
            pytest.fail(f"line {node.lineno} spells an item's attributes")


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
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 80
    assert not {name.partition(".")[0] for name in imports_of(path)} & SDK
    assert any(name.startswith("fairbox.runtime.application") for name in imports_of(path)) or (
        path.parent.name == "api"
    )


@pytest.mark.parametrize("path", MODULES + PIPELINE, ids=name_of)
def test_a_module_says_first_what_it_is_for(path: Path) -> None:
    text = ast.get_docstring(tree_of(path))
    assert text
    assert text.splitlines()[0].endswith((".", ":"))
