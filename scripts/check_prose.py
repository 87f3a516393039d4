"""Refuse docstrings and headings that begin with a relative clause in place of a noun.

A first line is a noun phrase or an imperative: "The claims of a shard's keys.", "Return the claims
of a shard's keys.", not "What a shard's consumers hold.". Whether stays: it has no noun.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
REFUSED: Final = frozenset({"what", "who", "whom", "whose", "which", "where", "when", "why", "how"})
_HEADING: Final = re.compile(r"#{1,6}\s+(.*)")
_WORD: Final = re.compile(r"[A-Za-z]+")
_FENCE: Final = re.compile(r"\s*(```|~~~)")


def findings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every refused docstring or heading of a `.py` or `.md` file."""
    text = path.read_text(encoding="utf-8")
    lines = _headings(text) if path.suffix == ".md" else _docstrings(text)
    for number, line in lines:
        first = _WORD.search(line)
        if first is not None and first[0].lower() in REFUSED and not line.startswith("`"):
            yield number, line


def _docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of modules, classes and functions, and the texts below constants."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for n, statement in enumerate(node.body):
            documents = n == 0 or isinstance(node.body[n - 1], ast.Assign | ast.AnnAssign)
            match statement:
                case ast.Expr(ast.Constant(str(value))) if documents:
                    yield statement.lineno, value.strip().partition("\n")[0]


def _headings(text: str) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if _FENCE.match(line):
            fenced = not fenced
        heading = _HEADING.match(line)
        if heading is not None and not fenced:
            yield number, heading[1]


def tracked() -> list[Path]:
    """Every Python and Markdown file that git tracks or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.md"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in done.stdout.splitlines() if (path := ROOT / name).is_file()]


def main(arguments: list[str]) -> int:
    """Print the refused lines of the files given, else of every tracked one; 1: there are some."""
    paths = [Path(argument).resolve() for argument in arguments] or tracked()
    found = [
        f"{path.relative_to(ROOT)}:{line}: begins with a relative clause: {text}"
        for path in paths
        for line, text in findings(path)
    ]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
