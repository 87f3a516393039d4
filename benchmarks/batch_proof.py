"""Proof of the arithmetic of batches against one that is made, acked and completed in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairbox.codec import PK
from fairbox.testing import CostMeter
from fairbox.testing.application import BATCHES, MemoryApplication
from fairbox.testing.units import item_size

from benchmarks.batch_sizes import Shape, Units

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairbox.batches.results import Group


@dataclass(frozen=True, slots=True)
class Proof:
    """The measurements of a batch.

    Attributes:
        differences: deviations from the arithmetic.
        acked: cost of its acks.
    """

    differences: list[str]
    acked: Units


class _Bench:
    """An application whose calls are metered."""

    def __init__(self) -> None:
        meters: list[CostMeter] = []

        def wrap(client: Any) -> CostMeter:
            meters.append(CostMeter(client))
            return meters[-1]

        self.app = MemoryApplication(wrap=wrap)
        self._meter = meters[0]

    def spent(self) -> Units:
        """Return the cost since the last call: of the batches table, and of messages."""
        reading = self._meter.reading()
        self._meter.reset()
        reads = sum(c.rru for (_, table, _), c in reading.costs.items() if table == BATCHES)
        return Units(reading.wru, reads)

    def kinds(self) -> dict[str, int]:
        """Return the numbers of leaves and nodes."""
        sort_keys = [item["sk"]["S"] for item in self.app.engine.items(BATCHES)]
        return {"leaves": sort_keys.count("l"), "nodes": sort_keys.count("n")}

    def bytes(self) -> int:
        """Return the bytes of all items of batches."""
        return sum(item_size(item) for item in self.app.engine.items(BATCHES))


def prove(shape: Shape) -> Proof:
    """Make such a batch, ack all its items, and compare every count with the arithmetic."""
    bench = _Bench()
    batches, clock = bench.app.batches, bench.app.clock
    _warm(bench)
    opened, hour = int(clock.now() * 1000), int(clock.now() // 3600)
    before = bench.bytes()
    batch = batches.open().id
    groups = batches.add(batch, shape.items, request_id="all", group_size=shape.group_size)
    created, kinds = bench.spent(), bench.kinds()
    stored = bench.bytes() - before
    batches.seal(batch)
    bench.spent()
    completed = [c for items in _requests(shape, groups) for c in batches.ack(items).completed]
    acked = bench.spent()
    found = {
        "leaves": (kinds["leaves"], shape.leaves),
        "nodes": (kinds["nodes"], shape.nodes),
        "bytes": (stored, shape.stored(hour=hour, opened=opened)),
        "WRU of creation": (created.wru, shape.created().wru),
        "RRU of creation": (created.rru, shape.created().rru),
        "WRU of all acks": (acked.wru, shape.acked().wru),
        "RRU of all acks": (acked.rru, shape.acked().rru),
        "completions": (len(completed), 1),
    }
    differences = [f"{what}: {n} counted, {m} computed" for what, (n, m) in found.items() if n != m]
    return Proof(differences, acked)


def _warm(bench: _Bench) -> None:
    """Complete an empty batch and erase its traces, so that the topic is known."""
    batch = bench.app.batches.open().id
    bench.app.batches.seal(batch)
    for item in bench.app.engine.items(BATCHES):
        bench.app.engine.delete_item(TableName=BATCHES, Key={"pk": item[PK], "sk": item["sk"]})
    bench.spent()


def _requests(shape: Shape, groups: list[Group]) -> Iterator[list[str]]:
    for group in groups:
        items = list(group.item_ids())
        for start in range(0, len(items), shape.at_once):
            yield items[start : start + shape.at_once]
