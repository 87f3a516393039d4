"""The positions of a feeds client: each rule of what it asks, takes and counts, on a set clock."""

from __future__ import annotations

import base64
import copy
import json
import random
from decimal import Decimal
from math import inf
from typing import Any

import pytest
from fairbox import FeedRefused, FeedUpdate, InvalidInput
from fairbox.client.feed_positions import FeedPositions
from fairbox.testing import ManualClock

RING, SNAP, PRIV = "trades/btc", "prices/eur", "inbox/u7"
KINDS = {RING: "ring", SNAP: "snapshot", PRIV: "private"}
SOON, CHECK = (0.2, 1), (480, 540)


def numbered(*numbers: int) -> list[list[Any]]:
    return [[number, f"id-{number}", {"n": number}] for number in numbers]


class Edge(random.Random):
    """Chance that gives the least (0) or the greatest (1) of what it may."""

    def __init__(self, edge: int) -> None:
        super().__init__()
        self.edge = edge

    def uniform(self, *bounds: float) -> float:
        return bounds[self.edge]


class Run:
    """A client on its first socket, driven as its I/O drives it."""

    def __init__(self, **positions: int | None) -> None:
        topics = {t: positions.get(k) for t, k in ((RING, "r"), (SNAP, "s"), (PRIV, "p"))}
        topics = {t: p for t, p in topics.items() if KINDS[t][0] in positions}
        self.clock = ManualClock(1000.0)
        self.client = FeedPositions(topics, clock=self.clock, rng=random.Random(7))
        self.asked: dict[str, Any] = {}
        assert self.client.due() == self.clock.now(), "at once"
        self.ask()

    def ask(self) -> dict[str, Any]:
        """Let the time come, and return the request."""
        self.clock.set(max(self.clock.now(), self.client.due()))
        text = self.client.act()
        assert text is not None
        self.asked = json.loads(text)
        return self.asked

    def get(self, *entries: Any, **others: Any) -> list[FeedUpdate]:
        return self.client.received(json.dumps({"t": list(entries), **others}))

    def answer(self, *entries: Any, **others: Any) -> list[FeedUpdate]:
        return self.get(*entries, **{"a": self.asked["id"], "kinds": KINDS, **others})

    def waits(self, bounds: tuple[float, float]) -> bool:
        return bounds[0] <= self.client.due() - self.clock.now() <= bounds[1]


def told(updates: list[FeedUpdate]) -> list[tuple[list[int], int, int | None]]:
    return [([m.number for m in u.messages], u.lost, u.position) for u in updates]


def test_it_asks_all_at_once_on_every_new_socket_and_ids_count_from_one() -> None:
    run = Run(r=1041, s=None)
    assert run.asked == {"op": "sync", "id": 1, "topics": {RING: 1041, SNAP: None}}
    run.client.opened()
    assert run.client.due() == run.clock.now()
    assert run.ask()["id"] == 2


ASKS_SOON = {
    "an answer says more": ([RING, 5, 5, [], "more"], {"a": 1}),
    "an answer says reset": ([RING, 2, 2, [], "reset"], {"a": 1}),
    "a frame shows a gap": ([RING, 6, 7, numbered(7)], {}),
    "a private position is past what was acknowledged": ([PRIV, 5, 6, numbered(6)], {}),
}


@pytest.mark.parametrize("why", ASKS_SOON)
def test_it_asks_soon_where(why: str) -> None:
    run = Run(r=5, s=5, p=5)
    entry, others = ASKS_SOON[why]
    if "a" not in others:
        run.answer()
        run.get(entry)
    else:
        run.answer(entry)
    assert run.waits(SOON)
    before, run.client._rng = run.client.due(), Edge(1)
    run.clock.advance(0.1)
    run.get([PRIV, 5, 6, numbered(6)])
    assert run.client.due() <= before, "what follows does not put it off"
    assert run.ask()["topics"].keys() == {RING, SNAP, PRIV}, "all topics at once"


@pytest.mark.parametrize(
    "entry",
    [[RING, 5, 6, numbered(6)], [SNAP, 8, 9, numbered(9)], [PRIV, 4, 5, numbered(5)]],
    ids=["ring", "of a snapshot nothing is a gap", "private, acknowledged"],
)
def test_it_checks_every_nine_minutes_whatever_came(entry: Any) -> None:
    run = Run(r=5, s=5, p=5)
    run.answer()
    due = run.client.due()
    assert run.waits(CHECK)
    run.clock.advance(100)
    run.get(entry)
    assert run.client.due() == due


def test_one_request_is_under_way_and_what_a_frame_showed_is_asked_after_its_answer() -> None:
    run = Run(r=5)
    assert run.client.due() == run.clock.now() + 10
    run.answer()
    run.ask()
    run.get([RING, 6, 7, numbered(7)])
    assert run.client.due() == run.clock.now() + 10
    run.answer([RING, 5, 6, numbered(6)])
    assert run.waits(SOON)
    run.ask()
    assert told(run.answer([RING, 6, 7, numbered(7)])) == [([7], 0, 7)]
    assert run.waits(CHECK)


def test_what_came_after_a_request_is_not_acknowledged_by_it() -> None:
    run = Run(p=5)
    run.answer()
    run.ask()
    run.get([PRIV, 5, 6, numbered(6)])
    run.answer()
    assert run.waits(SOON)
    assert run.ask()["topics"] == {PRIV: 6}
    run.answer()
    assert run.waits(CHECK)


def test_what_a_frame_showed_before_a_request_is_settled_by_the_answer() -> None:
    run = Run(r=5)
    run.answer()
    run.get([RING, 6, 900, []])  # of a table that is restored then
    run.ask()
    run.answer([RING, 5, 5, []])
    assert run.waits(CHECK)


def test_it_asks_again_after_ten_seconds_and_replaces_the_socket_after_two_in_a_row() -> None:
    run = Run(r=5)
    assert run.ask() == {"op": "sync", "id": 2, "topics": {RING: 5}}
    run.answer()
    run.ask()
    assert run.ask()["id"] == 4
    assert run.client.due() == run.clock.now() + 10
    run.clock.advance(10)
    assert run.client.act() is None
    run.client.opened()
    assert run.ask()["id"] == 5


@pytest.mark.parametrize("edge", [0, 1])
def test_random_times_have_bounds_and_a_socket_is_replaced_unasked(edge: int) -> None:
    run = Run(r=5)
    run.client._rng = Edge(edge)
    run.client.opened()
    replaced = run.clock.now() + (96 * 60, 114 * 60)[edge]
    run.ask()
    run.answer()
    assert run.client.due() == run.clock.now() + CHECK[edge]
    run.get([RING, 6, 7, []])
    assert run.client.due() == run.clock.now() + SOON[edge]
    while run.client.due() < replaced:
        run.ask()
        run.answer()
    run.clock.set(run.client.due())
    assert (run.clock.now(), run.client.act()) == (replaced, None)


def test_the_answer_to_an_older_request_is_taken_and_does_not_end_the_one_under_way() -> None:
    run = Run(r=5)
    run.ask()
    due = run.client.due()
    assert told(run.answer([RING, 5, 6, numbered(6)], a=1)) == [([6], 0, 6)]
    assert run.client.due() == due
    # its reset may be over already: messages would come twice
    assert run.answer([RING, 2, 3, numbered(3), "reset"], a=1) == []
    assert run.client.positions == {RING: 6}


TAKEN = {
    "what follows": ("ring", [RING, 5, 7, numbered(6, 7)], [([6, 7], 0, 7)]),
    "what it has is dropped": ("ring", [RING, 3, 6, numbered(4, 5, 6)], [([6], 0, 6)]),
    "what is missing is lost": ("ring", [RING, 5, 9, numbered(8, 9)], [([8, 9], 2, 9)]),
    "all is lost": ("ring", [RING, 5, 9, []], [([], 4, 9)]),
    "nothing new": ("ring", [RING, 2, 5, numbered(4, 5)], []),
    "nothing behind a gap": ("ring", [RING, 6, 7, numbered(7)], []),
    "private: nothing behind a gap": ("private", [PRIV, 6, 7, numbered(7)], []),
    "snapshot: conflated": ("snapshot", [SNAP, 8, 9, numbered(9)], [([9], 3, 9)]),
    "no topic of ours": ("ring", ["trades/eth", 5, 6, numbered(6)], []),
}


@pytest.mark.parametrize("what", TAKEN)
@pytest.mark.parametrize("answer", [True, False])
def test_of_an_entry_it_takes(what: str, answer: bool) -> None:
    kind, entry, expected = TAKEN[what]
    run = Run(**{kind[0]: 5})
    if not answer:
        run.answer()
    updates = run.answer(entry) if answer else run.get(entry)
    assert told(updates) == expected
    assert all(update.kind == kind for update in updates)
    assert set(run.client.positions.values()) == {expected[0][2] if expected else 5}


def test_a_topic_begins_by_an_answer_and_a_frame_before_it_is_remembered() -> None:
    run = Run(r=None)
    assert run.get([RING, 0, 8, numbered(8)]) == []
    assert run.client.positions == {RING: None}
    assert told(run.answer([RING, 6, 7, numbered(7)])) == [([7], 0, 7)]
    assert run.waits(SOON)


def test_a_frame_before_the_kind_is_known_is_remembered() -> None:
    run = Run(s=5)
    assert run.get([SNAP, 5, 6, numbered(6)]) == []
    run.answer([SNAP, 5, 5, []])
    assert run.waits(SOON)


def test_a_reset_sets_the_position_tells_it_and_asks() -> None:
    run = Run(p=50)
    [update] = run.answer([PRIV, 3, 4, numbered(4), "reset"])
    assert (update.reset, update.lost, update.position) == (True, 0, 4)
    assert run.ask()["topics"] == {PRIV: 4}
    [update] = run.answer([PRIV, 2, 2, [], "reset"])
    assert (update.reset, update.messages) == (True, ())


@pytest.mark.parametrize(
    ("kind", "dropped"), [("ring", True), ("private", True), ("snapshot", False)]
)
def test_a_repeated_id_is_dropped_as_received_among_the_last_64(kind: str, dropped: bool) -> None:
    run = Run(**{kind[0]: 0})
    [topic] = run.client.positions
    run.answer([topic, 0, 1, [[1, "twice", 1]]])
    again = run.get([topic, 1, 2, [[2, "twice", 2]]])
    assert told(again) == ([] if dropped else [([2], 0, 2)])
    assert run.client.positions == {topic: 2}
    run.get([topic, 2, 65, numbered(*range(3, 66))])
    assert told(run.get([topic, 65, 66, [[66, "twice", 3]]])) == (
        [] if dropped else [([66], 0, 66)]
    )
    run.get([topic, 66, 67, numbered(67)])
    assert told(run.get([topic, 67, 68, [[68, "twice", 4]]])) == [([68], 0, 68)]


def test_a_refused_topic_is_told_once_and_asked_no_more() -> None:
    run = Run(r=5, s=None)
    error = {"err": [[RING, "not_allowed", "no grant"]]}
    [update] = run.answer(**error)
    assert (update.topic, update.position, update.error) == (RING, 5, ("not_allowed", "no grant"))
    assert run.ask()["topics"] == {SNAP: None}
    assert run.answer(**error) == []
    run.get([RING, 8, 9, numbered(9)])
    assert run.waits(CHECK)
    assert run.client.due() < inf
    run.answer(err=[[SNAP, "unknown_feed", ""]])
    assert run.client.due() == inf


@pytest.mark.parametrize("request_id", [1, None])
def test_a_refused_request_is_an_error_and_moves_nothing(request_id: int | None) -> None:
    run = Run(r=5)
    error = [[None, "bad_request", "topics: expected names"]]
    with pytest.raises(FeedRefused, match="topics: expected names") as refused:
        run.answer([RING, 5, 6, numbered(6)], a=request_id, err=error)
    assert refused.value.code == "bad_request"
    assert run.client.positions == {RING: 5}


def test_code_reconnect_replaces_the_socket_and_is_no_answer() -> None:
    run = Run(r=5)
    run.client.closed()
    run.answer(err=[[None, "reconnect", ""]])
    assert run.client.due() == run.clock.now()
    assert run.client.act() is None
    assert [bound(run) for _ in range(2)] == [1, 2], "the next waits grow"


def bound(run: Run) -> float:
    """Return the greatest time that may pass before the next socket; the least is none."""
    run.client._rng = Edge(0)
    assert copy.copy(run.client).closed() == 0
    run.client._rng = Edge(1)
    return run.client.closed()


def test_sockets_are_opened_with_full_jitter_which_doubles_until_an_answer() -> None:
    run = Run(r=5)
    assert [bound(run) for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    run.client.opened()
    assert bound(run) == 60
    run.ask()
    run.answer()
    assert bound(run) == 0.5


@pytest.mark.parametrize(
    "text",
    [
        "", "[" * 100_000, "7", '{"message": "Internal server error"}', '{"t": 7}', '{"t": [[]]}',
        '{"a": 1, "err": [[["x"], "y", "z"]]}', '{"a": 1, "kinds": {"trades/btc": "other"}}',
        *(json.dumps({"a": 1, "kinds": KINDS, "t": [[RING, 5, 6, numbered(6)], bad]}) for bad in (
            [RING, "6", 7, []], [RING, -1, 7, []], [RING, 7, 6, []], [RING, 6, 7, numbered(8)],
            [RING, 6, 8, numbered(8, 7)], [RING, 6, 7, [[7, "id", "?", "b64"]]],
        )),
    ],
)  # fmt: skip
def test_what_is_malformed_is_ignored_whole(text: str) -> None:
    run = Run(r=5)
    due = run.client.due()
    assert run.client.received(text) == []
    assert run.client.positions == {RING: 5}
    assert run.client.due() == due, "the request is still under way"


def test_bodies_are_json_values_or_bytes() -> None:
    run, long = Run(r=0), "9" * 5000
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
