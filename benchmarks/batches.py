"""Cost of batches: request units of real code, exact, on a manual clock, at several sizes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from fairbox.testing import CostMeter
from fairbox.testing.application import MemoryApplication

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairbox.testing import Reading

SMALL, LARGE = 10, 10_000
GROUPS: Final = (10, 100, 1000)
_DOLLARS_PER_WRU: Final = 0.625e-6  # on demand, us-east-1
_DOLLARS_PER_RRU: Final = 0.125e-6
_GROUP_SIZE: Final = 16
_FULL: Final = 7168


def figures(*, acks: int = 200, bulk: int = 1000, groups: Sequence[int] = GROUPS) -> list[Figure]:
    """Return the figures of batches.

    Args:
        acks: number of single acks of random items over which growth is measured.
        bulk: acks of one leaf in one request.
        groups: numbers of full groups at which one single ack is measured.
    """
    one = _Metered().of_one_leaf(bulk)
    single = _Metered().of_one_leaf(1)
    few, many = (_Metered().singly(n, min(acks, SMALL * (_GROUP_SIZE - 2))) for n in (SMALL, LARGE))
    growth = _dollars(many) / _dollars(few)
    found = [
        Figure("batches.wru_per_ack", "WRU", one.wru / bulk),
        Figure("batches.rru_per_ack", "RRU", one.rru / bulk, 1 / bulk, "one read a leaf"),
        Figure("batches.wru_per_ack.single", "WRU", single.wru),
        Figure("batches.rru_per_ack.single", "RRU", single.rru, 1.0, "one read a leaf"),
        Figure("batches.ack_growth_10_to_10000_groups", "ratio", growth),
    ]
    for count in groups:
        reading = _Metered().singly(count, 1, size=_FULL)
        found += [
            Figure(f"batches.wru_per_ack.{count}_groups", "WRU", reading.wru),
            Figure(f"batches.rru_per_ack.{count}_groups", "RRU", reading.rru),
        ]
    return found


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
    return reading.wru * _DOLLARS_PER_WRU + reading.rru * _DOLLARS_PER_RRU
