"""The library's requests on the in-memory engine and on DynamoDB Local: same answers and tables."""

from __future__ import annotations

import json
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from fairbox.tables.definitions import batches_definition, table_definitions
from fairbox.testing import ManualClock, MemoryDynamoDB
from fairbox.testing.application import BATCHES, DELIVERIES, OUTBOX

from tests.differential.recording import NAMES, Recorded, recorded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

pytestmark = pytest.mark.engine
Items = list[dict[str, Any]]
_EXACT = Context(prec=60)


@pytest.fixture(scope="session")
def engines(dynamodb_local_endpoint: str) -> tuple[Any, Any]:
    """The in-memory engine and DynamoDB Local, with the same tables."""
    local = boto3.client(
        "dynamodb",
        endpoint_url=dynamodb_local_endpoint,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": 1}),
    )
    memory = MemoryDynamoDB(ManualClock())
    definitions = [
        *table_definitions(outbox=NAMES[OUTBOX], deliveries=NAMES[DELIVERIES]),
        batches_definition(NAMES[BATCHES]),
    ]
    for definition in definitions:
        definition.pop("StreamSpecification", None)  # slow in DynamoDB Local, and not compared
        memory.create_table(**definition)
        local.create_table(**definition)
    return memory, local


def prepare(engine: Any, items: Mapping[str, Items]) -> None:
    """Let the tables have these items and no others."""
    for table in NAMES.values():
        found = contents(engine, table)
        gone = [{"DeleteRequest": {"Key": {k: i[k] for k in ("pk", "sk")}}} for i in found]
        put = [{"PutRequest": {"Item": item}} for item in items.get(table, ())]
        for entries in (gone, put):
            for start in range(0, len(entries), 25):
                engine.batch_write_item(RequestItems={table: entries[start : start + 25]})


def contents(engine: Any, table: str) -> Items:
    """Return all items of a table, in an order that both engines share."""
    page = engine.scan(TableName=table, ConsistentRead=True)
    items: Items = page["Items"]
    while start := page.get("LastEvaluatedKey"):
        page = engine.scan(TableName=table, ConsistentRead=True, ExclusiveStartKey=start)
        items += page["Items"]
    return ordered(items)


def answer(engine: Any, request: Recorded) -> Any:
    """Return what one engine answers, without words and units."""
    try:
        found = getattr(engine, request.method)(**request.arguments)
    except ClientError as error:
        response: Any = error.response
        reasons = [reason["Code"] for reason in response.get("CancellationReasons", ())]
        return response["Error"]["Code"], reasons, plain(response.get("Item"))
    rest = {k: v for k, v in found.items() if k not in ("ResponseMetadata", "ConsumedCapacity")}
    if request.method == "scan":
        rest["Items"] = ordered(rest["Items"])  # each engine has its own order of hashes
    if request.method == "batch_get_item":
        rest["Responses"] = {table: ordered(items) for table, items in rest["Responses"].items()}
    return plain(rest)


def plain(value: Any) -> Any:
    """Return a copy of which equal attribute values are equal: numbers, and sets in one order."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"N"} and isinstance(value["N"], str):
        return {"N": format(Decimal(value["N"]).normalize(_EXACT) or Decimal(0), "f")}
    return {
        key: sorted(inner) if key in ("SS", "NS", "BS") else plain(inner)
        for key, inner in value.items()
    }


def ordered(items: Sequence[dict[str, Any]]) -> Items:
    return sorted(map(plain, items), key=lambda i: json.dumps(i, sort_keys=True, default=repr))


def test_both_engines_answer_alike(engines: tuple[Any, Any]) -> None:
    shapes = recorded()
    assert len(shapes) > 80
    for shape, samples in shapes.items():
        for request in samples:
            for engine in engines:
                prepare(engine, request.before)
            ours, theirs = (answer(engine, request) for engine in engines)
            assert ours == theirs, (shape, request)
            for table in NAMES.values():
                mine, other = (contents(engine, table) for engine in engines)
                assert mine == other, (shape, request)
