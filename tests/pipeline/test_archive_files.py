"""The archive's files as the application writes them, in each way, before every reader."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from fairbox.aws.firehose_archive import FirehoseArchive
from fairbox.aws.s3_archive import S3Archive
from fairbox.testing import ManualClock

from tests.pipeline.writing import added, ended
from tests.support.archive import ARCHIVE, FAILURES, STREAM, Buckets, FirehoseClient, moment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.pipeline.conftest import Pipeline

AT = 1_763_000_000_000
WRITES = 8
PER_WRITE = 600


def events(write: int) -> list[dict[str, Any]]:
    numbers = range(write * PER_WRITE, (write + 1) * PER_WRITE)
    return [one(n, at=AT + n) for n in numbers for one in (added_long, delivered)]


def added_long(n: int, *, at: int) -> dict[str, Any]:
    return added(n, at=at, body=json.dumps({"n": n, "text": "ein längerer Text " * 300}))


def delivered(n: int, *, at: int) -> dict[str, Any]:
    return ended("delivered", n, at=at + 5)


def text(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


def every(step: int) -> Callable[[int], range]:
    return lambda count: range(0, count, step)


@pytest.fixture(scope="module")
def written() -> Buckets:
    """An archive of members through Firehose and past it, moved later, and of version 0.1."""
    clock, buckets = ManualClock(AT / 1000), Buckets()
    firehose = FirehoseClient(buckets, moment(clock))
    objects = S3Archive(lambda: buckets, ARCHIVE, FAILURES, clock, lambda _: None)
    archive = FirehoseArchive(firehose, STREAM, clock, objects=objects, emit=lambda _: None)
    for write in range(WRITES - 1):
        firehose.service.throttle = every(1 + write % 4)
        buckets.refusing |= {ARCHIVE} if write % 2 else set()
        archive.write([text(event) for event in events(write)])
        buckets.refusing.clear()
        clock.advance(1800)
    firehose.service.flush()
    objects.move_waiting(deadline=clock.now() + 60)
    former = b"".join(text(event) + b"\n" for event in events(WRITES - 1))
    key = "archive/dt=2025-11-13/hour=03/former-1.json.gz"
    buckets.objects[ARCHIVE, key] = gzip.compress(former)
    kinds = {"direct" if "/direct-" in key else key.rpartition("/")[2][:7] for key in keys(buckets)}
    assert kinds == {"direct", "archive", "former-"}
    return buckets


@pytest.fixture
def folder(written: Buckets, tmp_path: Path) -> Path:
    """The archive as files."""
    for key in keys(written):
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(written.objects[ARCHIVE, key])
    return tmp_path / "archive"


def keys(buckets: Buckets) -> list[str]:
    return buckets.keys(ARCHIVE, "archive/")


def expected() -> set[bytes]:
    return {text(event) for write in range(WRITES) for event in events(write)}


def test_spark_s_own_readers_read_every_line(pipeline: Pipeline, folder: Path) -> None:
    read = pipeline.spark.read.option("recursiveFileLookup", "true")
    lines = [row[0].encode() for row in read.text(str(folder)).collect()]
    assert set(lines) == expected()
    assert len(lines) == len(expected())
    assert read.json(str(folder)).select("event_id").distinct().count() == len(expected())


def test_the_jobs_read_every_event_and_find_nothing_malformed(
    pipeline: Pipeline, folder: Path
) -> None:
    figures = pipeline.run("history", archive=folder)
    assert figures["malformed"] == 0
    assert figures["states"] == {"delivered": WRITES * PER_WRITE}
    assert figures["events"] == 2 * WRITES * PER_WRITE
