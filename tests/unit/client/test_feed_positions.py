"""The positions of a feeds client: each rule of what it asks, takes and counts, on a set clock."""

from __future__ import annotations

import base64
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fairbox import FeedRefused, FeedUpdate, InvalidInput
from fairbox.client.feed_positions import FeedPositions
from fairbox.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE = Path(__file__).resolve().parents[3] / "clients/feed_vectors.json"
VECTORS = json.loads(FILE.read_text())
RING = "trades/btc"


class Edge(random.Random):
    """Chance that gives the least (0) or the greatest (1) of what it may."""

    def __init__(self, edge: int) -> None:
        super().__init__()
        self.edge = edge

    def uniform(self, *bounds: float) -> float:
        return bounds[self.edge]


class Run:
    """A client that is driven as its I/O drives it; each key of a step is a method."""

    def __init__(self, positions: dict[str, int | None], chance: int = 0) -> None:
        self.clock = ManualClock(1000.0)
        self.client = FeedPositions(positions, clock=self.clock, rng=Edge(chance))
        self.connecting, self.requests = True, 0

    def take(self, steps: Sequence[dict[str, Any]]) -> None:
        for step in steps:
            if self.connecting and "closes" not in step:
                self.client.opened()
                self.connecting = False
            kind, *_ = step
            getattr(self, kind)(**step)

    def times(self, times: int, steps: Sequence[dict[str, Any]]) -> None:
        for _ in range(times):
            self.take(steps)

    def passes(self, passes: float) -> None:
        assert self.client.due() > self.clock.now() + passes
        self.clock.advance(passes)

    def asks(self, asks: dict[str, int | None], after: float) -> None:
        text = self._act(after)
        self.requests += 1
        assert text is not None
        assert json.loads(text) == {"op": "sync", "id": self.requests, "topics": asks}

    def gives_up(self, gives_up: float, waits: float = 0) -> None:
        assert self._act(gives_up) is None
        self.closes(waits)

    def closes(self, closes: float) -> None:
        assert self.client.closed() == closes
        self.clock.advance(closes)
        self.connecting = True

    def answer(self, answer: Any, to: int | None = -1, err: Any = (), **told: Any) -> None:
        id_ = self.requests if to == -1 else to
        frame = {"a": id_, "t": answer, "kinds": VECTORS["kinds"], "err": err}
        self.receives(json.dumps(frame), **told)

    def push(self, push: Any, **told: Any) -> None:
        self.receives(json.dumps({"t": push}), **told)

    def receives(
        self, receives: str, news: Sequence[Any] = (), refuses: Sequence[Any] | None = None
    ) -> None:
        if refuses is not None and refuses[0] is None:
            before = self.client.positions
            with pytest.raises(FeedRefused) as refused:
                self.client.received(receives)
            assert [None, refused.value.code, refused.value.text] == refuses
            assert self.client.positions == before
            return
        updates = self.client.received(receives)
        errors = [[update.topic, *update.error] for update in updates if update.error]
        assert errors == ([] if refuses is None else [refuses])
        assert [told(update) for update in updates if not update.error] == list(news)

    def _act(self, after: float) -> str | None:
        assert self.client.due() == pytest.approx(self.clock.now() + after)
        self.clock.set(max(self.client.due(), self.clock.now()))
        return self.client.act()


def told(update: FeedUpdate) -> list[Any]:
    assert update.kind == VECTORS["kinds"][update.topic]
    numbers = [message.number for message in update.messages]
    return [update.topic, numbers, update.lost, update.position] + ["reset"] * update.reset


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda vector: vector["name"])
def test_vector(vector: dict[str, Any]) -> None:
    Run(vector["positions"], vector.get("chance", 0)).take(vector["steps"])


def test_what_is_nested_too_deep_is_ignored() -> None:
    assert Run({RING: 5}).client.received("[" * 100_000) == []


def test_bodies_are_json_values_or_bytes() -> None:
    run, long = Run({RING: 0}), "9" * 5000
    data = base64.b64encode(b"\0\xff").decode()
    text = f'{{"a":1,"kinds":{{"{RING}":"ring"}},"t":[["{RING}",0,3,'
    text += f'[[1,"a",{{"x":[1.5,null]}}],[2,"b","{data}","b64"],[3,"c",{long}]]]]}}'
    [update] = run.client.received(text)
    bodies = [m.body for m in update.messages]
    assert bodies == [{"x": [1.5, None]}, b"\0\xff", Decimal(long)]


@pytest.mark.parametrize(
    ("topics", "field"),
    [
        ({}, "topics"), ({f"f/{n}": 0 for n in range(101)}, "topics"), ({7: 0}, "topic"),
        ({f"{'f' * 120}/{'k' * 250}{n}": 0 for n in range(100)}, "topics"),
        ({"trades/*": 0}, "key"), ({RING: -1}, "topics"), ({RING: True}, "topics"),
    ],
)  # fmt: skip
def test_topics_and_positions_are_checked(topics: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as wrong:
        FeedPositions(topics, clock=ManualClock(), rng=random.Random(0))
    assert wrong.value.field == field
