"""Making, describing and dropping tables, and their time to live."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from .memory_tables import Index, Keys, Table
from .refusals import Refusal, invalid, invalid_parameter
from .stores import Row
from .streams import Stream
from .values import copy_item

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .memory_tables import Engine
    from .operation_requests import Request, Response
    from .values import Item

ACCOUNT: Final = "000000000000"
_LIST_LIMIT: Final = 100
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")


def create_table(engine: Engine, request: Request) -> Response:
    """CreateTable; the table is active at once."""
    name = request["TableName"]
    indexes = request.get("GlobalSecondaryIndexes", [])
    for each in (name, *(definition["IndexName"] for definition in indexes)):
        if not _NAME.fullmatch(each):
            raise invalid(f"Invalid table/index name {each!r}: 3 to 255 of a-z A-Z 0-9 _ - .")
    if name in engine.tables:
        raise Refusal("ResourceInUseException", f"Table already exists: {name}")

    kinds = {
        definition["AttributeName"]: definition["AttributeType"]
        for definition in request["AttributeDefinitions"]
    }
    keys = _keys(request["KeySchema"], kinds)

    table = Table(name, keys, _description(engine, request))
    used = set(keys.names)
    for definition in indexes:
        index = _index(definition, kinds, keys)
        table.indexes[index.name] = index
        used |= set(index.keys.names)
    # the service refuses definitions that no key uses, too
    if used != kinds.keys():
        raise invalid_parameter(
            "Number of attributes in KeySchema does not exactly match number of attributes "
            "defined in AttributeDefinitions"
        )

    # the label has the time of making: a table made again under its name has another stream
    specification = request.get("StreamSpecification", {})
    if specification.get("StreamEnabled"):
        label = datetime.fromtimestamp(engine.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
        arn = f"{table.description['TableArn']}/stream/{label}"
        table.stream = Stream(arn, specification["StreamViewType"], engine.region)
        table.description["StreamSpecification"] = dict(specification)
        table.description["LatestStreamArn"] = arn
        table.description["LatestStreamLabel"] = label

    # last: a refused definition leaves nothing behind
    engine.tables[name] = table
    return {"TableDescription": _described(table)}


def _description(engine: Engine, request: Request) -> dict[str, Any]:
    name = request["TableName"]
    return {
        "TableName": name,
        "TableArn": f"arn:aws:dynamodb:{engine.region}:{ACCOUNT}:table/{name}",
        "TableStatus": "ACTIVE",
        "KeySchema": [dict(part) for part in request["KeySchema"]],
        "AttributeDefinitions": [dict(part) for part in request["AttributeDefinitions"]],
        "BillingModeSummary": {"BillingMode": request.get("BillingMode", "PROVISIONED")},
        "CreationDateTime": datetime.fromtimestamp(engine.clock.now(), UTC),
    }


def _keys(schema: list[dict[str, str]], kinds: dict[str, str]) -> Keys:
    roles = {part["KeyType"]: part["AttributeName"] for part in schema}
    if schema[0]["KeyType"] != "HASH" or roles.keys() - {"HASH", "RANGE"}:
        raise invalid("Invalid KeySchema: The first KeySchemaElement is not a HASH key type")
    _check_attribute_names(roles.values())
    for attribute in roles.values():
        if kinds.get(attribute) not in {"S", "N", "B"}:
            raise invalid_parameter(
                "Some index key attributes are not defined in AttributeDefinitions. "
                f"Keys: [{attribute}], AttributeDefinitions: [{', '.join(kinds)}]"
            )

    range_name = roles.get("RANGE")
    range_kind = kinds[range_name] if range_name is not None else None
    return Keys(roles["HASH"], kinds[roles["HASH"]], range_name, range_kind)


def _check_attribute_names(names: Iterable[str]) -> None:
    if not all(len(name.encode()) in range(1, 256) for name in names):
        raise invalid("Names of key attributes and of projected ones have 1 to 255 characters")


def _index(definition: dict[str, Any], kinds: dict[str, str], table_keys: Keys) -> Index:
    keys = _keys(definition["KeySchema"], kinds)
    projection = definition["Projection"]
    kind = projection.get("ProjectionType")
    if kind not in {"ALL", "KEYS_ONLY", "INCLUDE"}:
        raise invalid_parameter(f"Unknown ProjectionType: {kind}")

    projected = None
    if kind != "ALL":
        included = projection.get("NonKeyAttributes", [])
        _check_attribute_names(included)
        if (kind == "INCLUDE") != bool(included):
            raise invalid_parameter(f"ProjectionType is {kind}, NonKeyAttributes do not fit it")
        # every entry carries the keys of its table: pages of an index go on by them
        projected = frozenset((*table_keys.names, *keys.names, *included))

    return Index(definition["IndexName"], keys, projected, definition)


def _described(table: Table) -> dict[str, Any]:
    described = {
        **table.description,
        "KeySchema": [dict(part) for part in table.description["KeySchema"]],
        "ItemCount": len(table.store),
        "TableSizeBytes": sum(
            row.size
            for partition in table.store.partitions.values()
            for row in partition.rows.values()
        ),
    }

    if table.indexes:
        described["GlobalSecondaryIndexes"] = [
            {
                "IndexName": index.name,
                "KeySchema": [dict(part) for part in index.definition["KeySchema"]],
                "Projection": dict(index.definition["Projection"]),
                "IndexStatus": "ACTIVE",
                "IndexArn": f"{table.description['TableArn']}/index/{index.name}",
                "ItemCount": len(index.store),
            }
            for index in table.indexes.values()
        ]

    return described


def describe_table(engine: Engine, request: Request) -> Response:
    """DescribeTable."""
    return {"Table": _described(_named(engine, request["TableName"]))}


def delete_table(engine: Engine, request: Request) -> Response:
    """DeleteTable; its stream can still be read."""
    table = _named(engine, request["TableName"])
    del engine.tables[table.name]
    if table.stream is not None:
        # the service keeps a stream's records for 24 hours, whether its table is there or not
        engine.retired_streams[table.name] = table.stream
    return {"TableDescription": {**_described(table), "TableStatus": "DELETING"}}


def _named(engine: Engine, name: str) -> Table:
    table = engine.tables.get(name)
    if table is None:
        raise Refusal(
            "ResourceNotFoundException", f"Requested resource not found: Table: {name} not found"
        )
    return table


def list_tables(engine: Engine, request: Request) -> Response:
    """ListTables, at most 100 names a page."""
    after = request.get("ExclusiveStartTableName", "")
    limit = min(request.get("Limit", _LIST_LIMIT), _LIST_LIMIT)
    names = sorted(name for name in engine.tables if name > after)
    response: Response = {"TableNames": names[:limit]}
    # callers go on until this is missing
    if len(names) > limit:
        response["LastEvaluatedTableName"] = names[limit - 1]
    return response


def update_time_to_live(engine: Engine, request: Request) -> Response:
    """UpdateTimeToLive; `MemoryDynamoDB.expire` carries it out."""
    table = _named(engine, request["TableName"])
    specification = request["TimeToLiveSpecification"]
    table.ttl_attribute = specification["AttributeName"] if specification["Enabled"] else None
    return {"TimeToLiveSpecification": dict(specification)}


def describe_time_to_live(engine: Engine, request: Request) -> Response:
    """DescribeTimeToLive."""
    attribute = _named(engine, request["TableName"]).ttl_attribute
    if attribute is None:
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
    return {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": attribute}}


def load_items(engine: Engine, name: str, items: Iterable[Item]) -> int:
    """Put items without stream records or units, keeping them as they are; how many."""
    table = _named(engine, name)
    count = 0
    for item in items:
        key, row = table.key_of(item), Row(item)
        table.check(row, "Item size has exceeded the maximum allowed size")
        # an item may lie under this key already: its entries must leave the indexes
        old = table.store.get(key)
        table.store.put(key, row)
        for index in table.indexes.values():
            # no lag: the items are to look as if they had been there for long
            index.write(key, old, row, engine.clock.now(), 0.0)
        count += 1
    return count


def items_of(engine: Engine, name: str) -> list[dict[str, Any]]:
    """Copies of all items of a table, for tests to look at."""
    return [copy_item(row.item) for row in engine.table(name).store.scan(0, 1 << 64, None)]
