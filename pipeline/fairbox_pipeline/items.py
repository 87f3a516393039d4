"""Items of DynamoDB's exports to rows: an attribute of another type is a fault, never a NULL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from fairbox_pipeline import attributes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

_NAMES: Final = sorted(
    {attributes.PK, attributes.SK}
    | {name for name, _ in (*attributes.MESSAGE.values(), *attributes.TRACKER.values())}
)
_VALUE: Final = "struct<S:string,N:string,B:string>"
_EPOCHS: Final = "struct<L:array<struct<L:array<struct<N:string>>>>>"
LINE: Final = (
    f"Item struct<{','.join(f'{name}:{_VALUE}' for name in _NAMES)},"
    f"{attributes.EPOCHS}:{_EPOCHS}>, uri string"
)
"""Schema of a line: every attribute that is read, of every type that it may have."""
_DIGITS: Final = "^[0-9]+$"


def messages(lines: DataFrame) -> DataFrame:
    """Return the messages of an outbox.

    Columns: `uri`, `fault`, `lane`, `topic`, `epoch`, `shard`, `id`, `partition_key`,
    `content_type`, `size` (bytes), `batch_item`, `gone`, `due` (ms).
    """
    parts = F.split(_text("pk"), "#")
    lane = parts[0]
    is_message = F.col(f"Item.{attributes.MARK}").isNotNull() & lane.isin(*attributes.LANES)
    later = F.when(lane == "later", F.substring_index(_text("sk"), "#", 1))
    misplaced = (F.size(parts) != 4) | ~(
        F.get(parts, F.lit(2)).rlike(_DIGITS) & F.get(parts, F.lit(3)).rlike(_DIGITS)
    )
    values = _values(attributes.MESSAGE)
    values["due"] = later.try_cast("bigint")
    return _rows(
        lines,
        is_message | _no_key(),
        [
            *_wrong_types(attributes.MESSAGE),
            F.when(misplaced, F.concat(F.lit("pk: no lane of a shard: "), _text("pk"))),
            F.when(~later.rlike(_DIGITS), F.lit("sk: does not begin with a time")),
        ],
        {
            "lane": lane,
            "topic": F.get(parts, F.lit(1)),
            "epoch": F.get(parts, F.lit(2)).try_cast("bigint"),
            "shard": F.get(parts, F.lit(3)).try_cast("bigint"),
            "id": F.substring_index(_text("sk"), "#", -1),
            **values,
        },
    )


def topics(lines: DataFrame) -> DataFrame:
    """Return the topics of an outbox.

    Columns: `uri`, `fault`, `topic`, `epochs`: structs of `number`, `shards`, `since` (ms).
    """
    parts = F.split(_text("sk"), "#")
    is_topic = (_text("pk") == attributes.CONFIG) & (parts[0] == "topic") & (F.size(parts) == 2)
    names = ("number", "shards", "since")
    epochs = F.transform(
        F.col(f"Item.{attributes.EPOCHS}.L"),
        lambda epoch: F.struct(
            *(
                F.get(epoch["L"], F.lit(place))["N"].try_cast("bigint").alias(name)
                for place, name in enumerate(names)
            )
        ),
    )
    whole = F.forall(
        epochs, lambda e: e["number"].isNotNull() & e["shards"].isNotNull() & e["since"].isNotNull()
    )
    is_list = F.coalesce((F.size(epochs) > 0) & whole, F.lit(False))
    told = F.lit(f"{attributes.EPOCHS}: is no list of epochs")
    return _rows(lines, is_topic, [F.when(~is_list, told)], {"topic": parts[1], "epochs": epochs})


def trackers(lines: DataFrame) -> DataFrame:
    """Return the trackers of a batches table: one row a root, node, leaf or failed item.

    Columns: `uri`, `fault`, `record`, `batch`, `number` (of the group or node), `bits` (least
    significant first), `count`, `size`, `failed`, `settled`, `state`, `next_group`, `total`,
    `opened`, `user_key`.
    """
    kinds = F.create_map(*(F.lit(x) for pair in attributes.TRACKER_KINDS.items() for x in pair))
    record = kinds[_text("sk")]
    digits = F.regexp_extract(_text("pk"), "^[^#]*#n?(.*)$", 1)
    unnumbered = (record != "root") & ~digits.rlike(_DIGITS)
    told = F.concat(F.lit("pk: names no group or node: "), _text("pk"))
    return _rows(
        lines,
        record.isNotNull(),
        [*_wrong_types(attributes.TRACKER), F.when(unnumbered, told)],
        {
            "record": record,
            "batch": F.substring_index(_text("pk"), "#", 1),
            "number": F.when(record != "root", digits.try_cast("bigint")),
            **_values(attributes.TRACKER),
        },
    )


def _rows(
    lines: DataFrame, chosen: Column, faults: list[Column], columns: Mapping[str, Column]
) -> DataFrame:
    """Return a row of each chosen item, and of each line that is no item."""
    no_item = F.when(_no_key(), F.lit("the line is no item with pk and sk"))
    found = lines.where(F.coalesce(chosen, F.lit(False)) | _no_key())
    return found.select(
        "uri",
        F.coalesce(no_item, *faults).alias("fault"),
        *(column.alias(name) for name, column in columns.items()),
    )


def _no_key() -> Column:
    return _text("pk").isNull() | _text("sk").isNull()


def _text(name: str) -> Column:
    return F.col(f"Item.{name}.S")


def _values(named: Mapping[str, tuple[str, str]]) -> dict[str, Column]:
    return {column: _value(name, kind) for column, (name, kind) in named.items()}


def _value(name: str, kind: str) -> Column:
    text = F.col(f"Item.{name}.{kind}")
    if kind == "N":
        return text.try_cast("bigint")
    return F.try_to_binary(text, F.lit("base64")) if kind == "B" else text


def _wrong_types(named: Mapping[str, tuple[str, str]]) -> list[Column]:
    """Return a fault of each attribute that is there, and whose value cannot be read."""
    return [
        F.when(
            F.col(f"Item.{name}").isNotNull() & _value(name, kind).isNull(),
            F.lit(f"{name}: is no {kind}"),
        )
        for name, kind in named.values()
    ]
