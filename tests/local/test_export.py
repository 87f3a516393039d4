"""Exports of the local engine's tables: DynamoDB's layout, and all items."""

from __future__ import annotations

import base64
import gzip
import hashlib
import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from fairbox.tables.definitions import batches_definition, table_definitions

from local.__main__ import main
from local.engines.export import export_tables
from local.workspace import LocalError

if TYPE_CHECKING:
    from pathlib import Path

BEGIN = datetime(2026, 11, 19, 5, tzinfo=UTC)
_numbers = itertools.count()


@pytest.fixture
def dynamodb(dynamodb_local_endpoint: str) -> Any:
    session = boto3.Session("local", "local", region_name="us-east-1")
    return session.client("dynamodb", endpoint_url=dynamodb_local_endpoint)


@pytest.fixture
def variables(dynamodb: Any) -> dict[str, str]:
    number = next(_numbers)
    names = {n: f"export-{n}-{number}" for n in ("outbox", "deliveries", "batches")}
    definitions = table_definitions(outbox=names["outbox"], deliveries=names["deliveries"])
    for definition in (*definitions, batches_definition(names["batches"])):
        definition.pop("StreamSpecification", None)
        dynamodb.create_table(**definition)
    return {f"FAIRBOX_{name.upper()}_TABLE": table for name, table in names.items()}


def exported(dynamodb: Any, variables: dict[str, str], folder: Path) -> Any:
    ids = itertools.count()
    return export_tables(
        dynamodb,
        variables,
        folder,
        now=lambda: BEGIN + timedelta(seconds=next(ids)),
        new_id=lambda: f"{next(ids):08x}-0000-7000-8000-000000000000",
    )


def checksum(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


@pytest.mark.extended
@pytest.mark.engine
def test_an_export_holds_every_item_and_checksums_that_agree(
    dynamodb: Any, variables: dict[str, str], tmp_path: Path
) -> None:
    table = variables["FAIRBOX_OUTBOX_TABLE"]
    items: list[dict[str, Any]] = [
        {
            "pk": {"S": f"ready#orders#0#{n % 3}"},
            "sk": {"S": f"{n:03}"},
            "b": {"B": bytes([n, 255])},
            "z": {"N": str(n)},
            "p": {"SS": ["a", "b"]},
            "h": {"M": {"é": {"S": "\u2028"}}},
        }
        for n in range(150)
    ]
    for item in items:
        dynamodb.put_item(TableName=table, Item=item)
    export = exported(dynamodb, variables, tmp_path)["outbox"]
    assert export.items == 150

    place = export.folder
    summary = json.loads((place / "manifest-summary.json").read_text())
    assert (summary["itemCount"], summary["exportType"]) == (150, "FULL_EXPORT")
    files = place / "manifest-files.json"
    assert summary["manifestFilesS3Key"] == str(files.relative_to(tmp_path))
    for name in ("manifest-summary", "manifest-files"):
        told = (place / f"{name}.md5").read_text()
        assert told == checksum((place / f"{name}.json").read_bytes())

    found = []
    for line in files.read_text().splitlines():
        file = json.loads(line)
        content = (tmp_path / file["dataFileS3Key"]).read_bytes()
        assert checksum(content) == file["md5Checksum"]
        rows = gzip.decompress(content).splitlines()
        assert len(rows) == file["itemCount"]
        found += [json.loads(row)["Item"] for row in rows]
    wanted = [item | {"b": {"B": base64.b64encode(item["b"]["B"]).decode()}} for item in items]
    assert sorted(found, key=lambda i: i["sk"]["S"]) == wanted


@pytest.mark.extended  # starts an engine of its own
@pytest.mark.engine
def test_every_table_that_the_variables_name_is_exported(
    dynamodb: Any, variables: dict[str, str], tmp_path: Path
) -> None:
    made = exported(dynamodb, variables, tmp_path)
    assert sorted(made) == ["batches", "deliveries", "outbox"]
    assert {export.items for export in made.values()} == {0}
    del variables["FAIRBOX_BATCHES_TABLE"]
    assert sorted(exported(dynamodb, variables, tmp_path / "2")) == ["deliveries", "outbox"]


def test_without_a_table_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="make up"):
        exported(None, {}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_that_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRBOX_LOCAL_FOLDER", str(tmp_path))
    with pytest.raises(SystemExit, match="make up"):
        main(["export"])
