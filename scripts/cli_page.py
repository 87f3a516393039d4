"""The reference page of the command line, from the help of its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairbox.cli.app import app
from fairbox.cli.item_input import CALL_ITEMS
from typer.main import get_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SHARED: Final = frozenset({"json", "endpoint_url", "help"})
_INTRODUCTION: Final = """\
Installed with extra `cli` of the library ([how](../how-to/add-to-your-service.md)), and with the
workspace (`make env`) as `.venv/bin/fairbox`. The tables are those that the environment names
([settings](settings.md)), region and credentials the AWS SDK's own. Against the local application:
`make up`, then `source .local/env`.

Every verb takes `--json`: one JSON object on standard output, and for a list one object a line, in
the field names of the [HTTP API](http-api.md), times in milliseconds since 1970 UTC. Without it,
what is printed is for people, times in UTC, and may change; but `batch open` and `message send`
print the bare id or ref, `batch missing` an id a line, `batch add` an id and a size a line.

Every verb but `env` takes `--endpoint-url`: DynamoDB's in place of the SDK's own.

It exits 0; 1 when it failed; 2 for usage, and for a value that its field does not take; 130 when it
was interrupted. An error is one line on standard error, or with `--json` a problem like those of
the HTTP API. What cannot be undone asks, or takes `--yes`; `--dry-run` changes nothing.

Ids are read as they come and settled {items:,} a call. A call with an id that was never issued
changes nothing and ends the run; the error says how many ids were done before it. To send all of
them again does no harm.

Characters that the encoding of the output lacks are printed as escapes. Input by pipe and files are
UTF-8, and may begin with a byte order mark.

`--wait` asks for cheap progress, at most 121 read units, after 0.2 s and then ever less often, at
last every 5 s. On a terminal it shows a bar.

`fairbox --install-completion` completes nouns, verbs and options in the shell.
"""


def cli_page() -> Iterable[str]:
    """Yield the page's parts."""
    yield "# Command line"
    yield "*Written by `scripts/write_reference.py` from the code.*"
    yield _INTRODUCTION.format(items=CALL_ITEMS)
    root: Any = get_command(app)
    for noun, group in root.commands.items():
        if not hasattr(group, "commands"):
            yield from _verb(f"fairbox {noun}", group, level=2)
            continue
        yield f"## fairbox {noun}"
        yield group.help
        for verb, command in group.commands.items():
            yield from _verb(f"fairbox {noun} {verb}", command)


def _verb(name: str, command: Any, level: int = 3) -> Iterator[str]:
    yield f"{'#' * level} {name}"
    yield command.help.replace("\n", " ")
    example = command.epilog.removeprefix("Example: ")
    yield f"```console\n$ {example}\n```"
    rows = [_row(p) for p in command.params if p.name not in _SHARED and not p.hidden]
    if rows:
        lines = ["| | default | |", "|---|---|---|", *rows]
        yield "\n".join(lines)


def _row(parameter: Any) -> str:
    cells = [_named(parameter), _default(parameter), parameter.help]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _named(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name.upper()).strip('[]')}`"
    names = ", ".join(f"`{name}`" for name in sorted(parameter.opts, key=len, reverse=True))
    if parameter.secondary_opts:
        names += "".join(f", `{name}`" for name in parameter.secondary_opts)
    return names if parameter.is_flag else f"{names} {_kind(parameter)}"


def _kind(parameter: Any) -> str:
    return f"{parameter.metavar or parameter.name.upper()}"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    return "" if default in (None, False, "", ()) or callable(default) else f"`{default}`"
