"""Compare-and-set on the version of a shard row, for those of its attributes that are one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairbox.tables.shard_rows import ROW_VERSION
from fairbox.tables.stored_messages import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def versioned_update(
    table: str,
    key: Mapping[str, Any],
    values: Mapping[str, Any],
    attributes: Sequence[str],
    version: int,
) -> dict[str, Any]:
    """Return the update that writes these attributes where the row has this version (1 WRU a KB).

    Args:
        table: the outbox.
        key: of the shard row.
        values: the attributes as they shall be, the new version among them.
        attributes: which others belong to the caller: those without a value are removed.
        version: as it was read; 0: nobody has counted yet.
    """
    fields = {"#v": ROW_VERSION}
    expected = {":v": values[ROW_VERSION]}
    sets, removes = ["#v = :v"], []
    for n, name in enumerate(attributes):
        fields[f"#h{n}"] = name
        if name in values:
            sets.append(f"#h{n} = :h{n}")
            expected[f":h{n}"] = values[name]
        else:
            # attributes without a value are not written: an old one would stay as if it were new
            removes.append(f"#h{n}")

    condition = "attribute_not_exists(#v)"
    if version:
        condition = "#v = :was"
        expected[":was"] = number(version)

    update = f"SET {', '.join(sets)}"
    return {
        "TableName": table,
        "Key": dict(key),
        "UpdateExpression": update + (f" REMOVE {', '.join(removes)}" if removes else ""),
        "ConditionExpression": condition,
        "ExpressionAttributeNames": fields,
        "ExpressionAttributeValues": expected,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
