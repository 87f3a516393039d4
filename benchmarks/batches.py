"""What acks cost: request units of real code, exact, on a manual clock, at several sizes."""

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
_GROUP_SIZE: Final = 16
_DOLLARS_PER_MILLION_WRU: Final = 0.625
_DOLLARS_PER_MILLION_RRU: Final = 0.125


def figures(*, acks: int = 200, bulk: int = 1000) -> list[Figure]:
    """Return the figures of batches.

    Args:
        acks: single acks, of items drawn at random, that growth is measured over.
        bulk: acks of one leaf in one request.
    """
    one = _Metered().of_one_leaf(bulk)
    single = _Metered().of_one_leaf(1)
    few, many = (
        _Metered().singly(groups, min(acks, SMALL * (_GROUP_SIZE - 2))) for groups in (SMALL, LARGE)
    )
    return [
        Figure("batches.wru_per_ack", "WRU", one.wru / bulk),
        Figure("batches.rru_per_ack", "RRU", one.rru / bulk),
        Figure("batches.wru_per_ack.single", "WRU", single.wru),
        Figure("batches.rru_per_ack.single", "RRU", single.rru),
        Figure("batches.ack_growth_10_to_10000_groups", "ratio", _dollars(many) / _dollars(few)),
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
        """What one request costs that acks so many items of one leaf."""
        batch = self._batches.open().id
        (group,) = self._batches.add(batch, 7168, request_id="all")
        return self._acked([list(group.item_ids())[:count]])

    def singly(self, groups: int, count: int) -> Reading:
        """What so many single acks cost in a batch of so many groups, none of them the last."""
        batch = self._batches.open().id
        added = self._batches.add(
            batch, groups * _GROUP_SIZE, request_id="all", group_size=_GROUP_SIZE
        )
        self._batches.seal(batch)
        items = [item for group in added for item in list(group.item_ids())[1:]]
        # the first write of a leaf drops its add's name: no group is read for it twice
        self._batches.ack(f"{group.id}:0" for group in added)
        count = min(count, len(items))
        drawn = random.Random(7).sample(items, count)
        return self._acked([[item] for item in drawn])

    def _acked(self, requests: Sequence[Sequence[str]]) -> Reading:
        self._meters[0].reset()
        for items in requests:
            self._batches.ack(items)
        return self._meters[0].reading()


def _dollars(reading: Reading) -> float:
    return reading.wru * _DOLLARS_PER_MILLION_WRU + reading.rru * _DOLLARS_PER_MILLION_RRU
