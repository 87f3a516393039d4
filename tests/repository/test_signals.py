"""Processes that handle signals never wait without a limit.

Python runs a handler in the main thread, between two steps. A signal in the moment before the
thread waits is handled only when the wait ends.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("layers/fairbox/python", "local", "simulation", "pipeline", "benchmarks", "functions")
WAITS = {"wait", "join", "get", "acquire", "result"}
NO_HANDLERS = {"SIG_IGN", "SIG_DFL", "default_int_handler"}
AFTER_THE_END = {
    "layers/fairbox/python/fairbox/consumer/group.py": "each thread has said that it ends",
    "local/soak/flood.py": "each thread was told to end, and its calls have time-outs",
}
"""Modules with such a wait, and why no signal can be missed in it."""


def handles_signals(tree: ast.Module) -> bool:
    """Whether a module sets a handler of its own."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        if name == "on_signals":
            return True
        if name == "signal.signal" and not NO_HANDLERS & set(ast.unparse(call.args[1]).split(".")):
            return True
    return False


def waits_without_limit(tree: ast.Module) -> list[int]:
    """Return the lines of calls such as `thread.join()`."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in WAITS
        and not node.args
        and not node.keywords
    ]


def test_a_module_that_handles_signals_waits_with_a_limit() -> None:
    trees = {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    }
    handling = {name: tree for name, tree in trees.items() if handles_signals(tree)}
    assert "layers/fairbox/python/fairbox/consumer/consumer.py" in handling
    found = {name: lines for name, tree in handling.items() if (lines := waits_without_limit(tree))}
    assert found.keys() == AFTER_THE_END.keys(), found
