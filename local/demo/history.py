"""The demo's history: its archive and outbox, analysed by the pipeline into a page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from local.engines.export import export_tables
from local.workspace import LocalError

if TYPE_CHECKING:
    from pathlib import Path

    from local.application import LocalApplication

PREFIX: Final = "archive/"
_BUCKET: Final = "ArchiveBucket"
_MUST_BE_NONE: Final = ("lost", "out_of_order", "stuck", "wrong_shard", "outstanding")


@dataclass(frozen=True, slots=True)
class History:
    """The files of a run, below one folder.

    Attributes:
        archive: the files that Firehose wrote.
        snapshot: an export of the outbox.
        warehouse: folder of the pipeline's tables and of the page.
    """

    archive: Path
    snapshot: Path
    warehouse: Path


def keep(app: LocalApplication, folder: Path) -> History:
    """Write the application's archive and an export of its tables below an emptied folder."""
    shutil.rmtree(folder, ignore_errors=True)
    app.firehose.flush()
    _download(app, folder)
    exports = export_tables(
        app.clients["dynamodb"],
        app.env,
        folder / "export",
        now=lambda: datetime.now(UTC),
        new_id=lambda: str(uuid.uuid4()),
    )
    return History(folder / "archive", exports["outbox"].folder, folder / "warehouse")


def _download(app: LocalApplication, folder: Path) -> None:
    s3 = app.clients["s3"]
    buckets = app.template.of_type("AWS::S3::Bucket")
    (bucket,) = (app.template.ref(name) for name in buckets if name.startswith(_BUCKET))
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=PREFIX):
        for found in page.get("Contents", []):
            target = folder / found["Key"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(s3.get_object(Bucket=bucket, Key=found["Key"])["Body"].read())


def analyse(history: History) -> dict[str, Any]:
    """Run the jobs `history`, `reconcile` and `report`; return their figures by job.

    Raises:
        LocalError: the pipeline fails; the message is its last line.
    """
    command = [sys.executable, "-m", "fairbox_pipeline.cli", "all", "--json"]
    command += ["--archive", str(history.archive), "--warehouse", str(history.warehouse)]
    command += ["--outstanding", str(history.snapshot)]
    # of jobs this small, the JVM's second compiler takes more than it saves
    env = os.environ | {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["no word"]
        raise LocalError(f"the pipeline fails: {said[-1]}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def problems(figures: dict[str, Any], *, added: int) -> list[str]:
    """Return the violations that the pipeline found after `added` messages."""
    reconciled = figures["reconcile"]
    found = [f"reconcile: {reconciled[n]} {n}" for n in _MUST_BE_NONE if reconciled[n]]
    if reconciled["added"] != added:
        found.append(f"the history has {reconciled['added']} messages of {added}")
    if figures["history"]["malformed"]:
        found.append(f"the archive has {figures['history']['malformed']} malformed lines")
    return found


def page_of(figures: dict[str, Any]) -> str:
    """Return the page's path, relative to the current folder."""
    return os.path.relpath(str(figures["report"]["page"]))
