"""Write the tables of the reference pages from the code, or check them (`--check`)."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairbox.api.openapi import openapi
from fairbox.api.routes import ROUTES
from fairbox.cli.command_line import app
from fairbox.cli.cost_verb import month
from fairbox.observability import metrics
from fairbox.problems import KINDS, URN
from fairbox_cdk.config import Config
from fairbox_pipeline.schemas import TABLES
from typer.main import get_command

from scripts.marked_parts import ROOT, run, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scripts.marked_parts import Parts

LIBRARY: Final = ROOT / "layers/fairbox/python/fairbox"
_SHARED: Final = frozenset({"json", "endpoint_url", "help"})  # of every verb


def constants(path: Path) -> dict[str, tuple[Any, str]]:
    """Return a module's annotated constants, its classes' too: (value, the text below it)."""
    found: dict[str, tuple[Any, str]] = {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    for body in bodies:
        for node, after in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            text = after.value if isinstance(after, ast.Expr) else None
            told = str(text.value) if isinstance(text, ast.Constant) else ""
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            found[node.target.id] = (value, " ".join(told.split()))
    return found


def environment() -> Iterable[str]:
    """Yield the table of the variables that library and functions read."""
    found = constants(LIBRARY / "settings.py").values()
    names = [(f"`{name}`", text) for name, text in found if str(name).startswith("FAIRBOX_")]
    return table(("variable", "what it is"), names)


def settings() -> Iterable[str]:
    """Yield the table of a deployment's settings."""
    documented = constants(ROOT / "stacks/fairbox_cdk/config.py")
    rows = [(f"`{k}`", f"`{json.dumps(v)}`", documented[k][1]) for k, v in vars(Config()).items()]
    return table(("key", "default", "what it is"), rows)


def local_profile() -> Iterable[str]:
    """Yield the table of what profile `local` changes."""
    profiles = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]["profiles"]
    rows = [(f"`{key}`", f"`{json.dumps(value)}`") for key, value in profiles["local"].items()]
    return table(("key", "local"), rows)


def figures() -> Iterable[str]:
    """Yield the table of the metrics."""
    found = constants(LIBRARY / "observability/metrics.py").values()
    names = {v: text for v, text in found if text and isinstance(v, str) and v.isalpha()}
    rows = [
        (f"`{n}`{' *' * (n in metrics.OVERALL)}", metrics.UNITS.get(n, "Count"), text)
        for n, text in names.items()
    ]
    return table(("metric", "unit", "what it is"), rows)


def verbs() -> Iterator[str]:
    """Yield every verb of the command line with its example and options."""
    root: Any = get_command(app)
    for noun, group in root.commands.items():
        if not hasattr(group, "commands"):
            yield from _verb(f"## fairbox {noun}", group)
            continue
        yield from (f"## fairbox {noun}", "", group.help, "")
        for verb, command in group.commands.items():
            yield from _verb(f"### fairbox {noun} {verb}", command)


def _verb(heading: str, command: Any) -> Iterator[str]:
    example = command.epilog.removeprefix("Example: ")
    yield from (heading, "", command.help.replace("\n", " "), "")
    yield from ("```console", f"$ {example}", "```", "")
    shown = [p for p in command.params if p.name not in _SHARED and not p.hidden]
    yield from (f"- {_named(p)}{_default(p)}: {p.help}" for p in shown)
    yield ""


def _named(parameter: Any) -> str:
    kind = parameter.metavar or parameter.name.upper()
    if parameter.param_type_name == "argument":
        return f"`{kind.strip('[]')}`"
    names = (*sorted(parameter.opts, key=len, reverse=True), *parameter.secondary_opts)
    text = ", ".join(f"`{name}`" for name in names)
    return text if parameter.is_flag else f"{text} {kind}"


def _default(parameter: Any) -> str:
    if parameter.required:
        return " (required)"
    default = parameter.default
    unsaid = default in (None, False, "", ()) or callable(default)
    return "" if unsaid else f" (default `{default}`)"


def columns() -> Iterator[str]:
    """Yield the tables of the pipeline with their columns."""
    for described in TABLES:
        partition = ", ".join(
            column if width is None else f"truncate({width}, {column})"
            for column, width in described.partition.items()
        )
        facts = [described.meaning]
        if partition:
            facts.append(f"Partitioned by `{partition}`.")
        if described.order:
            facts.append(f"Sorted by `{'`, `'.join(described.order)}`.")
        yield from (f"## {described.full_name}", "", " ".join(facts), "")
        rows = [
            (f"`{c.name}`", c.dataType.simpleString(), c.metadata.get("comment", ""))
            for c in described.schema
        ]
        yield from table(("column", "type", "what it is"), rows)
        yield ""


def months() -> Iterable[str]:
    """Yield the table of what a month of one and of ten million messages a day costs."""
    small, large = (list(month(number * 1e6 / 86_400)) for number in (1, 10))
    rows = [
        (service, use, f"${usd:,.2f}", more, f"${dearer:,.2f}")
        for (service, use, usd), (_, more, dearer) in zip(small, large, strict=True)
    ]
    sums = (f"**${sum(usd for *_, usd in lines):,.0f}**" for lines in (small, large))
    head = ("service", "one million a day", "a month", "ten million a day", "a month")
    return table(head, [*rows, ("**sum**", "", next(sums), "", next(sums))])


def document() -> Iterator[str]:
    """Yield the OpenAPI document of the HTTP API."""
    yield json.dumps(openapi(ROUTES), indent=2)


def problems() -> Iterable[str]:
    """Yield the table of the HTTP API's problems."""
    rows = [(str(status), f"`{URN}{kind}`", title) for kind, (status, title) in KINDS.items()]
    return table(("status", "type", "title"), rows)


PAGES: Final[Mapping[str, Parts]] = {
    "docs/reference/settings.md": {
        "environment": environment,
        "deployment": settings,
        "local": local_profile,
    },
    "docs/reference/metrics.md": {"metrics": figures},
    "docs/reference/cli.md": {"verbs": verbs},
    "docs/reference/pipeline-tables.md": {"columns": columns},
    "docs/explanation/costs.md": {"months": months},
    "docs/reference/openapi.json": {"": document},
    "docs/reference/http-api.md": {"problems": problems},
}

if __name__ == "__main__":
    sys.exit(run("write_reference.py", PAGES))
