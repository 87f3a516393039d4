"""Parts of pages that scripts write: the lines between two marks."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Parts = Mapping[str, Callable[[], Iterable[str]]]

ROOT: Final = Path(__file__).resolve().parent.parent
_MARK: Final = "<!-- written by scripts/{}: {} -->\n"
_END: Final = "<!-- end -->"


def run(script: str, pages: Mapping[str, Parts], arguments: Sequence[str] | None = None) -> int:
    """Write the parts, or with `--check` name the stale pages; return 1 when one is stale.

    Args:
        script: the file's name, as the marks have it.
        pages: by its path from the root, a page's parts: for each name, what yields its lines.
            A page with the part "" is its lines alone.
        arguments: of the command; those of the process by default.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when stale")
    check = parser.parse_args(arguments).check

    stale = False
    for name, parts in pages.items():
        path = ROOT / name
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        text = before
        for part, lines in parts.items():
            written = "\n".join(lines()).strip()
            text = _replaced(text, _MARK.format(script, part), written) if part else f"{written}\n"
        if text == before:
            continue
        stale = True
        print(f"{name}: {f'stale: run scripts/{script}' if check else 'written'}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if stale and check else 0


def _replaced(text: str, mark: str, written: str) -> str:
    head, found, rest = text.partition(mark)
    if not found:
        raise SystemExit(f"the page has no line {mark}")
    _, end, tail = rest.partition(_END)
    return f"{head}{mark}\n{written}\n\n{end}{tail}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    """Yield the lines of a table."""
    yield _row(head)
    yield "|" + "---|" * len(head)
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
