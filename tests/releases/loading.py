"""A release's fixtures as an application that today's code goes on with."""

from __future__ import annotations

import base64
import random
import zlib
from typing import TYPE_CHECKING, Any, Final

from fairbox.tables.stream_records import image_item
from fairbox.testing import ManualClock
from fairbox.testing.application import BATCHES, OUTBOX, MemoryApplication

from tests.releases.folder import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

UNKNOWN: Final[dict[str, Any]] = {
    "zz": {"S": "of the next minor release"},
    "zy": {"M": {"deep": {"L": [{"B": b"\x00\x01"}, {"NULL": True}]}}},
}
"""Attributes as the next minor release may add them to any item."""


def application(
    files: Mapping[str, Any],
    *,
    extra: Mapping[str, Any] | None = None,
    wrap: Callable[[Any], Any] = lambda client: client,
) -> MemoryApplication:
    """Return the application as the release left it, at the same time, its streams where it was.

    Args:
        files: of the release's folder.
        extra: attributes put beside those of every item.
        wrap: goes around the client, as `MemoryApplication` takes it.
    """
    world = files["world.json"]
    app = MemoryApplication(clock=ManualClock(world["now"]), rng=random.Random(1), wrap=wrap)
    for table in TABLES:
        for item in files["tables.json"][table]:
            app.engine.put_item(TableName=table, Item=image_item(item) | dict(extra or {}))
    for name, packed in files["bodies.json"].items():
        app.bodies.objects[name] = zlib.decompress(base64.b64decode(packed))
    app.engine._engine._sequence = int(world["sequence"])
    loaded = app.engine.stream(OUTBOX)
    loaded.trim(loaded.take()[-1]["dynamodb"]["SequenceNumber"])
    app.engine.stream(BATCHES).trim(str(10**21))
    return app


def read_streams(app: MemoryApplication, files: Mapping[str, Any]) -> None:
    """Let today's functions read the records that the release's had not read."""
    records = files["streams.json"][OUTBOX]
    app._relay.handle(records, deadline=app.deadline)
    app._marking.handle(records)
