"""Cost of batches: request units of real code, exact, on a manual clock, at several sizes.

The cost of a batch of a billion items is arithmetic, compared with a real one of ten million.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from fairbox.testing import CostMeter, MemoryDynamoDB
from fairbox.testing.application import MemoryApplication

from benchmarks.baseline_004 import NAME as SEED
from benchmarks.baseline_004 import SeedBatches, definition
from benchmarks.batch_proof import prove
from benchmarks.batch_sizes import DOLLARS_PER_RRU, DOLLARS_PER_WRU, Shape
from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.testing import Reading

SMALL, LARGE = 10, 10_000
GROUPS: Final = (10, 100, 1000)
MADE: Final = 10_000_000
BILLION: Final = 1_000_000_000
_GROUP_SIZE: Final = 16
_FULL: Final = 7168
_HOUR: Final = 488_889  # hours since 1970 UTC, in 2025


def figures(
    *, acks: int = 200, bulk: int = 1000, made: int = MADE, groups: Sequence[int] = GROUPS
) -> tuple[list[Figure], list[str]]:
    """Return the figures of batches.

    Args:
        acks: number of single acks of random items over which growth is measured.
        bulk: acks of one leaf in one request.
        made: items of the batch that the arithmetic is compared with.
        groups: sizes at which single acks are compared with source 004's.

    Returns:
        The figures, and the errors of the arithmetic.
    """
    one = _Metered().of_one_leaf(bulk)
    single = _Metered().of_one_leaf(1)
    few, many = (_Metered().singly(n, min(acks, SMALL * (_GROUP_SIZE - 2))) for n in (SMALL, LARGE))
    growth = _dollars(many) / _dollars(few)
    proof = prove(Shape(made))
    return [
        Figure("batches.wru_per_ack", "WRU", one.wru / bulk),
        Figure("batches.rru_per_ack", "RRU", one.rru / bulk, 1 / bulk, "one read a leaf"),
        Figure("batches.wru_per_ack.single", "WRU", single.wru),
        Figure("batches.rru_per_ack.single", "RRU", single.rru, 1.0, "one read a leaf"),
        Figure("batches.ack_growth_10_to_10000_groups", "ratio", growth),
        *(figure for count in groups for figure in _beside_the_seed(count)),
        *_of_a_billion(),
        Figure(f"batches.arithmetic_holds.{made}_items", "share", float(not proof.differences)),
    ], [f"the arithmetic is wrong: {text}" for text in proof.differences]


def _beside_the_seed(groups: int) -> list[Figure]:
    """Return the cost of a single ack in a batch of so many full groups, beside source 004's."""
    ours = _Metered().singly(groups, 1, size=_FULL)
    seed = _seed_ack(groups)
    return [
        Figure(f"batches.{unit.lower()}_per_ack.{groups}_groups", unit, value, other, SEED)
        for unit, value, other in (("WRU", ours.wru, seed.wru), ("RRU", ours.rru, seed.rru))
    ]


def _seed_ack(groups: int) -> Reading:
    meter = CostMeter(MemoryDynamoDB())
    meter.create_table(**definition())
    tracker = SeedBatches(meter)
    tracker.open("batch")
    tracker.add("batch", groups, _FULL)
    tracker.seal("batch")
    meter.reset()
    tracker.ack("batch", 0, [1])
    return meter.reading()


def _of_a_billion() -> list[Figure]:
    """Return the cost of 10^9 items, added in one call and acked by thousands of a group."""
    shape, name = Shape(BILLION), "batches.10^9_items"
    created, acked = shape.created(), shape.acked()
    return [
        Figure(f"{name}.leaves", "items", shape.leaves),
        Figure(f"{name}.nodes", "items", shape.nodes),
        Figure(f"{name}.stored", "GB", shape.stored(hour=_HOUR, opened=_HOUR * 3_600_000) / 1e9),
        Figure(f"{name}.created", "WRU", created.wru),
        Figure(f"{name}.created.dollars", "$", created.dollars),
        Figure(f"{name}.acked", "WRU", acked.wru),
        Figure(f"{name}.acked.per_ack", "WRU", acked.wru / BILLION),
        Figure(f"{name}.acked.dollars", "$", acked.dollars),
    ]


class _Metered:
    """An application whose calls are metered."""

    def __init__(self) -> None:
        self._meters: list[CostMeter] = []
        self._app = MemoryApplication(wrap=self._wrap)
        self._batches = self._app.batches

    def _wrap(self, client: Any) -> CostMeter:
        self._meters.append(CostMeter(client))
        return self._meters[-1]

    def of_one_leaf(self, count: int) -> Reading:
        """Return the cost of one request that acks so many items of one leaf."""
        batch = self._batches.open().id
        (group,) = self._batches.add(batch, 7168, request_id="all")
        return self._acked([list(group.item_ids())[:count]])

    def singly(self, groups: int, count: int, size: int = _GROUP_SIZE) -> Reading:
        """Return the cost of single acks in a batch of so many groups, none of them the last."""
        batch = self._batches.open().id
        added = self._batches.add(batch, groups * size, request_id="all", group_size=size)
        self._batches.seal(batch)
        # the first write of a leaf drops its add's name: no group is read for it twice
        self._batches.ack(f"{group.id}:0" for group in added)
        places = random.Random(7).sample(range(groups * (size - 1)), count)
        drawn = [divmod(place, size - 1) for place in places]
        return self._acked([[f"{added[group].id}:{index + 1}"] for group, index in drawn])

    def _acked(self, requests: Sequence[Sequence[str]]) -> Reading:
        self._meters[0].reset()
        for items in requests:
            self._batches.ack(items)
        return self._meters[0].reading()


def _dollars(reading: Reading) -> float:
    return reading.wru * DOLLARS_PER_WRU + reading.rru * DOLLARS_PER_RRU
