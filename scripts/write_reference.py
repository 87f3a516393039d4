"""Write the reference pages from the code, or with `--check` name the stale ones."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fairbox
from fairbox import errors, inbox, testing
from fairbox.codec import batches
from fairbox.codec.keys import (
    hint_key,
    lane_pk,
    message_sk,
    segments_pk,
    topic_range,
)
from fairbox.codec.ledger import ledger_pk
from fairbox.dynamodb.definitions import batches_definition, feeds_definition, table_definitions
from fairbox.observability import metrics
from fairbox.tables.feed_connections import connection_key
from fairbox.tables.feed_leases import lease_sk
from fairbox.tables.feed_polls import HELD_KEY
from fairbox.tables.feed_topics import ACKNOWLEDGED, log_sk, topic_pk
from fairbox.testing.application import MemoryApplication, MemoryDestination
from fairbox_cdk.config import Config

from scripts import doctor_page, guarantees_page, pipeline_page
from scripts.cli_page import cli_page
from scripts.docstrings import commented, constants, markdown, public_members, signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
LIBRARY: Final = ROOT / "layers/fairbox/python/fairbox"
PAGES: Final = ROOT / "docs"
_NOTE: Final = "*Written by `scripts/write_reference.py` from the code.*"
_ID: Final = "01980000-0000-7000-8000-000000000000"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages; with `--check` write nothing, and return 1 when one is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when stale")
    parser.add_argument("--folder", type=Path, default=PAGES, help="of the pages")
    chosen = parser.parse_args(arguments)
    stale = []
    for name, text in pages().items():
        path = chosen.folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not chosen.check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"{name}: {'stale: run scripts/write_reference.py' if chosen.check else 'written'}")
    return 1 if stale and chosen.check else 0


def pages() -> dict[str, str]:
    """Return the text of every page by its file's name."""
    makers: dict[str, Callable[[], Iterable[str]]] = {
        "reference/library.md": _library,
        "reference/settings.md": _settings,
        "reference/metrics.md": _metrics,
        "reference/tables.md": _tables,
        "reference/errors.md": _errors,
        "reference/cli.md": cli_page,
        "reference/doctor.md": lambda: doctor_page.parts(_NOTE, _table),
        "reference/pipeline-tables.md": lambda: pipeline_page.parts(_NOTE, _table),
        "reference/guarantees.md": lambda: guarantees_page.parts(_NOTE, _table),
    }
    return {name: _joined(maker()) for name, maker in makers.items()}


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _library() -> Iterable[str]:
    yield "# Library"
    yield _NOTE
    yield (
        "`import fairbox` gives the names of this page. Those of errors stand in "
        "[errors.md](errors.md). Times are seconds unless a name or a text says milliseconds."
    )
    things = [getattr(fairbox, name) for name in fairbox.__all__]
    first = ("Outbox", "Message", "MessageRef", "Topic", "Subscription")
    classes = [c for c in things if inspect.isclass(c) and not issubclass(c, Exception)]
    classes.sort(key=lambda c: (first.index(c.__name__) if c.__name__ in first else 9, c.__name__))
    for cls in classes:
        yield from _class(cls)
    for function in filter(inspect.isfunction, things):
        yield f"## {function.__name__}"
        yield _code(signature(function.__name__, function))
        yield markdown(function.__doc__ or "")
    yield "## fairbox.inbox"
    yield inspect.cleandoc(inbox.__doc__ or "")
    for name in inbox.__all__:
        yield from _class(getattr(inbox, name), level=3)
    yield "## fairbox.testing"
    yield inspect.cleandoc(testing.__doc__ or "")
    for name in testing.__all__:
        thing = getattr(testing, name)
        if inspect.isclass(thing):
            yield from _class(thing, level=3)
        else:
            yield f"### {name}"
            yield _code(f"{name} = {thing!r}".replace("'", '"'))  # as ruff formats pages
    yield "### fairbox.testing.application"
    for cls in (MemoryApplication, MemoryDestination):
        yield from _class(cls, level=4)


def _class(cls: Any, level: int = 2) -> Iterable[str]:
    yield f"{'#' * level} {cls.__name__}"
    if issubclass(cls, Enum):  # its signature is that of Enum, which differs between Pythons
        yield _code("\n".join(f"{cls.__name__}.{member.name}" for member in cls))
    else:
        yield _code(signature(cls.__name__, cls))
    yield markdown(cls.__doc__ or "")
    for name, member in public_members(cls):
        doc = inspect.getdoc(getattr(cls, name)) or ""
        if isinstance(member, property):
            returns = inspect.signature(member.fget).return_annotation if member.fget else ""
            yield f"{'#' * (level + 1)} {cls.__name__}.{name}"
            yield _code(f"{name}: {returns}")
        else:
            yield f"{'#' * (level + 1)} {cls.__name__}.{name}"
            yield _code(signature(name, member))
        yield markdown(doc)


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _settings() -> Iterable[str]:
    yield "# Settings"
    yield _NOTE
    yield "## Environment"
    yield (
        "The library and the functions read these, and the AWS SDK its own. A name that is needed "
        "and missing raises [NotConfigured](errors.md#notconfigured) with that name."
    )
    found = constants(LIBRARY / "settings.py")
    rows = [(f"`{value}`", text) for value, text in found.values() if _is_name(value)]
    yield _table(("variable", "what it is"), rows)
    yield "## Settings of a deployment"
    yield (
        "`Fairbox(settings={...})` of package `fairbox-cdk` takes them by name, and so does a JSON "
        "file of your own (`make deploy SETTINGS=FILE`). In a clone, `cdk.json` holds profiles of "
        "them: `-c KEY=VALUE` goes before the chosen profile (`-c profile=NAME`), that before "
        "profile `default`, and that before the default here. An unknown key or a value that does "
        "not fit ends the synthesis with its name."
    )
    profiles = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]["profiles"]
    documented = constants(ROOT / "stacks/fairbox_cdk/config.py")
    defaults = [
        (f"`{key}`", f"`{json.dumps(value)}`", documented[key][1])
        for key, value in vars(Config()).items()
    ]
    yield _table(("key", "default", "what it is"), defaults)
    changes = [(f"`{k}`", f"`{json.dumps(v)}`") for k, v in profiles["local"].items()]
    yield "Profile `local`, which the local application takes, changes:"
    yield _table(("key", "local"), changes)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.startswith("FAIRBOX_")


def _metrics() -> Iterable[str]:
    yield "# Metrics"
    yield _NOTE
    yield (
        f"Namespace `{metrics.NAMESPACE}`, written as lines of CloudWatch's embedded metric "
        f"format. Each figure is written over all topics (dimension `service` = "
        f"`{metrics.SERVICE}` alone), and by topic (dimensions `service` and `topic`) for the "
        "topics that setting `metrics_detail` says: of none (`totals`), of the 20 busiest ones and "
        "those in trouble (`busiest`, the default), or of `all`. Of those marked *, only the "
        "former is written. Where a topic has several subscriptions, figures of deliveries are "
        "written by `service`, `topic` and `subscription` too. `OutstandingCount`, `OldestAge` and "
        "`DeadCount` of a partitioned queue's topics, and what consumers write, have dimensions "
        "`service`, `queue` (the logical name) and `partition` too, as the topics were registered. "
        "`SentBytes` is written with dimensions `service`, `destination` and `topic` alone."
    )
    yield (
        "Figures of other topics are properties of the lines, under the same names: "
        "[find the figures of a topic]"
        "(../how-to/operate-and-repair.md#find-the-figures-of-a-topic)."
    )
    rows = [
        (f"`{n}`{' *' * (n in metrics.OVERALL)}", metrics.UNITS.get(n, "Count"), text)
        for n, text in _names().items()
    ]
    yield _table(("metric", "unit", "what it is"), rows)


def _names() -> dict[str, str]:
    found = constants(LIBRARY / "observability/metrics.py")
    return {str(value): text for value, text in found.values() if text and str(value).isalpha()}


def _tables() -> Iterable[str]:
    yield "# Tables"
    yield _NOTE
    yield (
        "Four tables, paid by request; Feeds only with setting `feeds`. Names are short because "
        "they are billed with every item; only `fairbox.codec` and `fairbox.tables` spell them. "
        "Why the tables are as they are: [data model](../explanation/data-model.md), "
        "[batches](../explanation/batches.md)."
    )
    yield "## Keys and indexes"
    definitions = table_definitions(outbox="Outbox", deliveries="Deliveries")
    for definition in (*definitions, batches_definition("Batches"), feeds_definition("Feeds")):
        yield from _keys(definition)
    yield "## Items"
    low, _ = topic_range("orders")
    yield _table(
        ("item", "table", "partition key", "sort key"),
        [
            ("message, lane `ready`", "Outbox", _row(lane_pk("ready", "orders", 0, 3)), "the id"),
            (
                "message, lane `later`",
                "Outbox",
                _row(lane_pk("later", "orders", 0, 3)),
                _row(message_sk(_ID, 1_760_000_000_000, "later")),
            ),
            ("shard row", "Outbox", _row(lane_pk("ready", "orders", 0, 3)), "`!`"),
            (
                "hint row, of sixteen shards",
                "Outbox",
                *(_row(value["S"]) for value in hint_key("orders", 0, 0).values()),
            ),
            ("topic row", "Outbox", "`config`", _row(low)),
            ("subscription row", "Outbox", "`config`", _row(f"{low}#sub#billing")),
            ("version row", "Outbox", "`config`", "`!`"),
            ("heartbeat row", "Outbox, Batches", "`heartbeat`", "`!`"),
            ("dead letter", "Deliveries", _row(lane_pk("dead", "orders", 0, 3)), "the id"),
            (
                "ledger row",
                "Deliveries",
                _row(ledger_pk("orders")) + ", or `ledger#*` of several small topics",
                "first time (ms), first and last stream sequence number",
            ),
            ("deduplication row", "Deliveries", "`dedup#orders#` and a digest", "`!`"),
            (
                "segment",
                "Deliveries",
                _row(segments_pk("orders", 0, 3)),
                "end (ms), `/`, sort key behind which it begins, `/`, last sort key",
            ),
            (
                "waiting key of an ordered shard",
                "Deliveries",
                "`waits#orders#0#3#` and a number",
                "`k#` and the key's digest; by time `t#`, due (ms), digest",
            ),
            *_batch_items(),
            ("feed", "Feeds", "`config`", "`trades`"),
            ("head of a topic: its newest bundle", "Feeds", _row(topic_pk("trades/btc")), "`!`"),
            ("earlier bundle, the log", "Feeds", _row(topic_pk("trades/btc")), _row(log_sk(26))),
            (
                "acknowledged messages of a private topic",
                "Feeds",
                _row(topic_pk("inbox/u7")),
                _row(ACKNOWLEDGED),
            ),
            (
                "lease of an audience shard, in a private topic of a connection",
                "Feeds",
                _row(topic_pk("trades/btc")),
                f"{_row(lease_sk(3))}, {_row(lease_sk(3, 'L0SM9cOFvHcCIhw='))}",
            ),
            (
                "connection of a client",
                "Feeds",
                *(_row(value["S"]) for value in connection_key(3, "L0SM9cOFvHcCIhw=").values()),
            ),
            ("held polls of clients", "Feeds", *(f"`{value['S']}`" for value in HELD_KEY.values())),
        ],
    )
    yield "## Attributes"
    modules = (
        "codec/attributes.py",
        "codec/batches.py",
        "tables/feeds.py",
        "tables/feed_topics.py",
        "tables/feed_connections.py",
        "tables/feed_polls.py",
    )
    for heading, names in (group for name in modules for group in commented(LIBRARY / name)):
        rows = [(f"`{value}`", _spaced(name), comment) for name, value, comment in names]
        rows = [row for row in rows if row[2]]
        if rows:
            yield f"### {heading[:1].upper()}{heading[1:]}"
            yield _table(("attribute", "name", "type and meaning"), rows)


def _batch_items() -> Iterable[tuple[str, str, str, str]]:
    keys = {
        "root": batches.root_key(_ID),
        "node": batches.node_key(_ID, 0),
        "leaf: a group's pending items": batches.leaf_key(_ID, 17),
        "a group's failed items": batches.failed_key(_ID, 17),
        "request of an add": batches.request_key(_ID, "0f6c..."),
        "metadata": batches.meta_key(_ID),
    }
    for item, key in keys.items():
        pk, sk = (value["S"] for value in key.values())
        yield item, "Batches", _row(pk), _row(sk)


def _spaced(name: str) -> str:
    return name.lower().replace("_", " ")


def _row(text: str) -> str:
    return f"`{text}`"


def _keys(definition: dict[str, Any]) -> Iterable[str]:
    yield f"### {definition['TableName']}"
    rows = [("the table", *(f"`{key['AttributeName']}`" for key in definition["KeySchema"]), "all")]
    for index in definition.get("GlobalSecondaryIndexes", ()):
        projection = index["Projection"]
        names = [f"`{name}`" for name in projection.get("NonKeyAttributes", [])]
        keys = (f"`{key['AttributeName']}`" for key in index["KeySchema"])
        rows.append((f"`{index['IndexName']}`", *keys, ", ".join(names) or "keys only"))
    yield _table(("", "hash", "range", "attributes"), rows)
    stream = definition.get("StreamSpecification")
    if stream:
        yield f"Stream: `{stream['StreamViewType']}`."


def _errors() -> Iterable[str]:
    yield "# Errors"
    yield _NOTE
    yield inspect.cleandoc(errors.__doc__ or "").replace("\n\n```\n", "\n\n```text\n", 1)
    classes = [c for c in vars(errors).values() if _is_error(c)]
    for cls in classes:
        yield from _error(cls, f"fairbox.{cls.__name__}")


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, errors.FairboxError)


def _error(cls: Any, path: str) -> Iterable[str]:
    yield f"## {cls.__name__}"
    bases = ", ".join(f"`{base.__name__}`" for base in cls.__bases__)
    yield f"`{path}`, a subclass of {bases}. {inspect.getdoc(cls)}"
    body = inspect.getsource(cls)
    attributes = list(dict.fromkeys(re.findall(r"self\.(\w+) =", body)))
    if attributes:
        yield "Attributes: " + ", ".join(f"`{name}`" for name in attributes) + "."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in r) + " |" for r in lines
    )


if __name__ == "__main__":
    sys.exit(main())
