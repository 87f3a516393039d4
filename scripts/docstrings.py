"""Docstrings, signatures and documented constants of modules as Markdown."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import re
import tokenize
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Yields|Example):")
_ENTRY = re.compile(r"([A-Za-z_][\w, ]*?): (.*)")
_ERRORS = re.compile(r"(?<=[.;] )(?=[A-Z]\w+(?:, [A-Z]\w+)*: )")


def signature(name: str, obj: Any) -> str:
    """Return the signature as source text, without `self`."""
    parts: list[str] = []
    starred = False
    for parameter in inspect.signature(obj).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            starred = True
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        parts.append(_parameter(parameter))
    returns = inspect.signature(obj).return_annotation
    arrow = "" if inspect.isclass(obj) or returns is inspect.Signature.empty else f" -> {returns}"
    whole = f"{name}({', '.join(parts)}){arrow}"
    if len(whole) <= 88:
        return whole
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){arrow}"


def _parameter(parameter: inspect.Parameter) -> str:
    star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    text = f"{star}{parameter.name}"
    annotated = parameter.annotation is not parameter.empty
    if annotated:
        text += f": {parameter.annotation}"
    if parameter.default is parameter.empty:
        return text
    default = parameter.default
    hidden = callable(default) or isinstance(default, frozenset) or "factory" in repr(default)
    shown = "..." if hidden else repr(default)
    return text + (f" = {shown}" if annotated else f"={shown}")


def markdown(doc: str) -> str:
    """Return a Google-style docstring as Markdown: sections become lists."""
    out: list[str] = []
    section: list[str] | None = None
    title = ""
    for line in [*inspect.cleandoc(doc).splitlines(), "End:"]:
        match = _SECTION.fullmatch(line)
        if match or line == "End:":
            if section is not None:
                out = ["\n".join(out).strip(), "", f"**{title}**", "", *_section(title, section)]
            title, section = (match[1], []) if match else ("", None)
        elif section is None:
            out.append(line)
        else:
            section.append(line)
    return "\n".join(out).strip()


def _section(title: str, lines: list[str]) -> list[str]:
    text = inspect.cleandoc("\n".join(lines)).splitlines()
    if title == "Example":
        return text
    entries: list[str] = []
    for line in text:
        if line.startswith(" ") and entries:
            entries[-1] += " " + line.strip()
        elif _ENTRY.fullmatch(line) or not entries or title in ("Args", "Attributes", "Raises"):
            entries.append(line)
        else:
            entries[-1] += " " + line
    if title == "Raises":
        entries = [part.strip(" ;") for entry in entries for part in _ERRORS.split(entry)]
    return [_entry(entry, title) for entry in entries if entry]


def _entry(text: str, title: str) -> str:
    match = _ENTRY.fullmatch(text)
    if title in ("Returns", "Yields") or match is None:
        return text
    names = ", ".join(f"`{name.strip()}`" for name in match[1].split(","))
    return f"- {names}: {match[2]}"


def public_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield a class's public methods and properties: those of its parts here, then its own."""
    fields = {f.name for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    parts = [c for c in cls.__mro__[1:] if c.__module__.partition(".")[0] == "fairbox"]
    for name, member in [item for part in (*parts, cls) for item in vars(part).items()]:
        if name.startswith("_") or name in fields:
            continue
        if isinstance(member, classmethod | staticmethod):
            yield name, member.__func__
        elif isinstance(member, property) or inspect.isfunction(member):
            yield name, member


def constants(path: Path) -> dict[str, tuple[Any, str]]:
    """Return a module's upper-case constants: name -> (value, the text below it).

    For a class they are its fields: the value is the annotation.
    """
    found: dict[str, tuple[Any, str]] = {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    for body in bodies:
        for node, after in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            found[node.target.id] = (_value(node), _text(after))
    return found


def _value(node: ast.AnnAssign) -> Any:
    if node.value is None:
        return ast.unparse(node.annotation)
    try:
        return ast.literal_eval(node.value)
    except ValueError:
        return ast.unparse(node.value)


def _text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""


def commented(path: Path) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return a module's groups of text constants: (heading, [(name, value, comment)]).

    A heading is a comment on a line of its own; a comment behind a constant is its own.
    """
    text = path.read_text(encoding="utf-8")
    comments: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string.lstrip("# ")
    assigned = {
        node.lineno: node for node in ast.parse(text).body if isinstance(node, ast.AnnAssign)
    }
    groups: list[tuple[str, list[tuple[str, str, str]]]] = [("", [])]
    for line in sorted({*comments, *assigned}):
        node = assigned.get(line)
        if node is None:
            groups.append((comments[line], []))
        elif isinstance(node.target, ast.Name) and isinstance(_value(node), str):
            groups[-1][1].append((node.target.id, _value(node), comments.get(line, "")))
    return groups
