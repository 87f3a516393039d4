"""The reference page of the pipeline's tables, from its schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairbox_pipeline.schemas import TABLES, Table
from fairbox_pipeline.warehouse import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    MakeTable = Callable[[Sequence[str], Iterable[Sequence[str]]], str]


def parts(note: str, table: MakeTable) -> Iterable[str]:
    """Yield the paragraphs of the page; `table` writes a Markdown table."""
    yield "# Pipeline tables"
    yield note
    yield (
        f"Iceberg tables of namespace `fairbox`, version {VERSION} (property `fairbox.version`). "
        "Each write is one commit: it is there whole, or not at all. The jobs that write them: "
        "[pipeline](pipeline.md)."
    )
    for described in TABLES:
        yield from _of_table(described, table)


def _of_table(described: Table, table: MakeTable) -> Iterable[str]:
    yield f"## {described.full_name}"
    facts = [described.meaning]
    if described.partition:
        parts = [
            column if width is None else f"truncate({width}, {column})"
            for column, width in described.partition.items()
        ]
        facts.append(f"Partitioned by `{', '.join(parts)}`.")
    if described.order:
        facts.append(f"Sorted by `{'`, `'.join(described.order)}`.")
    yield " ".join(facts)
    rows = [
        (f"`{c.name}`", c.dataType.simpleString(), c.metadata.get("comment", ""))
        for c in described.schema
    ]
    yield table(("column", "type", "what it is"), rows)
